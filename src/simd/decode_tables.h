// Tables of the BF16 numbers of codes; part of simd/decode.h.
#pragma once
#include "formats/codec.h"
#include "simd/vec.h"

namespace halftone::HALFTONE_LEVEL {

#if defined(__AVX512BW__)
namespace decode_detail {
struct WordTable {
  alignas(64) uint16_t entry[32];
};
// Four-bit codes, twice, so that bit 4 of an index does not matter.
constexpr WordTable e2m1_words() {
  WordTable t{};
  for (int i = 0; i < 32; ++i) t.entry[i] = encode_bf16(decode_e2m1(static_cast<uint8_t>(i & 15)));
  return t;
}
constexpr WordTable int4_words() {
  WordTable t{};
  for (int i = 0; i < 32; ++i) t.entry[i] = encode_bf16(static_cast<float>((i & 15) - kInt4Zero));
  return t;
}
// BF16 of -15 .. 16: int4 less its zero point.
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
inline constexpr WordTable kInt4Words = int4_words();
inline constexpr WordTable kIntegerWords = integer_words();
inline constexpr WordTable kE4m3Words = e4m3_words();
}  // namespace decode_detail

// The words of the four-bit codes at the bottom of 16-bit lanes, other bits above them.
template <Format F>
HALFTONE_INLINE __m512i lookup_nibbles(__m512i codes) {
  const auto& table = F == Format::int4 ? decode_detail::kInt4Words : decode_detail::kE2m1Words;
  return _mm512_permutexvar_epi16(codes, _mm512_load_si512(table.entry));
}
// The same of int4 with zero points: `shift` is 15 less the zero point of each word.
HALFTONE_INLINE __m512i lookup_int4(__m512i codes, __m512i shift) {
  const __m512i index = _mm512_add_epi16(_mm512_and_si512(codes, _mm512_set1_epi16(15)), shift);
  return _mm512_permutexvar_epi16(index, _mm512_load_si512(decode_detail::kIntegerWords.entry));
}
#endif

#if defined(__AVX512VBMI__)
namespace decode_detail {
// High and low bytes of the BF16 numbers of magnitudes 0 .. 127; VPERMI2B ignores the sign bit.
struct ByteTables {
  alignas(64) uint8_t high[128], low[128];
};
template <class Decode>
constexpr ByteTables byte_tables(Decode decode) {
  ByteTables t{};
  for (int i = 0; i < 128; ++i) {
    const uint16_t word = encode_bf16(decode(static_cast<uint8_t>(i)));
    t.high[i] = static_cast<uint8_t>(word >> 8);
    t.low[i] = static_cast<uint8_t>(word);
  }
  return t;
}
template <bool kE4m3>
inline constexpr ByteTables kFp8Bytes = byte_tables([](uint8_t code) {
  return kE4m3 ? decode_e4m3(code) : decode_e5m2(code);
});
inline constexpr ByteTables kInt8Bytes =
    byte_tables([](uint8_t code) { return static_cast<float>(code); });
template <Format F>
HALFTONE_INLINE constexpr const ByteTables& tables_of() {
  if constexpr (F == Format::int8) return kInt8Bytes;
  return kFp8Bytes<element_of(F) == Element::e4m3>;
}
}  // namespace decode_detail

// The high and low bytes of the BF16 numbers of 64 codes of 8 bits.
template <Format F>
HALFTONE_INLINE void lookup_bytes(__m512i codes, __m512i* high, __m512i* low) {
  const auto& t = decode_detail::tables_of<F>();
  const __m512i index = F == Format::int8 ? _mm512_abs_epi8(codes) : codes;
  *low = _mm512_permutex2var_epi8(_mm512_load_si512(t.low), index, _mm512_load_si512(t.low + 64));
  const __m512i magnitude =
      _mm512_permutex2var_epi8(_mm512_load_si512(t.high), index, _mm512_load_si512(t.high + 64));
  // magnitude | (codes & 0x80)
  *high = _mm512_ternarylogic_epi32(magnitude, codes, _mm512_set1_epi8(-128), 0xf8);
  if constexpr (F == Format::int8) {
    // |-128| is 128, beyond the table, which read entry 0: its low byte is right.
    const __mmask64 lowest = _mm512_movepi8_mask(index);
    *high = _mm512_mask_mov_epi8(*high, lowest, _mm512_set1_epi8(static_cast<char>(0xc3)));
  }
}
#endif

}  // namespace halftone::HALFTONE_LEVEL
