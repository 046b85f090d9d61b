// E4M3 straight to bf16 in the order in which a product wants it, for levels with VDPBF16PS: the
// high and the low byte of each number are looked up, and shuffles put them together.
#pragma once
#include "simd/decode.h"

#if defined(__AVX512BF16__)
namespace halftone::HALFTONE_LEVEL {

struct Fp8Bytes {
  __m512i low, high;
};
HALFTONE_INLINE Fp8Bytes look_up_e4m3(__m512i codes) {
  const auto& t = decode_detail::kFp8Bytes<true>;
  const __m512i low =
      _mm512_permutex2var_epi8(_mm512_load_si512(t.low), codes, _mm512_load_si512(t.low + 64));
  const __m512i magnitude =
      _mm512_permutex2var_epi8(_mm512_load_si512(t.high), codes, _mm512_load_si512(t.high + 64));
  // magnitude | (codes & 0x80)
  return {low, _mm512_ternarylogic_epi32(magnitude, codes, _mm512_set1_epi8(-128), 0xf8)};
}

// A row of V.
struct Fp8Row {
  const uint8_t* codes;
};

// Columns x .. x + 63 of two rows as pairs. Unpacking works within 128-bit lanes: lane i first
// receives the codes of columns 4 i .. 4 i + 3 of every 16.
HALFTONE_INLINE void load_step(const Fp8Row* rows, int64_t x, f32v (&b)[4]) {
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const Fp8Bytes even =
      look_up_e4m3(_mm512_permutexvar_epi32(order, load_raw<__m512i>(rows[0].codes + x)));
  const Fp8Bytes odd =
      look_up_e4m3(_mm512_permutexvar_epi32(order, load_raw<__m512i>(rows[1].codes + x)));
  const __m512i even_first = _mm512_unpacklo_epi8(even.low, even.high);
  const __m512i even_last = _mm512_unpackhi_epi8(even.low, even.high);
  const __m512i odd_first = _mm512_unpacklo_epi8(odd.low, odd.high);
  const __m512i odd_last = _mm512_unpackhi_epi8(odd.low, odd.high);
  b[0] = bits_as<f32v>(_mm512_unpacklo_epi16(even_first, odd_first));
  b[1] = bits_as<f32v>(_mm512_unpackhi_epi16(even_first, odd_first));
  b[2] = bits_as<f32v>(_mm512_unpacklo_epi16(even_last, odd_last));
  b[3] = bits_as<f32v>(_mm512_unpackhi_epi16(even_last, odd_last));
}

// x: 4 codes of each of 16 rows. Two steps of pairs to out and out + stride.
HALFTONE_INLINE void expand_fp8_columns(__m512i x, uint32_t* out, int64_t stride) {
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
  const Fp8Bytes bytes = look_up_e4m3(x);
  const __m512i first = load_raw<__m512i>(kOrder.byte);
  const __m512i second = _mm512_add_epi8(first, _mm512_set1_epi8(2));
  store_raw(out, _mm512_permutex2var_epi8(bytes.low, first, bytes.high));
  store_raw(out + stride, _mm512_permutex2var_epi8(bytes.low, second, bytes.high));
}

}  // namespace halftone::HALFTONE_LEVEL
#endif
