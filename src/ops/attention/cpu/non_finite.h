// V that is not finite, on the CPU: 0 x infinity is NaN, so P = 0 of a masked key would make NaN of
// it.
#pragma once
#include "ops/attention/cpu/rows.h"

namespace halftone::HALFTONE_LEVEL {

HALFTONE_INLINE float as_float(float x) { return x; }
HALFTONE_INLINE float as_float(uint16_t bf16) { return bits_as<float>(uint32_t{bf16} << 16); }
HALFTONE_INLINE bool is_finite(float x) { return x - x == 0; }

// Whether one of `columns` elements (a multiple of kPanel) is infinite or NaN; those become 0.
template <class Element>
HALFTONE_INLINE bool clear_non_finite(Element* row, int64_t columns) {
  const u32v high = broadcast_u32(0x7f800000u), low = broadcast_u32(0x7f80u);
  constexpr int64_t kStep = kLanes * 4 / static_cast<int64_t>(sizeof(Element));
  i32v any = {};
  for (int64_t c = 0; c < columns; c += kStep) {
    const u32v x = load_raw<u32v>(row + c);
    any |= (x & high) == high;
    if constexpr (sizeof(Element) == 2) any |= (x & low) == low;
  }
  int32_t lanes[kLanes], found = 0;
  store_raw(lanes, any);
  for (int i = 0; i < kLanes; ++i) found |= lanes[i];
  for (int64_t c = 0; found != 0 && c < columns; ++c) {
    if (!is_finite(as_float(row[c]))) row[c] = 0;
  }
  return found != 0;
}

// Keys whose V is not finite: their values are left out of the GEMM, in which P = 0 of a masked key
// would make NaN of them, and added afterwards to the rows to which they are visible.
struct NonFiniteKeys {
  int64_t count = 0;
  int16_t key[256];  // of the chunk
};

// Whether one of `count` numbers is infinite or NaN.
HALFTONE_INLINE bool has_non_finite(const float* x, int64_t count) {
  uint32_t max_magnitude = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t magnitude = bits_as<uint32_t>(x[i]) & 0x7fffffffu;
    max_magnitude = magnitude > max_magnitude ? magnitude : max_magnitude;
  }
  return max_magnitude >= 0x7f800000u;
}

// Sets element i of a row to 0, which has all bits 0 in every format.
HALFTONE_INLINE void clear_element(uint8_t* row, int bits, int64_t i) {
  if (bits < 8) {
    const int64_t at = i * bits / 8;
    const int low = static_cast<int>(i * bits % 8);
    const int mask = ((1 << bits) - 1) << low;  // its bits, of two bytes
    row[at] = static_cast<uint8_t>(row[at] & ~mask);
    if (low + bits > 8) row[at + 1] = static_cast<uint8_t>(row[at + 1] & ~(mask >> 8));
  } else {
    __builtin_memset(row + i * (bits / 8), 0, static_cast<size_t>(bits / 8));
  }
}

// A copy of V of one head, keys [begin, end), with 0 in place of values that are not finite;
// `non_finite` collects the keys that had some. Row i is at `copy` + i * row_bytes, its block
// scales behind `max_magnitude` rows; `row` is room for a dequantised one of `columns`.
template <class Element>
AttentionRows without_non_finite(const AttentionRows& v, int64_t head, int64_t value_dim,
                                 int64_t columns, int64_t first, int64_t begin, int64_t end,
                                 int64_t max_rows, uint8_t* copy, Element* row,
                                 NonFiniteKeys* non_finite) {
  const int bits = element_bits(v.format);
  const bool blocks = has_blocks(v.format);
  AttentionRows clean;
  clean.format = v.format;
  clean.data = copy;
  clean.row_bytes = value_dim * bits / 8;
  uint8_t* scales = copy + max_rows * clean.row_bytes;
  clean.scale_row_bytes = blocks ? value_dim / block_of(v.format) : 0;
  clean.scales = blocks ? scales : nullptr;
  const auto dequantise = dequantise_rows_of<Element>(v.format);
  RowCursor cursor(v, first + begin, head);
  for (int64_t i = begin; i < end; ++i) {
    const RowPointer source = cursor.next();
    uint8_t* packed = copy + i * clean.row_bytes;
    uint8_t* block = scales + i * clean.scale_row_bytes;
    __builtin_memcpy(packed, source.data, static_cast<size_t>(clean.row_bytes));
    if (blocks) __builtin_memcpy(block, source.scales, static_cast<size_t>(clean.scale_row_bytes));
    const RowToDequantise<Element> to_dequantise{source.data, source.scales, row};
    dequantise(&to_dequantise, 1, value_dim, columns);
    bool found = false;
    for (int64_t c = 0; c < value_dim; ++c) {
      if (is_finite(as_float(row[c]))) continue;
      found = true;
      clear_element(packed, bits, c);
      if (!blocks) continue;
      uint8_t& scale = block[c / block_of(v.format)];  // a NaN scale makes NaN of 0 as well
      const bool e4m3 = scale_format_of(v.format) == Format::fp8_e4m3;
      if (e4m3 ? (scale & 0x7f) == 0x7f : scale == 0xff) scale = 0;
    }
    if (found) non_finite->key[non_finite->count++] = static_cast<int16_t>(i);
  }
  return clean;
}

}  // namespace halftone::HALFTONE_LEVEL
