// Dequantisation of rows of every operand format to FP32 or BF16 on the CPU. Every product of an
// element and its block scale is exact in BF16 (at most 7 significant bits); scales of a whole row
// are applied elsewhere.
#pragma once
#include "ops/attention/cpu/fp4.h"
#include "ops/attention/cpu/fp8.h"
#include "ops/attention/cpu/kernel.h"
#include "simd/decode.h"

namespace halftone::HALFTONE_LEVEL {

HALFTONE_INLINE constexpr bool has_blocks(Format f) { return has_group_scales(f); }
HALFTONE_INLINE constexpr int64_t block_of(Format f) { return scale_group_of(f); }
HALFTONE_INLINE constexpr int element_bits(Format f) { return bits_of(f); }

// Whether Q, K or V may be in the format: plain floats, and codes that bf16 holds exactly, by
// rows or with block scales.
HALFTONE_INLINE constexpr bool is_operand(Format f) {
  return f == Format::f32 || f == Format::f16 || f == Format::bf16 || has_blocks(f) ||
         f == Format::fp8_e4m3 || f == Format::int8;
}

template <Format F>
HALFTONE_INLINE float block_scale(const uint8_t* scales, int64_t i) {
  const uint8_t code = scales[i / block_of(F)];
  if constexpr (scale_format_of(F) == Format::fp8_e4m3) return decode_e4m3(code);
  return decode_ue8m0(code);
}

// kLanes elements of a row from element i; `scales` are those of the row's blocks. A vector never
// straddles blocks: blocks are 16 or 32 long, vectors at most 16.
template <Format F>
HALFTONE_INLINE f32v dequantise(const uint8_t* row, const uint8_t* scales, int64_t i) {
  if constexpr (F == Format::f32 || F == Format::f16 || F == Format::bf16) {
    return load<F>(row, i);
  } else if constexpr (has_blocks(F)) {
    return decode<F>(row, i) * broadcast(block_scale<F>(scales, i));
  } else {
    return decode<F>(row, i);
  }
}

HALFTONE_INLINE void store_dequantised(float* out, f32v x) { store_raw(out, x); }
HALFTONE_INLINE void store_dequantised(uint16_t* out, f32v x) { store_raw(out, narrow_bf16(x)); }

// Whole blocks to BF16 without FP32 in between; returns how many elements of the row are done.
template <Format F, class Element>
HALFTONE_INLINE int64_t dequantise_blocks(const uint8_t*, const uint8_t*, int64_t, Element*) {
  return 0;
}

#if defined(__AVX512BF16__)
template <>
HALFTONE_INLINE int64_t dequantise_blocks<Format::bf16, uint16_t>(const uint8_t* row,
                                                                  const uint8_t*, int64_t count,
                                                                  uint16_t* out) {
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) store_raw(out + i, load_raw<__m512i>(row + 2 * i));
  return i;
}
template <>
HALFTONE_INLINE int64_t dequantise_blocks<Format::fp8_e4m3, uint16_t>(const uint8_t* row,
                                                                      const uint8_t*, int64_t count,
                                                                      uint16_t* out) {
  int64_t i = 0;
  for (; i + 64 <= count; i += 64) {
    bf16v pairs[2];
    decode_pairs_x2<Format::fp8_e4m3>(row, i, pairs);
    store_raw(out + i, pairs[0]);
    store_raw(out + i + 32, pairs[1]);
  }
  return i;
}
template <>
HALFTONE_INLINE int64_t dequantise_blocks<Format::nvfp4, uint16_t>(const uint8_t* row,
                                                                   const uint8_t* scales,
                                                                   int64_t count, uint16_t* out) {
  return dequantise_fp4<Format::nvfp4>(row, scales, count, out);
}
template <>
HALFTONE_INLINE int64_t dequantise_blocks<Format::mxfp4, uint16_t>(const uint8_t* row,
                                                                   const uint8_t* scales,
                                                                   int64_t count, uint16_t* out) {
  return dequantise_fp4<Format::mxfp4>(row, scales, count, out);
}
// Multiplies by adding to the exponents of the values that are not 0. Scales of 2^-64 to 2^64 keep
// every value normal; others and NaN go through FP32.
template <>
HALFTONE_INLINE int64_t dequantise_blocks<Format::mxfp8, uint16_t>(const uint8_t* row,
                                                                   const uint8_t* scales,
                                                                   int64_t count, uint16_t* out) {
  int64_t i = 0;
  for (; i + 64 <= count; i += 64) {
    const uint32_t first = scales[i / 32], second = scales[i / 32 + 1];
    const auto codes = load_raw<__m512i>(row + i);
    const __m512i magnitude = _mm512_and_si512(codes, _mm512_set1_epi8(0x7f));
    const __mmask64 nan = _mm512_cmpeq_epi8_mask(magnitude, _mm512_set1_epi8(0x7f));
    if (nan != 0 || first - 63 > 128 || second - 63 > 128) {
      for (int64_t j = i; j < i + 64; j += 16) {
        store_dequantised(out + j, dequantise<Format::mxfp8>(row, scales, j));
      }
      continue;
    }
    const __mmask64 number = _mm512_test_epi8_mask(magnitude, magnitude);
    bf16v pairs[2];
    decode_pairs_x2<Format::mxfp8>(row, i, pairs);
    const auto add = [&](int half, uint32_t scale) {
      const auto x = bits_as<__m512i>(pairs[half]);
      const __m512i shift = _mm512_set1_epi16(static_cast<short>((scale - 127) * 128));
      store_raw(out + i + 32 * half,
                _mm512_mask_add_epi16(x, static_cast<__mmask32>(number >> (32 * half)), x, shift));
    };
    add(0, first);
    add(1, second);
  }
  return i;
}
template <>
HALFTONE_INLINE int64_t dequantise_blocks<Format::int8, uint16_t>(const uint8_t* row,
                                                                  const uint8_t*, int64_t count,
                                                                  uint16_t* out) {
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    // INT8 is exact in BF16, so rounding does nothing.
    const auto first = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_raw<__m128i>(row + i)));
    const auto second = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_raw<__m128i>(row + i + 16)));
    store_raw(out + i, _mm512_cvtne2ps_pbh(second, first));
  }
  return i;
}
#endif

// `count` elements of a row to Element (float or BF16), zeros up to `padded` and beyond it to the
// end of a vector.
template <Format F, class Element>
HALFTONE_INLINE void dequantise_row(const uint8_t* row, const uint8_t* scales, int64_t count,
                                    int64_t padded, Element* out) {
  int64_t i = dequantise_blocks<F>(row, scales, count, out);
  for (; i + kLanes <= count; i += kLanes)
    store_dequantised(out + i, dequantise<F>(row, scales, i));
  if (i < count) {
    // The last elements go through a copy padded with 0, so that nothing beyond the row is read.
    alignas(64) uint8_t copy[64] = {};
    const int64_t bytes = ((count - i) * element_bits(F) + 7) / 8;
    const uint8_t* last = row + i * element_bits(F) / 8;
#if defined(__AVX512BW__)
    store_raw(copy, _mm512_maskz_loadu_epi8((1ull << bytes) - 1, last));  // bytes < 64
#else
    __builtin_memcpy(copy, last, static_cast<size_t>(bytes));
#endif
    const uint8_t* scale = has_blocks(F) ? scales + i / block_of(F) : nullptr;
    store_dequantised(out + i, dequantise<F>(copy, scale, 0));
    i += kLanes;
  }
  for (; i < padded; i += kLanes) store_dequantised(out + i, f32v{});
}

// A row to dequantise and where to.
template <class Element>
struct RowToDequantise {
  const uint8_t* data;
  const uint8_t* scales;
  Element* out;
};

template <Format F, class Element>
void dequantise_rows(const RowToDequantise<Element>* rows, int64_t row_count, int64_t count,
                     int64_t padded) {
  for (int64_t r = 0; r < row_count; ++r) {
    dequantise_row<F>(rows[r].data, rows[r].scales, count, padded, rows[r].out);
  }
}

template <class Element>
using DequantiseRows = void (*)(const RowToDequantise<Element>* rows, int64_t row_count,
                                int64_t count, int64_t padded);

// The formats that operands may have; null for others.
template <class Element>
DequantiseRows<Element> dequantise_rows_of(Format format) {
  switch (format) {
#define HALFTONE_X(name, ...)                                                              \
  case Format::name:                                                                       \
    if constexpr (is_operand(Format::name)) return dequantise_rows<Format::name, Element>; \
    return nullptr;
    HALFTONE_FORMATS(HALFTONE_X)
#undef HALFTONE_X
  }
  return nullptr;
}

}  // namespace halftone::HALFTONE_LEVEL
