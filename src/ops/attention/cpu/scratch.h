// Scratch memory of a CPU attention tile.
#pragma once
#include "ops/attention/cpu/gemm.h"
#include "ops/attention/cpu/values.h"

namespace halftone::HALFTONE_LEVEL {

// Rows that share a pass over a panel: the panel (16 KB at head size 128, in BF16) and the scores
// (24 KB) stay in L1.
inline constexpr int64_t kSubRows = 24;
inline constexpr int64_t kPaddedSubRows = 32 + kLanes;  // kSubRows up to whole vectors

HALFTONE_INLINE constexpr int64_t round_up(int64_t x, int64_t multiple) {
  return (x + multiple - 1) / multiple * multiple;
}
HALFTONE_INLINE constexpr int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
HALFTONE_INLINE constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// Scratch of a tile. Sized for FP32 elements, the larger ones.
struct Scratch {
  Scratch(uint8_t* base, int64_t head_dim, int64_t value_dim, int64_t rows_per_head,
          int64_t kv_heads, bool is_decode) {
    const int64_t rows = rows_per_head * kv_heads;
    const int64_t at_once = is_decode ? rows : kSubRows;
    const int64_t chunk = attention_chunk(larger(head_dim, value_dim));
    const int64_t columns = round_up(value_dim, kPanel);
    const int64_t depth = round_up(head_dim, kLanes) + kLanes;
    offset = 0;
    q = take<uint32_t>(base, rows * depth);
    // In decode, also permuted to the order of dequantised keys, in blocks of 4 rows.
    packed_q = take<uint32_t>(
        base, is_decode ? round_up(rows_per_head, 4) * kv_heads * 4 * round_up(head_dim, 128) : 0);
    q_scales = take<float>(base, rows);
    keys = take<uint32_t>(base, (is_decode ? kPanel : chunk) * depth);
    // In decode, room for a copy of those of one head, in case some are not finite.
    values = take<uint32_t>(base, chunk * columns);
    key_scales = take<float>(base, chunk * kv_heads);
    value_scales = take<float>(base, chunk * kv_heads);
    scores = take<float>(base, at_once * chunk);
    probs = take<uint32_t>(base, at_once * chunk);
    o = take<float>(base, rows * columns);
    maxima = take<float>(base, rows + kPaddedSubRows);
    sums = take<float>(base, rows + kPaddedSubRows);
    dequantised = take<uint32_t>(base, larger(kLanes * depth, (kStripKeys + 1) * columns + kLanes));
    chunk_o = take<float>(base, is_decode ? rows * columns : 0);
    chunk_maxima = take<float>(base, rows + kPaddedSubRows);
    chunk_sums = take<float>(base, rows + kPaddedSubRows);
  }
  template <class T>
  T* take(uint8_t* base, int64_t count) {
    T* result = base == nullptr ? nullptr : reinterpret_cast<T*>(base + offset);
    offset = round_up(offset + count * static_cast<int64_t>(sizeof(T)), 64);
    return result;
  }
  uint32_t *q, *packed_q, *keys, *values, *probs, *dequantised;
  float *q_scales, *key_scales, *value_scales, *scores, *o, *maxima, *sums;
  float *chunk_o, *chunk_maxima, *chunk_sums;
  int64_t offset;
};

}  // namespace halftone::HALFTONE_LEVEL
