// Codes to BF16 pairs; part of simd/decode.h.
#pragma once
#include "simd/decode_lanes.h"
#include "simd/decode_tables.h"

namespace halftone::HALFTONE_LEVEL {

typedef uint16_t bf16v __attribute__((vector_size(kLanes * 4)));  // 2 * kLanes BF16 numbers

// The upper halves of two vectors of floats whose lower halves are 0.
HALFTONE_INLINE bf16v join_bf16(f32v first, f32v second) {
#if defined(__AVX512F__)
  __m512i order;
  alignas(64) uint16_t index[32];
  for (int i = 0; i < 32; ++i) index[i] = static_cast<uint16_t>(2 * i + 1);
  std::memcpy(&order, index, sizeof order);
  return bits_as<bf16v>(
      _mm512_permutex2var_epi16(bits_as<__m512i>(first), order, bits_as<__m512i>(second)));
#else
  const u16v halves[2] = {narrow_u16(bits_as<u32v>(first) >> 16),
                          narrow_u16(bits_as<u32v>(second) >> 16)};
  bf16v result;
  std::memcpy(&result, halves, sizeof result);
  return result;
#endif
}

#if defined(__AVX512BW__)
namespace decode_detail {
// 32 nibbles of 16 bytes at the bottom of 16-bit lanes, other bits above them.
HALFTONE_INLINE __m512i spread_nibbles(const uint8_t* packed) {
  const __m512i bytes = _mm512_cvtepu8_epi32(
      _mm_loadu_si128(static_cast<const __m128i*>(static_cast<const void*>(packed))));
  return _mm512_or_si512(bytes, _mm512_slli_epi32(bytes, 12));
}
}  // namespace decode_detail
#endif

HALFTONE_INLINE bf16v decode_int4_pairs(const void* codes, int64_t i, int zero) {
#if defined(__AVX512BW__)
  const __m512i spread = decode_detail::spread_nibbles(static_cast<const uint8_t*>(codes) + i / 2);
  return bits_as<bf16v>(lookup_int4(spread, _mm512_set1_epi16(static_cast<short>(15 - zero))));
#else
  return join_bf16(decode_int4(codes, i, zero), decode_int4(codes, i + kLanes, zero));
#endif
}

template <Format F>
HALFTONE_INLINE bf16v decode_pairs(const void* codes, int64_t i) {
#if defined(__AVX512BW__)
  const auto* bytes = static_cast<const uint8_t*>(codes);
  if constexpr (is_four_bits(F)) {
    return bits_as<bf16v>(lookup_nibbles<F>(decode_detail::spread_nibbles(bytes + i / 2)));
  } else if constexpr (element_of(F) == Element::e4m3) {
    const __m512i code = _mm512_cvtepu8_epi16(
        _mm256_loadu_si256(static_cast<const __m256i*>(static_cast<const void*>(bytes + i))));
    const __m512i magnitude = _mm512_and_si512(code, _mm512_set1_epi16(0x7f));
    const __mmask32 small = _mm512_testn_epi16_mask(code, _mm512_set1_epi16(0x78));
    const __mmask32 nan = _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(0x7f));
    __m512i word = _mm512_add_epi16(_mm512_slli_epi16(magnitude, 4), _mm512_set1_epi16(120 << 7));
    word = _mm512_mask_permutexvar_epi16(word, small, magnitude,
                                         _mm512_load_si512(decode_detail::kE4m3Words.entry));
    word = _mm512_mask_mov_epi16(word, nan, _mm512_set1_epi16(0x7fc0));
    const __m512i sign = _mm512_slli_epi16(_mm512_srli_epi16(code, 7), 15);
    return bits_as<bf16v>(_mm512_or_si512(word, sign));
  } else {
    return join_bf16(decode<F>(codes, i), decode<F>(codes, i + kLanes));
  }
#else
  return join_bf16(decode<F>(codes, i), decode<F>(codes, i + kLanes));
#endif
}

#if defined(__AVX512VBMI__)
// 64 codes of 8 bits, in order.
template <Format F>
HALFTONE_INLINE void bytes_to_pairs(__m512i codes, bf16v out[2]) {
  // Unpacking works within 128-bit lanes: bring the eight bytes that each lane needs there first.
  const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  __m512i high, low;
  lookup_bytes<F>(_mm512_permutexvar_epi64(order, codes), &high, &low);
  out[0] = bits_as<bf16v>(_mm512_unpacklo_epi8(low, high));
  out[1] = bits_as<bf16v>(_mm512_unpackhi_epi8(low, high));
}
#endif

template <Format F>
HALFTONE_INLINE void decode_pairs_x2(const void* codes, int64_t i, bf16v out[2]) {
#if defined(__AVX512VBMI__)
  if constexpr (bits_of(F) == 8) {
    return bytes_to_pairs<F>(_mm512_loadu_si512(static_cast<const uint8_t*>(codes) + i), out);
  }
#endif
  out[0] = decode_pairs<F>(codes, i);
  out[1] = decode_pairs<F>(codes, i + 2 * kLanes);
}

}  // namespace halftone::HALFTONE_LEVEL
