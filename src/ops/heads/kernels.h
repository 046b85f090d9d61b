// The fused heads kernel: RMS norm, smoothing, RoPE and Walsh-Hadamard transform of rows of heads,
// then storage as they are, quantised, or in the pages of a KV cache, in one pass over memory.
// Shared by fused quantisation and the cache.
#pragma once
#include <cstdint>

#include "formats/gpu/kernels.h"
#include "ops/kv_cache/kernels.h"

namespace halftone {

// A tensor [tokens, heads, head_dim]. Each step that is asked for rounds to the tensor's format, as
// the separate operations do.
struct HeadRows {
  Rows x;  // counted over tokens and heads
  int64_t heads = 0;
  const void* weight = nullptr;  // [head_dim] of the norm; null: no norm
  Format weight_format = Format::bf16;
  float weight_offset = 0;
  const float* mean = nullptr;  // [tokens / mean_tokens, heads, head_dim], subtracted; or null
  int64_t mean_tokens = 1;
  bool rotates = false;
  bool hadamard = false;  // halftone/hadamard.h
  // Where rows go: in the tensor's format, or, with `out` null, quantised (whose x is unused).
  Rows out;
  QuantizeArgs codes;
  float static_scale = 0;  // of the quantised rows, instead of a scale a group; 0: none
  bool cached = false;     // to the cache slots of `shape`, quantised or not
  char* pages = nullptr;
};

struct HeadsArgs {
  HeadRows rows[3];
  int count = 0;
  int64_t tokens = 0, head_dim = 0;
  Format format = Format::bf16;
  float eps = 0;
  // RoPE: pairs (i, i + head_dim / 2).
  const double* frequencies = nullptr;
  float magnitude = 1;
  const void* positions = nullptr;
  int64_t position_stride = 1;
  bool wide_positions = false;
  // Of the cache.
  CacheShape shape;
  int64_t sequence_tokens = 1;
  const int32_t* cache_positions = nullptr;  // [tokens]; null: from `first` on
  int64_t first = 0;
  // PDL: positions and pages may be read before griddepcontrol.wait.
  bool prefetch_positions = false;
};

float hadamard_scale(int64_t block);  // 1 / sqrt(block)

// Empty where heads_gpu takes the problem, else why not.
const char* heads_gpu_error(const HeadsArgs&);
void heads_gpu(const HeadsArgs&, Stream&);

}  // namespace halftone
