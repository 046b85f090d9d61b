// Sixteen-bit sources in vectors of 2 kLanes elements: the even and the odd elements of one load,
// so that codes meet their neighbours by a shift and nothing is widened or shuffled; and maxima of
// many groups at once. AVX-512 only.
#pragma once
#include "simd/encode.h"

namespace halftone::HALFTONE_LEVEL {

// The least UE8M0 code that encode_words takes: with it all subnormals of bf16 become 0.
constexpr int kLeastWordScale = 20;

// Where each of kLanes groups starts: of fewer groups, the last one stands for those that lack.
struct GroupStarts {
  int64_t begin, group;
  int count = kLanes;
  HALFTONE_INLINE int64_t operator[](int g) const {
    return begin + (g < count ? g : count - 1) * group;
  }
};

#if defined(__AVX512BW__) && defined(__AVX512DQ__)

// As encode_detail::encode_float, of the magnitude alone and without its last subtraction: what
// lacks is code_offset modulo 2^kBits. No NaN.
template <int kMantissaBits, int kMinExponent, uint32_t kMaxBits>
struct MagnitudeCode {
  static constexpr int kShift = 23 - kMantissaBits;
  static constexpr uint32_t kOffset =
      static_cast<uint32_t>((kMinExponent + 127 + kShift) << 23) >> kShift;
  static HALFTONE_INLINE u32v of(f32v x) {
    constexpr int kSmallerMagnitude = 0xa;  // of the two, without sign
    const __m512 largest = bits_as<__m512>(broadcast_u32(kMaxBits));
    const f32v clipped = bits_as<f32v>(
        _mm512_maskz_range_ps(0xffff, bits_as<__m512>(x), largest, kSmallerMagnitude));
    const i32v exponent = bits_as<i32v>(clipped) & 0x7f800000;
    const f32v power = bits_as<f32v>(max(exponent, broadcast_i32((kMinExponent + 127) << 23)));
    // The product is a power of two: one rounding, to the spacing of the format.
    const u32v sum = bits_as<u32v>(fma(power, broadcast(static_cast<float>(1 << kShift)), clipped));
    return (sum >> kShift) + sum;
  }
};

template <Format T>
HALFTONE_INLINE u32v unsigned_code(f32v x, int zero) {
  if constexpr (T == Format::fp8_e4m3) {
    return MagnitudeCode<3, -6, 0x43e00000u>::of(x);
  } else if constexpr (T == Format::fp8_e5m2) {
    return MagnitudeCode<2, -14, 0x47600000u>::of(x);
  } else if constexpr (T == Format::int8) {
    return bits_as<u32v>(round_clamped(x, -127.0f, 127.0f));
  } else {
    static_assert(T == Format::int4);
    const auto least = static_cast<float>(-zero), most = static_cast<float>(15 - zero);
    return bits_as<u32v>(round_clamped(x, least, most) + zero);
  }
}

// --- sixteen bits an element ---------------------------------------------------------------------
// The upper half of a float decides most of its code: 32 elements then share an instruction.

typedef uint16_t u16x2 __attribute__((vector_size(kLanes * 4)));

HALFTONE_INLINE u16x2 broadcast_words(int x) {
  return bits_as<u16x2>(_mm512_set1_epi16(static_cast<short>(x)));
}
HALFTONE_INLINE u16x2 subtract_saturated(u16x2 a, u16x2 b) {
  return bits_as<u16x2>(
      _mm512_maskz_subs_epu16(0xffffffffu, bits_as<__m512i>(a), bits_as<__m512i>(b)));
}
HALFTONE_INLINE u16x2 min_words(u16x2 a, u16x2 b) {
  return bits_as<u16x2>(
      _mm512_maskz_min_epu16(0xffffffffu, bits_as<__m512i>(a), bits_as<__m512i>(b)));
}
HALFTONE_INLINE void store_word_bytes(uint8_t* to, __m512i words, bool streamed) {
  write_raw(to, _mm512_maskz_cvtepi16_epi8(0xffffffffu, words), streamed);
}
// Codes of 4 bits at the bottom of words, neighbours into one byte.
HALFTONE_INLINE void store_word_nibbles(uint8_t* to, u32v words, bool streamed) {
  write_raw(to, narrow_u8(merge(0xf, words, words >> 12)), streamed);
}

// Codes of E2M1 by quarters of a binade: of numbers at the quarter's start, and within it. The
// first quarter lies below 1/4, as does everything that rounds to 0.
struct QuarterCodes {
  alignas(64) uint16_t code[64];
};
constexpr int kQuarterBase = (125 << 7) - 32;  // of the upper half of a float
constexpr QuarterCodes quarter_codes() {
  QuarterCodes table{};
  for (int i = 0; i < 64; ++i) {
    const int upper = kQuarterBase + i / 2 * 32 + i % 2;
    table.code[i] = encode_e2m1(__builtin_bit_cast(float, static_cast<uint32_t>(upper) << 16));
  }
  return table;
}

// v: magnitudes of upper halves less kQuarterBase, saturated, below 1024; rest: not 0 where more
// bits follow.
HALFTONE_INLINE u32v quarters_to_e2m1(u16x2 v, u32v rest) {
  static constexpr QuarterCodes kTable = quarter_codes();
  const u32v within = (bits_as<u32v>(v) & 0x001f001fu) | rest;
  const u32v some = bits_as<u32v>(min_words(bits_as<u16x2>(within), broadcast_words(1)));
  const u32v index = merge(0x00010001u, some, bits_as<u32v>(v >> 4));
  return bits_as<u32v>(_mm512_permutex2var_epi16(_mm512_load_si512(kTable.code),
                                                 bits_as<__m512i>(index),
                                                 _mm512_load_si512(kTable.code + 32)));
}

// 32 elements of bf16 by a power of two, 2^(127 - code) with code >= kLeastWordScale: the exponent
// is subtracted, and what rounds is the element itself. False, having stored nothing, when T is
// E4M3 and an element becomes one of its subnormals.
template <Format T>
HALFTONE_INLINE bool encode_words(const void* x, int64_t i, int code, uint8_t* codes,
                                  bool streamed) {
  const u32v words = load_raw<u32v>(static_cast<const uint16_t*>(x) + i);
  const auto magnitude = bits_as<u16x2>(words & 0x7fff7fffu);
  if constexpr (element_of(T) == Element::e2m1) {
    const u16x2 v = min_words(
        subtract_saturated(magnitude, broadcast_words(((code - 127) << 7) + kQuarterBase)),
        broadcast_words(1023));
    const u32v e2m1 = quarters_to_e2m1(v, u32v{});
    store_word_nibbles(codes, merge(0x00080008u, words >> 12, e2m1), streamed);
  } else {
    static_assert(T == Format::fp8_e4m3);
    // Counted from 2^-10 on, half of the least subnormal, which rounds to 0.
    constexpr int kSubnormals = 0x200, kBinade = 0x180;
    const u16x2 v = subtract_saturated(magnitude, broadcast_words(((code - 7) << 7) - kBinade));
    const __mmask32 subnormal = _mm512_cmplt_epu16_mask(bits_as<__m512i>(v - broadcast_words(1)),
                                                        _mm512_set1_epi16(kSubnormals - 1));
    if (subnormal != 0) return false;
    u16x2 t = min_words(subtract_saturated(v, broadcast_words(kBinade)), broadcast_words(0x7e0));
    t = (t + ((t >> 4) & broadcast_words(1)) + broadcast_words(7)) >> 4;
    store_word_bytes(codes, bits_as<__m512i>(merge(0x00800080u, words >> 8, bits_as<u32v>(t))),
                     streamed);
  }
  return true;
}

// Codes of 32 products, by the even and the odd ones; `words` has the signs.
template <Format T>
HALFTONE_INLINE void store_codes_of_pairs(u32v words, f32v even, f32v odd, int zero, uint8_t* codes,
                                          bool streamed) {
  const u32v a = unsigned_code<T>(even, zero), b = unsigned_code<T>(odd, zero);
  if constexpr (T == Format::int8) {
    write_raw(codes, narrow_u16(merge(0xff, a, b << 8)), streamed);
  } else if constexpr (T == Format::int4) {
    write_raw(codes, narrow_u8(merge(0xf, a, b << 4)), streamed);
  } else {
    constexpr uint32_t kOffset = T == Format::fp8_e5m2 ? MagnitudeCode<2, -14, 0x47600000u>::kOffset
                                                       : MagnitudeCode<3, -6, 0x43e00000u>::kOffset;
    const __mmask32 negative = _mm512_movepi16_mask(bits_as<__m512i>(words));
    const __m256i offset =
        _mm256_mask_blend_epi8(negative, _mm256_set1_epi8(static_cast<char>(kOffset & 0xff)),
                               _mm256_set1_epi8(static_cast<char>((kOffset & 0xff) ^ 0x80)));
    const auto bytes = bits_as<__m256i>(narrow_u16(merge(0xff, a, b << 8)));
    write_raw(codes, _mm256_sub_epi8(bytes, offset), streamed);
  }
}

// 32 elements of bf16 to codes of T. False, having stored nothing, when kNan and a product is NaN.
// Without kNan products of integers are below 2^15, as those of a block's own scale are.
template <Format T, bool kNan>
HALFTONE_INLINE bool encode_pairs(const void* x, int64_t i, f32v factor, int zero, uint8_t* codes,
                                  bool streamed = false) {
  const u32v words = load_raw<u32v>(static_cast<const uint16_t*>(x) + i);
  const f32v even = bits_as<f32v>(words << 16) * factor;
  const f32v odd = bits_as<f32v>(words & 0xffff0000u) * factor;
  constexpr bool kInteger = T == Format::int8 || T == Format::int4;
  if constexpr (kNan && !kInteger) {
    if (_mm512_cmp_ps_mask(bits_as<__m512>(even), bits_as<__m512>(odd), _CMP_UNORD_Q) != 0) {
      return false;
    }
  }
  if constexpr (kInteger && !kNan) {
    const f32v shift = broadcast(12582912.0f);  // 1.5 * 2^23: the integer is in the low bits
    const u32v integers =
        merge(0xffffu, bits_as<u32v>(even + shift), bits_as<u32v>(odd + shift) << 16);
    const auto clamped = [&](int least, int most) __attribute__((always_inline)) {
      const auto x16 =
          _mm512_add_epi16(bits_as<__m512i>(integers), _mm512_set1_epi16(static_cast<short>(zero)));
      const __m512i low =
          _mm512_maskz_max_epi16(0xffffffffu, x16, _mm512_set1_epi16(static_cast<short>(least)));
      return _mm512_maskz_min_epi16(0xffffffffu, low, _mm512_set1_epi16(static_cast<short>(most)));
    };
    if constexpr (T == Format::int8) {
      zero = 0;
      store_word_bytes(codes, clamped(-127, 127), streamed);
    } else {
      store_word_nibbles(codes, bits_as<u32v>(clamped(0, 15)), streamed);
    }
    return true;
  }
  if constexpr (element_of(T) == Element::e2m1) {
    const u32v upper = merge(0xffff0000u, bits_as<u32v>(odd), bits_as<u32v>(even) >> 16);
    const u32v rest = merge(0xffffu, bits_as<u32v>(even), bits_as<u32v>(odd) << 16);
    const u16x2 v = min_words(
        subtract_saturated(bits_as<u16x2>(upper & 0x7fff7fffu), broadcast_words(kQuarterBase)),
        broadcast_words(1023));
    store_word_nibbles(codes, merge(0x00080008u, words >> 12, quarters_to_e2m1(v, rest)), streamed);
  } else {
    store_codes_of_pairs<T>(words, even, odd, zero, codes, streamed);
  }
  return true;
}

// Multipliers of two groups: lane g of x in the lower half and lane g + 1 in the upper.
template <Format>
HALFTONE_INLINE f32v pair_of_lanes(f32v x, int g) {
  alignas(64) static constexpr int32_t kUpper[16] = {0, 0, 0, 0, 0, 0, 0, 0,
                                                     1, 1, 1, 1, 1, 1, 1, 1};
  const i32v lanes = load_raw<i32v>(kUpper) + g;
  return bits_as<f32v>(
      _mm512_maskz_permutexvar_ps(0xffff, bits_as<__m512i>(lanes), bits_as<__m512>(x)));
}

// --- maxima of groups ----------------------------------------------------------------------------

HALFTONE_INLINE __m512i larger16(__m512i a, __m512i b) {
  return _mm512_maskz_max_epi16(0xffffffffu, a, b);
}

// Word i of each quarter of the result: the largest of that quarter of v[i].
HALFTONE_INLINE __m512i quarter_maxima(const __m512i* v) {
  __m512i four[4], two[2];
  for (int i = 0; i < 4; ++i) {
    four[i] = larger16(_mm512_unpacklo_epi16(v[2 * i], v[2 * i + 1]),
                       _mm512_unpackhi_epi16(v[2 * i], v[2 * i + 1]));
  }
  for (int i = 0; i < 2; ++i) {
    two[i] = larger16(_mm512_maskz_unpacklo_epi32(0xffff, four[2 * i], four[2 * i + 1]),
                      _mm512_maskz_unpackhi_epi32(0xffff, four[2 * i], four[2 * i + 1]));
  }
  return larger16(_mm512_maskz_unpacklo_epi64(0xff, two[0], two[1]),
                  _mm512_maskz_unpackhi_epi64(0xff, two[0], two[1]));
}

// Word g of out[k]: the largest of group g of kLanes, each a multiple of 32 elements, in the order
// k. words_at(element, w): 32 words, w[k] compared as signed integers, k < kOrders.
template <int kOrders, class Words>
HALFTONE_INLINE void long_group_maxima(const GroupStarts& start, const Words& words_at,
                                       __m512i* out) {
  constexpr int kSwapQuarters = 0xb1;
  __m512i half[kOrders][2];
  for (int h = 0; h < 2; ++h) {
    __m512i v[kOrders][8];
    for (int g = 0; g < 8; ++g) {
      const int64_t at = start[8 * h + g];
      __m512i best[kOrders], w[kOrders];
      words_at(at, best);
      for (int64_t i = 32; i < start.group; i += 32) {
        words_at(at + i, w);
        for (int k = 0; k < kOrders; ++k) best[k] = larger16(best[k], w[k]);
      }
      for (int k = 0; k < kOrders; ++k) v[k][g] = best[k];
    }
    for (int k = 0; k < kOrders; ++k) half[k][h] = quarter_maxima(v[k]);
  }
  for (int k = 0; k < kOrders; ++k) {
    __m512i words = larger16(_mm512_maskz_shuffle_i64x2(0xff, half[k][0], half[k][1], 0x44),
                             _mm512_maskz_shuffle_i64x2(0xff, half[k][0], half[k][1], 0xee));
    words = larger16(words, _mm512_maskz_shuffle_i64x2(0xff, words, words, kSwapQuarters));
    out[k] = _mm512_maskz_shuffle_i64x2(0xff, words, words, 0x08);  // quarters 0 and 2
  }
}

// Magnitude bits of the largest element of each of kLanes groups of 16, or of a multiple of 32,
// elements of 16 bits.
template <Format S>
HALFTONE_INLINE u32v pair_group_amax(const void* x, const GroupStarts& start) {
  const auto* from = static_cast<const uint16_t*>(x);
  const auto magnitudes = [&](int64_t at) __attribute__((always_inline)) {
    return bits_as<__m512i>(load_raw<u32v>(from + at) & 0x7fff7fffu);
  };
  __m512i words;
  if (start.group == 16) {
    constexpr int kSwapQuarters = 0xb1;
    __m512i v[8];
    for (int i = 0; i < 8; ++i) v[i] = magnitudes(start.begin + 32 * i);
    words = quarter_maxima(v);
    words = larger16(words, _mm512_maskz_shuffle_i64x2(0xff, words, words, kSwapQuarters));
    // Group 2 i + h is word i of half h.
    alignas(64) static constexpr uint16_t kOrder[32] = {0, 16, 1, 17, 2, 18, 3, 19,
                                                        4, 20, 5, 21, 6, 22, 7, 23};
    words = _mm512_maskz_permutexvar_epi16(0xffffffffu, load_raw<__m512i>(kOrder), words);
  } else {
    long_group_maxima<1>(
        start, [&](int64_t at, __m512i * w) __attribute__((always_inline)) { *w = magnitudes(at); },
        &words);
  }
  const auto low = bits_as<u16v>(_mm512_castsi512_si256(words));
  return bits_as<u32v>(S == Format::bf16 ? widen_bf16(low) : widen_f16(low));
}

// Least and largest number of each of kLanes groups of bf16, a multiple of 32 elements, and 0; the
// result: bits of the largest magnitude of each. With the magnitude of negative numbers inverted,
// words are in the order of the numbers, NaNs at its ends; their complement turns it round.
template <Format>
HALFTONE_INLINE u32v pair_group_ranges(const void* x, const GroupStarts& start, f32v* low,
                                       f32v* high) {
  const auto* from = static_cast<const uint16_t*>(x);
  const __m512i magnitude = _mm512_set1_epi16(0x7fff);
  __m512i ends[2];
  long_group_maxima<2>(
      start,
      [&](int64_t at, __m512i * w) __attribute__((always_inline)) {
        const auto words = load_raw<__m512i>(from + at);
        const __m512i sign = _mm512_srai_epi16(words, 15);
        w[0] =
            _mm512_ternarylogic_epi32(words, sign, magnitude, 0x78);  // words ^ (sign & magnitude)
        w[1] = _mm512_ternarylogic_epi32(words, sign, magnitude, 0x87);  // its complement
      },
      ends);
  // The complement of an ordered word is that of minus the number.
  const auto number = [&](__m512i words) __attribute__((always_inline)) {
    const __m512i sign = _mm512_srai_epi16(words, 15);
    const __m512i bits = _mm512_ternarylogic_epi32(words, sign, magnitude, 0x78);
    return widen_bf16(bits_as<u16v>(_mm512_castsi512_si256(bits)));
  };
  const f32v largest = number(ends[0]), least = number(ends[1]);
  *low = min(f32v{}, -least);
  *high = max(f32v{}, largest);
  return bits_as<u32v>(max(bits_as<i32v>(abs(largest)), bits_as<i32v>(abs(least))));
}

#endif

// Whether encode_pairs makes elements of T from S: those that are nibbles or bytes.
template <Format S, Format T>
HALFTONE_INLINE constexpr bool has_pairs() {
#if defined(__AVX512BW__) && defined(__AVX512DQ__)
  return S == Format::bf16 && (bits_of(T) == 4 || bits_of(T) == 8);
#else
  return false;
#endif
}
// Whether pair_group_amax serves sources of S.
template <Format S>
HALFTONE_INLINE constexpr bool has_pair_maxima() {
#if defined(__AVX512BW__) && defined(__AVX512DQ__)
  return S != Format::f32;
#else
  return false;
#endif
}

}  // namespace halftone::HALFTONE_LEVEL
