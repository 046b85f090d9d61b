// E4M3 straight to BF16 in the order of the dot products, for ISA levels with VDPBF16PS: the high
// and the low byte of each value are looked up, and shuffles put them together.
#pragma once
#include "ops/attention/cpu/scales.h"

#if defined(__AVX512BF16__)
namespace halftone::HALFTONE_LEVEL {

struct Fp8Bytes {
  __m512i low, high, magnitude;
};
HALFTONE_INLINE Fp8Bytes look_up_e4m3(__m512i packed) {
  const auto& t = decode_detail::kFp8Bytes<true>;
  const __m512i low =
      _mm512_permutex2var_epi8(_mm512_load_si512(t.low), packed, _mm512_load_si512(t.low + 64));
  const __m512i magnitude =
      _mm512_permutex2var_epi8(_mm512_load_si512(t.high), packed, _mm512_load_si512(t.high + 64));
  // magnitude | (packed & 0x80)
  return {low, _mm512_ternarylogic_epi32(magnitude, packed, _mm512_set1_epi8(-128), 0xf8),
          magnitude};
}

// INT8 the same way, by magnitude; -128 has none in the table.
HALFTONE_INLINE Fp8Bytes look_up_int8(__m512i packed) {
  const auto& t = decode_detail::kInt8Bytes;
  const __m512i magnitude = _mm512_abs_epi8(packed);
  const __m512i low =
      _mm512_permutex2var_epi8(_mm512_load_si512(t.low), magnitude, _mm512_load_si512(t.low + 64));
  const __m512i high = _mm512_permutex2var_epi8(_mm512_load_si512(t.high), magnitude,
                                                _mm512_load_si512(t.high + 64));
  return {low, _mm512_ternarylogic_epi32(high, packed, _mm512_set1_epi8(-128), 0xf8), magnitude};
}
template <bool kInt8>
HALFTONE_INLINE Fp8Bytes look_up(__m512i packed) {
  if constexpr (kInt8) return look_up_int8(packed);
  return look_up_e4m3(packed);
}

// x: 4 values of each of 16 rows, to two steps of pairs.
template <bool kInt8 = false>
HALFTONE_INLINE __m512i dequantise_fp8_columns(__m512i x, __m512i (&step)[2]) {
  // Byte 4 i + (0, 1, 2, 3) of the first step is low[4 i], high[4 i], low[4 i + 1], high[4 i + 1].
  alignas(64) static constexpr auto kOrder = [] {
    struct Order {
      uint8_t byte[64];
    } order{};
    for (int i = 0; i < 64; ++i) {
      order.byte[i] = static_cast<uint8_t>(i / 4 * 4 + i % 4 / 2 + (i % 2) * 64);
    }
    return order;
  }();
  const Fp8Bytes bytes = look_up<kInt8>(x);
  const __m512i first = load_raw<__m512i>(kOrder.byte);
  const __m512i second = _mm512_add_epi8(first, _mm512_set1_epi8(2));
  step[0] = _mm512_permutex2var_epi8(bytes.low, first, bytes.high);
  step[1] = _mm512_permutex2var_epi8(bytes.low, second, bytes.high);
  return bytes.magnitude;
}

// MXFP8 multiplies by adding to the exponents of the values that are not 0. Scales of 2^-64 to 2^64
// keep every value normal; others and NaN go through FP32.
HALFTONE_INLINE __m512i add_exponent(__m512i words, __m512i shift) {
  const __mmask32 number = _mm512_test_epi16_mask(words, _mm512_set1_epi16(0x7fff));
  return _mm512_mask_add_epi16(words, number, words, shift);
}
HALFTONE_INLINE bool shifts_exponents(__m128i least, __m128i most) {
  const __m128i below = _mm_min_epu8(least, _mm_set1_epi8(63));
  const __m128i above = _mm_max_epu8(most, _mm_set1_epi8(static_cast<char>(191)));
  return _mm_movemask_epi8(_mm_cmpeq_epi8(below, _mm_set1_epi8(63)) &
                           _mm_cmpeq_epi8(above, _mm_set1_epi8(static_cast<char>(191)))) == 0xffff;
}

}  // namespace halftone::HALFTONE_LEVEL
#endif
