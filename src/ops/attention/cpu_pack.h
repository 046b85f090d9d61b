// K and V of a chunk in the layout of cpu_multiply.h: each cache row is read and expanded once per
// KV head and then serves every query of the tile and every head of the group.
#pragma once
#include "ops/attention/cpu_expand.h"
#include "ops/attention/cpu_multiply.h"

namespace halftone::HALFTONE_LEVEL {

// Row `key` and its scales.
struct RowPointer {
  const uint8_t* data;
  const uint8_t* scales;
};
HALFTONE_INLINE RowPointer row_of(const AttentionRows& rows, int64_t key) {
  int64_t page = 0, row = key;
  if (rows.pages != nullptr) {
    page = rows.pages[key / rows.page_size];
    row = key % rows.page_size;
  }
  const uint8_t* scales = rows.scales;
  if (scales != nullptr) scales += page * rows.scale_page_bytes + row * rows.scale_row_bytes;
  return {rows.data + page * rows.page_bytes + row * rows.row_bytes, scales};
}

HALFTONE_INLINE bool has_row_scales(const AttentionRows& rows) {
  return rows.scales != nullptr && !has_blocks(rows.format);
}

template <int kStep, bool kHigh, int... kLane>
HALFTONE_INLINE u32v swap_blocks(u32v a, u32v b) {
  if constexpr (kHigh) {
    return __builtin_shufflevector(a, b, ((kLane & kStep) ? kLanes + kLane : kLane + kStep)...);
  } else {
    return __builtin_shufflevector(a, b, ((kLane & kStep) ? kLanes + kLane - kStep : kLane)...);
  }
}

template <int kStep>
HALFTONE_INLINE void transpose_step(u32v (&x)[kLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if ((i & kStep) != 0) continue;
    const u32v a = x[i], b = x[i + kStep];
    if constexpr (kLanes == 16) {
      x[i] = swap_blocks<kStep, false, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15>(a, b);
      x[i + kStep] =
          swap_blocks<kStep, true, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15>(a, b);
    } else if constexpr (kLanes == 8) {
      x[i] = swap_blocks<kStep, false, 0, 1, 2, 3, 4, 5, 6, 7>(a, b);
      x[i + kStep] = swap_blocks<kStep, true, 0, 1, 2, 3, 4, 5, 6, 7>(a, b);
    } else {
      x[i] = swap_blocks<kStep, false, 0, 1, 2, 3>(a, b);
      x[i + kStep] = swap_blocks<kStep, true, 0, 1, 2, 3>(a, b);
    }
  }
}

// Square of kLanes rows of 32-bit elements, transposed in place.
HALFTONE_INLINE void transpose(u32v (&x)[kLanes]) {
  if constexpr (kLanes >= 16) transpose_step<8>(x);
  if constexpr (kLanes >= 8) transpose_step<4>(x);
  transpose_step<2>(x);
  transpose_step<1>(x);
}

// Keys [first, first + kPanel) with the keys in the lanes; keys outside [low, high) become 0.
// `rows` is scratch for kLanes rows of `stride` 32-bit elements (a multiple of kLanes).
template <class Products>
void pack_keys(const AttentionRows& k, int64_t head_dim, int64_t first, int64_t low, int64_t high,
               uint32_t* panel, float* key_scales, uint32_t* rows, int64_t stride) {
  using Element = typename Products::Element;
  const int64_t steps = (head_dim + Products::kPair - 1) / Products::kPair;
  const auto expand = expand_row_of<Element>(k.format);
  const bool scaled = has_row_scales(k);
  for (int v = 0; v < kVectors; ++v) {
    for (int j = 0; j < kLanes; ++j) {
      const int64_t key = first + v * kLanes + j;
      uint32_t* row = rows + j * stride;
      if (key < low || key >= high) {
        __builtin_memset(row, 0, static_cast<size_t>(stride) * 4);
        if (scaled) key_scales[v * kLanes + j] = 0;
        continue;
      }
      const RowPointer source = row_of(k, key);
      expand(source.data, source.scales, head_dim, steps * Products::kPair,
             reinterpret_cast<Element*>(row));
      if (scaled) std::memcpy(&key_scales[v * kLanes + j], source.scales, 4);
    }
    for (int64_t d = 0; d < steps; d += kLanes) {
      u32v block[kLanes];
#pragma GCC unroll 16
      for (int j = 0; j < kLanes; ++j) block[j] = load_raw<u32v>(rows + j * stride + d);
      transpose(block);
      uint32_t* out = panel + d * kPanel + v * kLanes;
      if (d + kLanes <= steps) {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) store_raw(out + i * kPanel, block[i]);
      } else {
        u32v rest[kLanes];  // indexed at run time, so not the registers
        for (int i = 0; i < kLanes; ++i) rest[i] = block[i];
        for (int64_t i = 0; i < steps - d; ++i) store_raw(out + i * kPanel, rest[i]);
      }
    }
  }
}

// Two rows of bf16 as pairs: element i of the result is (even[i], odd[i]).
HALFTONE_INLINE void interleave(const uint16_t* even, const uint16_t* odd, uint32_t* out) {
  const u32v low = __builtin_convertvector(load_raw<u16v>(even), u32v);
  const u32v high = __builtin_convertvector(load_raw<u16v>(odd), u32v);
  store_raw(out, low | (high << 16));
}

// Keys [first, first + count) of V with its columns in the lanes: panel p of kPanel columns is at
// `packed` + p * panel_stride, its row of step s at + s * kPanel, s counting from `first`. count is
// even; keys outside [low, high) become 0. `rows` is scratch for two rows of `columns` elements.
template <class Products>
void pack_values(const AttentionRows& v, int64_t value_dim, int64_t columns, int64_t first,
                 int64_t count, int64_t low, int64_t high, uint32_t* packed, int64_t panel_stride,
                 float* value_scales, uint32_t* rows) {
  using Element = typename Products::Element;
  const auto expand = expand_row_of<Element>(v.format);
  const bool scaled = has_row_scales(v);
  auto* row = reinterpret_cast<Element*>(rows);
  for (int64_t i = 0; i < count; i += Products::kPair) {
    for (int j = 0; j < Products::kPair; ++j) {
      const int64_t key = first + i + j;
      if (key < low || key >= high) {
        __builtin_memset(row + j * columns, 0, static_cast<size_t>(columns) * sizeof(Element));
        if (scaled) value_scales[i + j] = 0;
        continue;
      }
      const RowPointer source = row_of(v, key);
      expand(source.data, source.scales, value_dim, columns, row + j * columns);
      if (scaled) std::memcpy(&value_scales[i + j], source.scales, 4);
    }
    uint32_t* out = packed + i / Products::kPair * kPanel;
    for (int64_t c = 0; c < columns; c += kPanel, out += panel_stride) {
      if constexpr (Products::kPair == 1) {
        __builtin_memcpy(out, row + c, kPanel * 4);
      } else {
        for (int x = 0; x < kPanel; x += kLanes) {
          interleave(row + c + x, row + columns + c + x, out + x);
        }
      }
    }
  }
}

}  // namespace halftone::HALFTONE_LEVEL
