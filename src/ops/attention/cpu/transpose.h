// Transposes 16 keys (or as many as there are lanes) from rows to lanes: elements as stored, or
// quantised values, which are fewer bytes, dequantised afterwards.
#pragma once
#include "ops/attention/cpu/gemm.h"
#include "ops/attention/cpu/rows.h"

namespace halftone::HALFTONE_LEVEL {

#if !defined(__AVX512F__)
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
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; ++i) {
    if ((i & kStep) != 0) continue;
    const u32v a = x[i], b = x[i + kStep];
    if constexpr (kLanes == 8) {
      x[i] = swap_blocks<kStep, false, 0, 1, 2, 3, 4, 5, 6, 7>(a, b);
      x[i + kStep] = swap_blocks<kStep, true, 0, 1, 2, 3, 4, 5, 6, 7>(a, b);
    } else {
      x[i] = swap_blocks<kStep, false, 0, 1, 2, 3>(a, b);
      x[i + kStep] = swap_blocks<kStep, true, 0, 1, 2, 3>(a, b);
    }
  }
}

#endif

#if defined(__AVX512F__)
// 16 rows of 8 elements of 32 bits: out + i * stride receives element i of every row. Rows are
// paired as they are loaded, so that three steps of shuffles without index vectors remain. kF16:
// the elements are FP16 and become FP32.
template <bool kF16 = false>
HALFTONE_INLINE void transpose_half(const uint8_t* const* rows, int64_t offset, uint32_t* out,
                                    int64_t stride) {
  const auto pair = [&](int first, int second) {
    if constexpr (kF16) {
      const auto low = load_raw<__m128i>(rows[first] + offset);
      const auto high = load_raw<__m128i>(rows[second] + offset);
      return bits_as<__m512i>(
          _mm512_cvtph_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1)));
    }
    const auto low = load_raw<__m256i>(rows[first] + offset);
    const auto high = load_raw<__m256i>(rows[second] + offset);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  };
  __m512i x[2][4];  // column quads of rows r, r + 4, r + 8, r + 12
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) {
    const __m512i a = pair(r, r + 4), b = pair(r + 8, r + 12);
    x[0][r] = _mm512_shuffle_i32x4(a, b, 0x88);
    x[1][r] = _mm512_shuffle_i32x4(a, b, 0xdd);
  }
#pragma GCC unroll 2
  for (int q = 0; q < 2; ++q) {
    const __m512i low01 = _mm512_unpacklo_epi32(x[q][0], x[q][1]);
    const __m512i low23 = _mm512_unpacklo_epi32(x[q][2], x[q][3]);
    const __m512i high01 = _mm512_unpackhi_epi32(x[q][0], x[q][1]);
    const __m512i high23 = _mm512_unpackhi_epi32(x[q][2], x[q][3]);
    uint32_t* to = out + 4 * q * stride;
    store_raw(to, _mm512_unpacklo_epi64(low01, low23));
    store_raw(to + stride, _mm512_unpackhi_epi64(low01, low23));
    store_raw(to + 2 * stride, _mm512_unpacklo_epi64(high01, high23));
    store_raw(to + 3 * stride, _mm512_unpackhi_epi64(high01, high23));
  }
}

HALFTONE_INLINE void transpose_square(const uint8_t* const* rows, int64_t offset, uint32_t* out,
                                      int64_t stride) {
  transpose_half(rows, offset, out, stride);
  transpose_half(rows, offset + 32, out + 8 * stride, stride);
}
#else
HALFTONE_INLINE void transpose_square(const uint8_t* const* rows, int64_t offset, uint32_t* out,
                                      int64_t stride) {
  u32v x[kLanes];
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; ++i) x[i] = load_raw<u32v>(rows[i] + offset);
  if constexpr (kLanes >= 8) transpose_step<4>(x);
  transpose_step<2>(x);
  transpose_step<1>(x);
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; ++i) store_raw(out + i * stride, x[i]);
}
#endif

#if defined(__AVX512F__)
// 16 keys in FP16 to FP32, converted as they are loaded. head_dim is a multiple of 16.
static inline void pack_f16(const uint8_t* const* rows, int64_t head_dim, uint32_t* out,
                            Prefetcher* prefetcher, int64_t lines) {
  for (int64_t d = 0; d < head_dim; d += 16) {
    if (prefetcher != nullptr) prefetcher->step(lines);
    transpose_half<true>(rows, 2 * d, out + d * kPanel, kPanel);
    transpose_half<true>(rows, 2 * d + 16, out + (d + 8) * kPanel, kPanel);
  }
}
#endif

#if defined(__AVX512BF16__)
// Whether the scales of `blocks` blocks, eight at most, of 16 keys only change exponents.
HALFTONE_INLINE bool shift_exponents(const EncodedScales& scale, int64_t blocks) {
  __m128i least = scale.encoded[0], most = scale.encoded[0];
  for (int64_t i = 1; i < (blocks < 8 ? blocks : 8); ++i) {
    least = _mm_min_epu8(least, scale.encoded[i]);
    most = _mm_max_epu8(most, scale.encoded[i]);
  }
  return shifts_exponents(least, most);
}
HALFTONE_INLINE __m512i exponent_shift(__m128i scale_codes) {
  const __m512i code = _mm512_cvtepu8_epi32(scale_codes);
  const __m512i both = code | _mm512_slli_epi32(code, 16);
  return _mm512_slli_epi16(_mm512_sub_epi16(both, _mm512_set1_epi16(127)), 7);
}

// As pack_fp4 with the scale added to the exponents; false if a scale needs a multiplication.
static inline bool pack_mxfp4(const uint8_t* const* packed, const uint8_t* const* scales,
                              int64_t head_dim, uint32_t* out, Prefetcher* prefetcher,
                              int64_t lines) {
  EncodedScales scale;
  for (int64_t d = 0; d < head_dim; d += 64) {
    if (d % 256 == 0) {
      load_encoded_scales(scales, d / 32, (head_dim - d) / 32, &scale);
      if (!shift_exponents(scale, (head_dim - d) / 32)) return false;
    }
    const __m512i shifts[2] = {exponent_shift(scale.encoded[d / 32 % 8]),
                               exponent_shift(scale.encoded[d / 32 % 8 + 1])};
    alignas(64) uint32_t columns[8 * 16];
    transpose_half(packed, d / 2, columns, 16);
    if (prefetcher != nullptr) prefetcher->step(2 * lines);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      shift_columns(load_raw<__m512i>(columns + 16 * i), shifts[i / 4],
                    out + (d / 2 + 4 * i) * kPanel, kPanel);
    }
  }
  return true;
}

// 16 keys in E2M1: the packed values are transposed, a quarter of the dequantised bytes, and
// dequantised afterwards. head_dim is a multiple of 64.
template <Format F>
void pack_fp4(const uint8_t* const* packed, const uint8_t* const* scales, int64_t head_dim,
              uint32_t* out, Prefetcher* prefetcher, int64_t lines) {
  constexpr int64_t kBlock = scale_group_of(F);
  if constexpr (has_power_of_two_scales(F)) {
    if (pack_mxfp4(packed, scales, head_dim, out, prefetcher, lines)) return;
  }
  Fp4Scales scale;
  for (int64_t d = 0; d < head_dim; d += 64) {
    if (d % (8 * kBlock) == 0) {
      load_scales<F>(scales, d / kBlock, (head_dim - d) / kBlock, &scale);
    }
    alignas(64) uint32_t columns[8 * 16];
    transpose_half(packed, d / 2, columns, 16);
    if (prefetcher != nullptr) prefetcher->step(2 * lines);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      dequantise_columns(load_raw<u32v>(columns + 16 * i), scale.value[(d + 8 * i) / kBlock % 8],
                         out + (d / 2 + 4 * i) * kPanel, kPanel);
    }
  }
}

// 16 keys in E4M3 or INT8, likewise; false if an INT8 is -128. head_dim is a multiple of 32.
template <bool kInt8>
HALFTONE_INLINE bool pack_bytes(const uint8_t* const* packed, int64_t head_dim, uint32_t* out,
                                Prefetcher* prefetcher, int64_t lines) {
  __m512i most = _mm512_setzero_si512();
  for (int64_t d = 0; d < head_dim; d += 32) {
    alignas(64) uint32_t columns[8 * 16];
    transpose_half(packed, d, columns, 16);
    if (prefetcher != nullptr) prefetcher->step(lines);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      __m512i step[2];
      const __m512i magnitude =
          dequantise_fp8_columns<kInt8>(load_raw<__m512i>(columns + 16 * i), step);
      if constexpr (kInt8) most = _mm512_max_epu8(most, magnitude);
      store_raw(out + (d / 2 + 2 * i) * kPanel, step[0]);
      store_raw(out + (d / 2 + 2 * i + 1) * kPanel, step[1]);
    }
  }
  return _mm512_movepi8_mask(most) == 0;
}
static inline void pack_fp8(const uint8_t* const* packed, const uint8_t* const*, int64_t head_dim,
                            uint32_t* out, Prefetcher* prefetcher, int64_t lines) {
  pack_bytes<false>(packed, head_dim, out, prefetcher, lines);
}

// 16 keys in MXFP8, likewise; false if a value or a scale has to go through FP32.
static inline bool pack_mxfp8(const uint8_t* const* packed, const uint8_t* const* scales,
                              int64_t head_dim, uint32_t* out, Prefetcher* prefetcher,
                              int64_t lines) {
  EncodedScales scale;
  __m512i most = _mm512_setzero_si512();
  for (int64_t d = 0; d < head_dim; d += 32) {
    if (d % 256 == 0) {
      const int64_t left = (head_dim - d) / 32;
      load_encoded_scales(scales, d / 32, left, &scale);
      if (!shift_exponents(scale, left)) return false;
    }
    const __m512i shift = exponent_shift(scale.encoded[d / 32 % 8]);
    alignas(64) uint32_t columns[8 * 16];
    transpose_half(packed, d, columns, 16);
    if (prefetcher != nullptr) prefetcher->step(lines);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      __m512i step[2];
      most =
          _mm512_max_epu8(most, dequantise_fp8_columns(load_raw<__m512i>(columns + 16 * i), step));
      store_raw(out + (d / 2 + 2 * i) * kPanel, add_exponent(step[0], shift));
      store_raw(out + (d / 2 + 2 * i + 1) * kPanel, add_exponent(step[1], shift));
    }
  }
  // The upper byte of NaN is 0x7f, that of numbers at most 0x43; the sign is not in it.
  return _mm512_cmpeq_epi8_mask(most & _mm512_set1_epi8(0x7f), _mm512_set1_epi8(0x7f)) == 0;
}
#endif

}  // namespace halftone::HALFTONE_LEVEL
