// Interface of the CPU attention kernels of every ISA level and the driver that feeds them: plain
// structs of pointers, strides in bytes.
#pragma once
#include <cstdint>

#include "base/bf16_dots.h"
#include "halftone/dtype.h"

namespace halftone {

// Keys of a chunk. The online softmax works by chunks: each is reduced by itself (own row_max, own
// row_sum) and chunks are accumulated in order, so that a row's result is a function of its key
// range alone, whichever tile or thread computes it. Chunks begin at multiples of this from key 0.
// Large heads take smaller chunks so that the packed K and V of a chunk stay in the 1 MB L2.
__attribute__((always_inline)) constexpr int64_t attention_chunk(int64_t largest_head_dim) {
  return largest_head_dim <= 256 ? 256 : largest_head_dim <= 512 ? 128 : 64;
}

// How dot products are computed where the processor has an instruction for BF16 pairs: with it,
// with the pairs split into FP32, or in FP32 throughout. Other processors compute everything in
// FP32.
enum class AttentionDot : uint8_t { f32, bf16_pairs, split_pairs };
// For operands that are exact in BF16.
__attribute__((always_inline)) inline AttentionDot bf16_dot(bool is_decode) {
  if (!multiply_bf16_in_f32()) return AttentionDot::bf16_pairs;
  // In prefill many rows share the conversion of K and V to FP32.
  return is_decode ? AttentionDot::split_pairs : AttentionDot::f32;
}

enum class AttentionRounding : uint8_t { none, f16, bf16, e4m3, nvfp4 };

// P is multiplied by this before it is rounded to E4M3 (largest 448), and O divided by it.
inline constexpr float kE4m3PScale = 256.0f;
// The second-level scale of P in NVFP4: the largest block scale, 448, times the largest element, 6.
inline constexpr float kNvfp4PScale = 2688.0f;

// Decode: with up to this many rows a KV head, tiles take all KV heads, walk the cache in memory
// order and multiply V as it is read, without packing it.
inline constexpr int64_t kAttentionDecodeRows = 8;

// The rows of K or V of one sequence and head, contiguous or paged.
struct AttentionRows {
  const uint8_t* data = nullptr;
  Format format = Format::f32;
  int64_t row_bytes = 0;
  const int32_t* pages = nullptr;  // null: contiguous rows
  int64_t page_size = 0, page_bytes = 0;
  // Block formats: encoded scales of the groups of a row, contiguous. Else one FP32 a row, or one
  // for each `scale_rows` of them, and then scale_row_bytes is 0. Null: none.
  const uint8_t* scales = nullptr;
  int64_t scale_rows = 0, scale_rows_bytes = 0;
  int64_t scale_row_bytes = 0, scale_page_bytes = 0;
  int64_t head_bytes = 0, scale_head_bytes = 0;  // from a KV head to the next
};

// Queries of one sequence (PackGQA): row r is KV head r / (queries * group), of which query r /
// group and head r % group. Prefill tiles have one KV head.
struct AttentionTile {
  int64_t head_dim = 0, value_dim = 0;
  AttentionDot dot = AttentionDot::f32;
  AttentionRounding rounding = AttentionRounding::none;
  float score_scale = 0;  // softmax scale, log2(e) and every scale that is the same for all rows
  float value_scale = 1;

  const uint8_t* q = nullptr;
  Format q_format = Format::f32;
  int64_t q_query_bytes = 0, q_head_bytes = 0;
  const uint8_t* q_scales = nullptr;
  int64_t q_scale_query_bytes = 0, q_scale_head_bytes = 0;
  int64_t q_scale_queries = 1, q_first = 0;  // queries a scale; the first of them all
  int64_t kv_heads = 1, queries = 0, group = 0;
  bool is_decode = false;  // of the sequence, not of this tile: the order of the sums depends on it

  AttentionRows k, v;
  // Keys visible to query i: [max(0, range_begin + i), min(keys, range_end + i)).
  int64_t keys = 0, range_begin = 0, range_end = 0;
  int64_t first_chunk = 0, end_chunk = 0;
  // With local_size > 0, of them those in the same chunk of this size as key `position` + i.
  int64_t local_size = 0, position = 0;

  float softcap = 0;              // in base-2 exponents; 0: none
  const uint8_t* mask = nullptr;  // of the first query and head, at key 0
  Format mask_format = Format::u8;
  int64_t mask_query_bytes = 0, mask_head_bytes = 0, mask_key_bytes = 0;
  const float* sinks = nullptr;  // of the first head
  int64_t sink_stride = 0;
  bool lse_without_sink = false;

  // Either the finished rows...
  uint8_t* out = nullptr;
  Format out_format = Format::f32;
  int64_t out_query_bytes = 0, out_head_bytes = 0;
  float* lse = nullptr;
  int64_t lse_query = 0, lse_head = 0;  // strides in elements
  // ... or, for a split, each chunk's unnormalised O, row_max and row_sum, one block a chunk.
  float* partial = nullptr;
  int64_t partial_stride = 0;  // floats from a chunk to the next

  uint8_t* scratch = nullptr;
};

// The kernels of one ISA level.
struct AttentionCpu {
  int64_t lanes;
  // Bytes of AttentionTile::scratch; `rows` = queries * group.
  int64_t (*scratch_bytes)(int64_t head_dim, int64_t value_dim, int64_t rows, int64_t kv_heads,
                           bool is_decode);
  // Floats of one chunk of AttentionTile::partial.
  int64_t (*partial_floats)(int64_t value_dim, int64_t rows);
  void (*run)(const AttentionTile&);
  // Combines the partial results of the chunks and writes the finished rows.
  void (*combine)(const AttentionTile&);
  // E4M3 with an E8M0 scale per 32 elements to BF16, exactly; `count` is a multiple of 32.
  void (*dequantise_mxfp8)(const uint8_t* packed, const uint8_t* scales, int64_t count,
                           uint16_t* out);
};

namespace cpu_baseline {
extern const AttentionCpu attention_cpu;
}
#if defined(__x86_64__)
namespace cpu_avx2 {
extern const AttentionCpu attention_cpu;
}
namespace cpu_avx512 {
extern const AttentionCpu attention_cpu;
}
namespace cpu_avx512_bf16 {
extern const AttentionCpu attention_cpu;
}
#endif

}  // namespace halftone
