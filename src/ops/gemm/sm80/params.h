// Parameters of the GEMMs on GPUs, shared by kernels and host.
#pragma once
#include "ops/gemm/sm80/dequantise.h"
#include "ops/gemm/sm80/epilogue.h"

namespace halftone::gemm {

struct GpuTile {
  uint32_t rows, columns;  // of W and of x
  uint32_t warps_n, warps_m;
  uint32_t bytes;   // of shared memory at most
  uint32_t stages;  // at most
  uint32_t blocks;  // CTAs an SM, at most
};
// An M-chunk of a grouped GEMM: `count` rows of one expert from `first` on, in the order of
// `x_rows`.
struct alignas(16) MChunk {
  int32_t expert, first, count, unused;
};

// The GEMV loop over whole, 16-byte aligned spans without zero points, whose scales are copied a
// span at a time (sm80/gemv_spans.h): `wide` where a span or half of one has no scales, one, or
// E4M3 scales that multiply the values; `ue8m0` where every 32 elements have a power-of-two scale;
// `narrow` where every 32 have any other. `any`: the general loop, with scales in tables.
enum class GpuLoop : uint8_t { any, wide, ue8m0, narrow };
struct GpuSpans {
  GpuLoop loop = GpuLoop::any;
  bool halves = false;       // scales change every half of a span
  uint32_t scale_bytes = 0;  // of a row and span, ...
  uint32_t scale_shift = 0;  // ... log2 of the spans that share them, ...
  uint32_t scale_pitch = 0;  // ... bytes to the next, ...
  uint32_t octet_shift = 0;  // ... log2 of the chunks of 32 that share a scale
};

struct GpuGemm {
  GpuLayout weight;
  GpuSource source[2];  // of W, and of the up half of a gate
  // Grouped GEMM: sources in device memory, expert_step for each expert; the M-chunks, and their
  // number.
  const GpuSource* experts = nullptr;
  uint32_t expert_step = 0;
  bool aligned_experts = false;  // all 16-byte aligned and without zero points
  const MChunk* chunks = nullptr;
  const uint32_t* chunk_count = nullptr;
  uint32_t chunk_rows = 0;  // of an M-chunk, at most
  // Or, instead of chunks, the expert of each row, for so many rows, as for a single token. An id
  // out of range gets the first expert's matrix, for rows that nobody reads. Sm90GroupedGemv only.
  const int32_t* expert_ids = nullptr;
  uint32_t expert_id_rows = 0, expert_count = 0;
  const int32_t* x_rows = nullptr;     // the row of x of each row of y; null: the same
  const uint8_t* x = nullptr;          // [m * terms, k] of BF16, or FP16 for weights in it
  const float* x_scales = nullptr;     // [m, groups of x]; null: 1
  int64_t x_row = 0, x_scale_row = 0;  // bytes; elements
  uint32_t x_group = 0, terms = 1;
  uint32_t m = 0, n = 0, k = 0;
  uint32_t period = 0;      // chunks after which a scale group may end; 0: never within K
  bool scaled = false;      // group scales multiply the accumulator
  bool dequantise = false;  // values and scales become FP32 on their way to shared memory
  bool pairs = false;       // group scales multiply the weights, see CodePolicy, ...
  float alpha = 1;          // ... and this the accumulator
  // No previous kernel writes W or its scales: they may be prefetched before griddepcontrol.wait.
  bool static_weights = false;
  GpuSpans spans;
  GpuEpilogue epilogue;
};

}  // namespace halftone::gemm
