// Codes of 8 and 4 bits to bf16 by table, for levels with VPERMI2B (128 bytes looked up at once).
// Included by level sources.
#pragma once
#include "ops/product/product.h"
#include "simd/vec.h"

namespace halftone::HALFTONE_LEVEL {

using product::Code;

typedef uint16_t words __attribute__((vector_size(64)));

// bf16 of the 128 magnitudes of a byte format, split into the bytes of the result.
namespace {

struct ByteTables {
  alignas(64) uint8_t low[128];
  alignas(64) uint8_t high[128];
};
constexpr uint16_t bf16_bits(float x) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
}
constexpr float minifloat(int code, int mantissa_bits, int bias) {
  const int exponent = code >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
  const int whole = exponent > 0 ? mantissa + (1 << mantissa_bits) : mantissa;
  float value = static_cast<float>(whole);
  int power = (exponent > 0 ? exponent : 1) - bias - mantissa_bits;
  for (; power > 0; --power) value *= 2;
  for (; power < 0; ++power) value /= 2;
  return value;
}
constexpr ByteTables byte_tables(Code code) {
  ByteTables t{};
  for (int i = 0; i < 128; ++i) {
    uint16_t b = 0;
    if (code == Code::e4m3) {
      b = i == 127 ? 0x7fc0 : bf16_bits(minifloat(i, 3, 7));
    } else if (code == Code::e5m2) {
      b = i == 124 ? 0x7f80 : i > 124 ? 0x7fc0 : bf16_bits(minifloat(i, 2, 15));
    } else {
      b = bf16_bits(static_cast<float>(i));
    }
    t.low[i] = static_cast<uint8_t>(b);
    t.high[i] = static_cast<uint8_t>(b >> 8);
  }
  return t;
}
template <Code C>
constexpr ByteTables kByteTables = byte_tables(C);

// Bytes of 128 codes that become words of steps 0 and 1 (and, plus 2, of steps 2 and 3): word w of
// step j is byte 4w + j, as unpacking the low and high halves of 128-bit lanes wants them.
struct Arrangement {
  alignas(64) uint8_t bytes[2][64];
};
constexpr Arrangement arrangement() {
  Arrangement a{};
  for (int pair = 0; pair < 2; ++pair) {
    for (int lane = 0; lane < 4; ++lane) {
      for (int i = 0; i < 16; ++i) {
        a.bytes[pair][16 * lane + i] =
            static_cast<uint8_t>(4 * (8 * lane + i % 8) + 2 * pair + i / 8);
      }
    }
  }
  return a;
}
constexpr Arrangement kArrangement = arrangement();

struct WordTable {
  alignas(64) uint16_t words[32];
};
constexpr WordTable word_table(Code code) {
  constexpr float kE2m1[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  WordTable t{};
  for (int i = 0; i < 32; ++i) {
    float x = 0;
    if (code == Code::e2m1) {
      x = (i & 8) != 0 ? -kE2m1[i & 7] : kE2m1[i & 7];
    } else if (code == Code::int4) {
      x = static_cast<float>((i & 15) - 8);
    } else {
      x = static_cast<float>(i - 15);  // index: code + 15 - zero point
    }
    t.words[i] = bf16_bits(x);
  }
  return t;
}
template <Code C>
constexpr WordTable kWordTable = word_table(C);

}  // namespace

// Two vectors of words from 128 codes: word w of vector j is element 4w + 2 pair + j.
template <Code C>
HALFTONE_INLINE void expand_bytes(__m512i a, __m512i b, int pair, words out[2]) {
  const ByteTables& tables = kByteTables<C>;
  const __m512i codes = _mm512_permutex2var_epi8(a, load_raw<__m512i>(kArrangement.bytes[pair]), b);
  const __m512i magnitude = C == Code::int8 ? _mm512_abs_epi8(codes) : codes;
  const __m512i low = _mm512_permutex2var_epi8(load_raw<__m512i>(tables.low), magnitude,
                                               load_raw<__m512i>(tables.low + 64));
  __m512i high = _mm512_permutex2var_epi8(load_raw<__m512i>(tables.high), magnitude,
                                          load_raw<__m512i>(tables.high + 64));
  // high | (codes & 0x80): the sign.
  high = _mm512_ternarylogic_epi32(high, codes, _mm512_set1_epi8(-128), 0xf8);
  if constexpr (C == Code::int8) {
    // |-128| is 128, beyond the table, which read entry 0: its low byte is right.
    const __mmask64 lowest = _mm512_movepi8_mask(magnitude);
    high = _mm512_mask_mov_epi8(high, lowest, _mm512_set1_epi8(static_cast<char>(0xc3)));
  }
  out[0] = bits_as<words>(_mm512_unpacklo_epi8(low, high));
  out[1] = bits_as<words>(_mm512_unpackhi_epi8(low, high));
}

template <Code C>
HALFTONE_INLINE void expand_nibbles(__m512i raw, const int32_t* zeros, int pair, words out[2]) {
  const __m512i table = load_raw<__m512i>(kWordTable<C>.words);
  __m512i shift = _mm512_setzero_si512();
  if constexpr (C == Code::int4_asymmetric) {
    const __m512i zero = load_raw<__m512i>(zeros);
    shift =
        _mm512_sub_epi16(_mm512_set1_epi16(15), _mm512_or_si512(zero, _mm512_slli_epi32(zero, 16)));
  }
#pragma GCC unroll 2
  for (int j = 0; j < 2; ++j) {
    // The table repeats after 16 entries, so that the bit beyond the nibble is harmless.
    __m512i index = _mm512_srli_epi16(raw, static_cast<unsigned>(8 * pair + 4 * j));
    if constexpr (C == Code::int4_asymmetric) {
      index = _mm512_add_epi16(_mm512_and_si512(index, _mm512_set1_epi16(15)), shift);
    }
    out[j] = bits_as<words>(_mm512_permutexvar_epi16(index, table));
  }
}

// 128 codes in two vectors (bytes) or one (nibbles).
template <Code C>
HALFTONE_INLINE void expand_words(__m512i a, [[maybe_unused]] __m512i b, const int32_t* zeros,
                                  int pair, words out[2]) {
  if constexpr (C == Code::e4m3 || C == Code::e5m2 || C == Code::int8) {
    expand_bytes<C>(a, b, pair, out);
  } else {
    expand_nibbles<C>(a, zeros, pair, out);
  }
}

}  // namespace halftone::HALFTONE_LEVEL
