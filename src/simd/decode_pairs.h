// Codes to BF16 pairs; part of simd/decode.h.
#pragma once
#include "simd/decode_lanes.h"

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
struct WordTable {
  alignas(64) uint16_t entry[32];
};
// BF16 of the E2M1 codes, twice, so that bit 4 of an index does not matter.
constexpr WordTable e2m1_words() {
  WordTable t{};
  for (int i = 0; i < 32; ++i) t.entry[i] = encode_bf16(decode_e2m1(static_cast<uint8_t>(i & 15)));
  return t;
}
// BF16 of -15 .. 16.
constexpr WordTable integer_words() {
  WordTable t{};
  for (int i = 0; i < 32; ++i) t.entry[i] = encode_bf16(static_cast<float>(i - 15));
  return t;
}
// BF16 of the subnormal E4M3 codes.
constexpr WordTable e4m3_words() {
  WordTable t{};
  for (int i = 0; i < 8; ++i) t.entry[i] = encode_bf16(decode_e4m3(static_cast<uint8_t>(i)));
  return t;
}
inline constexpr WordTable kE2m1Words = e2m1_words();
inline constexpr WordTable kIntegerWords = integer_words();
inline constexpr WordTable kE4m3Words = e4m3_words();

// 32 nibbles of 16 bytes at the bottom of 16-bit lanes, other bits above them.
HALFTONE_INLINE __m512i spread_nibbles(const uint8_t* packed) {
  const __m512i bytes = _mm512_cvtepu8_epi32(
      _mm_loadu_si128(static_cast<const __m128i*>(static_cast<const void*>(packed))));
  return _mm512_or_si512(bytes, _mm512_slli_epi32(bytes, 12));
}
}  // namespace decode_detail
#endif

#if defined(__AVX512VBMI__)
namespace decode_detail {
// High and low bytes of the BF16 numbers of codes 0 .. 127; VPERMI2B ignores the sign bit.
struct ByteTables {
  alignas(64) uint8_t high[128], low[128];
};
template <bool kE4m3>
constexpr ByteTables fp8_bytes() {
  ByteTables t{};
  for (int i = 0; i < 128; ++i) {
    const auto code = static_cast<uint8_t>(i);
    const uint16_t word = encode_bf16(kE4m3 ? decode_e4m3(code) : decode_e5m2(code));
    t.high[i] = static_cast<uint8_t>(word >> 8);
    t.low[i] = static_cast<uint8_t>(word);
  }
  return t;
}
template <bool kE4m3>
inline constexpr ByteTables kFp8Bytes = fp8_bytes<kE4m3>();

template <bool kE4m3>
HALFTONE_INLINE void fp8_to_bf16(__m512i codes, bf16v out[2]) {
  const ByteTables& t = kFp8Bytes<kE4m3>;
  // Unpacking works within 128-bit lanes: bring the eight bytes that each lane needs there first.
  codes = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), codes);
  const __m512i low =
      _mm512_permutex2var_epi8(_mm512_load_si512(t.low), codes, _mm512_load_si512(t.low + 64));
  const __m512i magnitude =
      _mm512_permutex2var_epi8(_mm512_load_si512(t.high), codes, _mm512_load_si512(t.high + 64));
  // magnitude | (codes & 0x80)
  const __m512i high = _mm512_ternarylogic_epi32(magnitude, codes, _mm512_set1_epi8(-128), 0xf8);
  out[0] = bits_as<bf16v>(_mm512_unpacklo_epi8(low, high));
  out[1] = bits_as<bf16v>(_mm512_unpackhi_epi8(low, high));
}
}  // namespace decode_detail
#endif

HALFTONE_INLINE bf16v decode_int4_pairs(const void* codes, int64_t i, int zero) {
#if defined(__AVX512BW__)
  const __m512i spread = decode_detail::spread_nibbles(static_cast<const uint8_t*>(codes) + i / 2);
  const __m512i index = _mm512_add_epi16(_mm512_and_si512(spread, _mm512_set1_epi16(15)),
                                         _mm512_set1_epi16(static_cast<short>(15 - zero)));
  return bits_as<bf16v>(
      _mm512_permutexvar_epi16(index, _mm512_load_si512(decode_detail::kIntegerWords.entry)));
#else
  return join_bf16(decode_int4(codes, i, zero), decode_int4(codes, i + kLanes, zero));
#endif
}

template <Format F>
HALFTONE_INLINE bf16v decode_pairs(const void* codes, int64_t i) {
#if defined(__AVX512BW__)
  const auto* bytes = static_cast<const uint8_t*>(codes);
  if constexpr (F == Format::mxfp4 || F == Format::nvfp4) {
    return bits_as<bf16v>(
        _mm512_permutexvar_epi16(decode_detail::spread_nibbles(bytes + i / 2),
                                 _mm512_load_si512(decode_detail::kE2m1Words.entry)));
  } else if constexpr (F == Format::int4) {
    return decode_int4_pairs(codes, i, kInt4Zero);
  } else if constexpr (F == Format::fp8_e4m3 || F == Format::mxfp8) {
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

template <Format F>
HALFTONE_INLINE void decode_pairs_x2(const void* codes, int64_t i, bf16v out[2]) {
#if defined(__AVX512VBMI__)
  if constexpr (F == Format::fp8_e4m3 || F == Format::mxfp8 || F == Format::fp8_e5m2) {
    const __m512i packed = _mm512_loadu_si512(static_cast<const uint8_t*>(codes) + i);
    decode_detail::fp8_to_bf16<F != Format::fp8_e5m2>(packed, out);
    return;
  }
#endif
  out[0] = decode_pairs<F>(codes, i);
  out[1] = decode_pairs<F>(codes, i + 2 * kLanes);
}

}  // namespace halftone::HALFTONE_LEVEL
