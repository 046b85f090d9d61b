// What a product on a GPU is made of, for the kernel and for the host that starts it.
#pragma once
#include "ops/gemm/sm80/dequantise.h"
#include "ops/gemm/sm80/epilogue.h"

namespace halftone::gemm {

struct GpuTile {
  uint32_t rows, columns;  // of W and of x
  uint32_t warps_n, warps_m;
  uint32_t bytes;   // of shared memory at most
  uint32_t stages;  // at most
  uint32_t blocks;  // that share a multiprocessor, at most
};
// Rows of one expert for a block: `first` of x's rows, in the order of `x_rows`, `count` of them.
struct alignas(16) MChunk {
  int32_t expert, first, count, unused;
};

// Of products of few rows: the loop over spans that are whole, on 16 bytes and without zero points,
// whose scales are copied a span at a time (gpu_gemv_spans.h).
enum class GpuLoop : uint8_t { any, wide, lanes, narrow };  // any: of other spans
struct GpuSpans {
  GpuLoop loop = GpuLoop::any;
  bool halves = false;       // scales join every half of a span
  uint32_t scale_bytes = 0;  // of a row and span, ...
  uint32_t scale_shift = 0;  // ... log2 of the spans that share them, ...
  uint32_t scale_pitch = 0;  // ... bytes to the next, ...
  uint32_t octet_shift = 0;  // ... log2 of the chunks of 32 that share a scale
};

struct GpuGemm {
  GpuLayout weight;
  GpuSource source[2];  // and the other half of a gate
  // Of experts: sources in device memory, those of one after those of another; the parts of the
  // rows, and how many there are.
  const GpuSource* experts = nullptr;
  uint32_t expert_step = 0;
  bool aligned_experts = false;  // all on 16 bytes and without zero points
  const MChunk* chunks = nullptr;
  const uint32_t* chunk_count = nullptr;
  uint32_t chunk_rows = 0;  // of a part, at most
  // Or no list: the expert of each row, of so many, as for the only token. What is no expert gets
  // the first one's matrix, for rows that nobody reads. Sm90GroupedGemv alone.
  const int32_t* expert_ids = nullptr;
  uint32_t expert_id_rows = 0, expert_count = 0;
  const int32_t* x_rows = nullptr;     // the row of x of each row of y; null: the same
  const uint8_t* x = nullptr;          // [m * terms, k] of bf16, or f16 for weights in it
  const float* x_scales = nullptr;     // [m, groups of x]; null: 1
  int64_t x_row = 0, x_scale_row = 0;  // bytes; elements
  uint32_t x_group = 0, terms = 1;
  uint32_t m = 0, n = 0, k = 0;
  uint32_t period = 0;      // chunks after which a group of scales may end; 0: never within K
  bool scaled = false;      // scales of groups multiply the sums of products
  bool dequantise = false;  // codes and scales become f32 on their way to shared memory
  bool pairs = false;       // scales multiply the codes, see CodePolicy, ...
  float alpha = 1;          // ... and this the sums of products
  // No kernel ahead writes W or its scales: products of few rows start to copy before their turn.
  bool static_weights = false;
  GpuSpans spans;
  GpuEpilogue epilogue;
};

}  // namespace halftone::gemm
