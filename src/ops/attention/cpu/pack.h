// Packs K and V of a chunk into the B layout of gemm.h: each cache row is read and dequantised once
// per KV head and then serves every query of the tile and every head of the group.
#pragma once
#include "ops/attention/cpu/non_finite.h"
#include "ops/attention/cpu/transpose.h"

namespace halftone::HALFTONE_LEVEL {

// Rows that need no dequantisation are read in place, if whole vectors of `multiple` fill them.
template <class Dot>
HALFTONE_INLINE bool reads_in_place(const AttentionRows& rows, int64_t count, int64_t multiple) {
  return rows.format == (Dot::kPair == 2 ? Format::bf16 : Format::f32) && count % multiple == 0;
}

// Packs keys [first, first + kPanel) with the keys in the lanes; keys outside [low, high) become 0.
// `rows` is scratch for kLanes rows of `stride` 32-bit elements (a multiple of kLanes).
// `prefetcher` is stepped by `lines` for every square of kLanes keys and steps.
template <class Dot>
void pack_keys(const AttentionRows& k, int64_t head, int64_t head_dim, int64_t first, int64_t low,
               int64_t high, uint32_t* panel, float* key_scales, uint32_t* rows, int64_t stride,
               Prefetcher* prefetcher = nullptr, int64_t lines = 0) {
  using Element = typename Dot::Element;
  const int64_t steps = (head_dim + Dot::kPair - 1) / Dot::kPair;
  const auto dequantise = dequantise_rows_of<Element>(k.format);
  const bool scaled = has_row_scales(k);
  const bool fp4 = element_of(k.format) == halftone::Element::e2m1;
  const bool fp8 = k.format == Format::fp8_e4m3;
  const bool quantised =
      Dot::kPair == 2 && ((fp4 && head_dim % 64 == 0) || (fp8 && head_dim % 32 == 0));
  const bool mxfp8 = Dot::kPair == 2 && k.format == Format::mxfp8 && head_dim % 32 == 0;
#if defined(__AVX512F__)
  const bool f16 = Dot::kPair == 1 && k.format == Format::f16 && head_dim % 16 == 0;
#else
  const bool f16 = false;
#endif
  const bool int8 = Dot::kPair == 2 && k.format == Format::int8 && head_dim % 32 == 0;
  const bool in_place =
      quantised || mxfp8 || int8 || f16 || reads_in_place<Dot>(k, head_dim, kLanes * Dot::kPair);
  RowCursor cursor(k, first < low ? low : first, head);
  for (int v = 0; v < kVectors; ++v) {
    const uint8_t* lane_row[kLanes];
    [[maybe_unused]] const uint8_t* lane_scales[kLanes];
    RowToDequantise<Element> to_dequantise[kLanes];
    int64_t dequantised = 0;
    const int64_t first_key = first + v * kLanes;
    RowPointer start;
    const bool contiguous = in_place && first_key >= low && first_key + kLanes <= high &&
                            cursor.next_contiguous(kLanes, &start);
    for (int j = 0; contiguous && j < kLanes; ++j) {
      lane_row[j] = start.data + j * k.row_bytes;
      lane_scales[j] = start.scales == nullptr ? nullptr : start.scales + j * k.scale_row_bytes;
      if (scaled) std::memcpy(&key_scales[v * kLanes + j], lane_scales[j], 4);
    }
    for (int j = 0; !contiguous && j < kLanes; ++j) {
      const int64_t key = first_key + j;
      uint32_t* row = rows + j * stride;
      lane_scales[j] = lane_row[j] = reinterpret_cast<const uint8_t*>(row);
      if (key < low || key >= high) {
        __builtin_memset(row, 0, static_cast<size_t>(stride) * 4);
        if (scaled) key_scales[v * kLanes + j] = 0;
        continue;
      }
      const RowPointer source = cursor.next();
      if (in_place) {
        lane_row[j] = source.data;
        lane_scales[j] = source.scales;
      } else {
        to_dequantise[dequantised++] = {source.data, source.scales,
                                        reinterpret_cast<Element*>(row)};
      }
      if (scaled) std::memcpy(&key_scales[v * kLanes + j], source.scales, 4);
    }
#if defined(__AVX512BF16__)
    if (quantised) {
      const auto pack = fp8                          ? pack_fp8
                        : has_tensor_scale(k.format) ? pack_fp4<Format::nvfp4>
                                                     : pack_fp4<Format::mxfp4>;
      pack(lane_row, lane_scales, head_dim, panel + v * kLanes, prefetcher, lines);
      continue;
    }
    if (mxfp8 || int8) {
      uint32_t* out = panel + v * kLanes;
      if (int8 ? pack_bytes<true>(lane_row, head_dim, out, prefetcher, lines)
               : pack_mxfp8(lane_row, lane_scales, head_dim, out, prefetcher, lines)) {
        continue;
      }
      for (int j = 0; j < kLanes; ++j) {
        auto* row = reinterpret_cast<Element*>(rows + j * stride);
        const auto* bytes = reinterpret_cast<const uint8_t*>(row);
        if (lane_row[j] != bytes) to_dequantise[dequantised++] = {lane_row[j], lane_scales[j], row};
        lane_row[j] = bytes;
      }
    }
#endif
#if defined(__AVX512F__)
    if (f16) {
      pack_f16(lane_row, head_dim, panel + v * kLanes, prefetcher, lines);
      continue;
    }
#endif
    if (dequantised > 0) dequantise(to_dequantise, dequantised, head_dim, steps * Dot::kPair);
    for (int64_t d = 0; d < steps; d += kLanes) {
      uint32_t* out = panel + d * kPanel + v * kLanes;
      if (prefetcher != nullptr) prefetcher->step(lines);
      if (d + kLanes <= steps) {
        transpose_square(lane_row, 4 * d, out, kPanel);
      } else {
        alignas(64) uint32_t square[kLanes * kLanes];
        transpose_square(lane_row, 4 * d, square, kLanes);
        for (int64_t i = 0; i < steps - d; ++i) {
          store_raw(out + i * kPanel, load_raw<u32v>(square + i * kLanes));
        }
      }
    }
  }
}

#if defined(__AVX512BF16__)
// kPanel columns of two rows of BF16 as pairs: element i of the result is (even[i], odd[i]).
HALFTONE_INLINE void interleave(const uint16_t* even, const uint16_t* odd,
                                f32v (&pairs)[kVectors]) {
  alignas(64) static constexpr uint16_t kLow[32] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                                    37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                                    11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i low = load_raw<__m512i>(kLow);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const auto a = load_raw<__m512i>(even + 32 * i), b = load_raw<__m512i>(odd + 32 * i);
    pairs[2 * i] = bits_as<f32v>(_mm512_permutex2var_epi16(a, low, b));
    pairs[2 * i + 1] = bits_as<f32v>(_mm512_permutex2var_epi16(a, high, b));
  }
}
#endif

// Packs keys [first, first + count) of V with its columns in the lanes: panel p of kPanel columns
// is at `packed` + p * panel_stride, its row of step s at + s * kPanel, s counting from `first`.
// count is even; keys outside [low, high) become 0. `rows` is scratch for two rows of `columns`
// elements. `non_finite`, if not null, collects the keys whose V is not finite, counted from
// `chunk`.
template <class Dot>
void pack_values(const AttentionRows& v, int64_t head, int64_t value_dim, int64_t columns,
                 int64_t first, int64_t count, int64_t low, int64_t high, uint32_t* packed,
                 int64_t panel_stride, float* value_scales, uint32_t* rows,
                 NonFiniteKeys* non_finite = nullptr, int64_t chunk = 0) {
  using Element = typename Dot::Element;
  const auto dequantise = dequantise_rows_of<Element>(v.format);
  const bool scaled = has_row_scales(v);
  const bool in_place = non_finite == nullptr && reads_in_place<Dot>(v, value_dim, kPanel);
  RowCursor cursor(v, first < low ? low : first, head);
  for (int64_t i = 0; i < count; i += Dot::kPair) {
    const Element* row[Dot::kPair];
    for (int j = 0; j < Dot::kPair; ++j) {
      const int64_t key = first + i + j;
      auto* dequantised = reinterpret_cast<Element*>(rows) + j * columns;
      row[j] = dequantised;
      if (key < low || key >= high) {
        __builtin_memset(dequantised, 0, static_cast<size_t>(columns) * sizeof(Element));
        if (scaled) value_scales[i + j] = 0;
        continue;
      }
      const RowPointer source = cursor.next();
      if (scaled) std::memcpy(&value_scales[i + j], source.scales, 4);
      if (in_place) {
        row[j] = reinterpret_cast<const Element*>(source.data);
        continue;
      }
      const RowToDequantise<Element> to_dequantise{source.data, source.scales, dequantised};
      dequantise(&to_dequantise, 1, value_dim, columns);
      if (non_finite != nullptr && clear_non_finite(dequantised, columns)) {
        non_finite->key[non_finite->count++] = static_cast<int16_t>(key - chunk);
      }
    }
    uint32_t* out = packed + i / Dot::kPair * kPanel;
    for (int64_t c = 0; c < columns; c += kPanel, out += panel_stride) {
      if constexpr (Dot::kPair == 1) {
        __builtin_memcpy(out, row[0] + c, kPanel * 4);
      } else {
        f32v pairs[kVectors];
        interleave(row[0] + c, row[1] + c, pairs);
        for (int x = 0; x < kVectors; ++x) store_raw(out + x * kLanes, pairs[x]);
      }
    }
  }
}

}  // namespace halftone::HALFTONE_LEVEL
