// Sixteen-bit sources in vectors of 2 kLanes elements: the even and the odd elements of one load,
// so that codes meet their neighbours by a shift and nothing is widened or shuffled; and maxima of
// many groups at once. AVX-512 only.
#pragma once
#include "simd/encode.h"

namespace halftone::HALFTONE_LEVEL {

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
  } else if constexpr (T == Format::int4) {
    const auto least = static_cast<float>(-zero), most = static_cast<float>(15 - zero);
    return bits_as<u32v>(round_clamped(x, least, most) + zero);
  } else {
    return MagnitudeCode<1, 0, 0x40c00000u>::of(x);
  }
}

// 32 elements of bf16 to codes of T. False, having stored nothing, when kNan and a product is NaN.
template <Format T, bool kNan>
HALFTONE_INLINE bool encode_pairs(const void* x, int64_t i, f32v factor, int zero, uint8_t* codes) {
  const u32v words = load_raw<u32v>(static_cast<const uint16_t*>(x) + i);
  const f32v even = bits_as<f32v>(words << 16) * factor;
  const f32v odd = bits_as<f32v>(words & 0xffff0000u) * factor;
  if constexpr (kNan && T != Format::int8 && T != Format::int4) {
    if (_mm512_cmp_ps_mask(bits_as<__m512>(even), bits_as<__m512>(odd), _CMP_UNORD_Q) != 0) {
      return false;
    }
  }
  const u32v a = unsigned_code<T>(even, zero), b = unsigned_code<T>(odd, zero);
  if constexpr (T == Format::int8) {
    store_raw(codes, narrow_u16(merge(0xff, a, b << 8)));
  } else if constexpr (T == Format::int4) {
    store_raw(codes, narrow_u8(merge(0xf, a, b << 4)));
  } else if constexpr (is_four_bits(T)) {
    // Three bits of each code above a 0: adding what is left to the offset modulo 8 does not carry
    // into the neighbour.
    constexpr uint32_t kRest = (0 - MagnitudeCode<1, 0, 0x40c00000u>::kOffset) & 7;
    const u32v both = merge(0x7, a, b << 4) + (kRest << 4 | kRest);
    const u32v signs = merge(0x8, words >> 12, words >> 24);
    store_raw(codes, narrow_u8(merge(0x77, both, signs)));
  } else {
    constexpr uint32_t kOffset = T == Format::fp8_e5m2 ? MagnitudeCode<2, -14, 0x47600000u>::kOffset
                                                       : MagnitudeCode<3, -6, 0x43e00000u>::kOffset;
    const __mmask32 negative = _mm512_movepi16_mask(bits_as<__m512i>(words));
    const __m256i offset =
        _mm256_mask_blend_epi8(negative, _mm256_set1_epi8(static_cast<char>(kOffset & 0xff)),
                               _mm256_set1_epi8(static_cast<char>((kOffset & 0xff) ^ 0x80)));
    const auto bytes = bits_as<__m256i>(narrow_u16(merge(0xff, a, b << 8)));
    store_raw(codes, _mm256_sub_epi8(bytes, offset));
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

// Magnitude bits of the largest element of each of kLanes groups of 16, or of a multiple of 32,
// elements of 16 bits.
template <Format S>
HALFTONE_INLINE u32v pair_group_amax(const void* x, int64_t begin, int64_t group) {
  const auto* from = static_cast<const uint16_t*>(x) + begin;
  const auto magnitudes = [&](int64_t at) __attribute__((always_inline)) {
    return bits_as<__m512i>(load_raw<u32v>(from + at) & 0x7fff7fffu);
  };
  constexpr int kSwapQuarters = 0xb1;
  __m512i words;
  if (group == 16) {
    __m512i v[8];
    for (int i = 0; i < 8; ++i) v[i] = magnitudes(32 * i);
    words = quarter_maxima(v);
    words = larger16(words, _mm512_maskz_shuffle_i64x2(0xff, words, words, kSwapQuarters));
    // Group 2 i + h is word i of half h.
    alignas(64) static constexpr uint16_t kOrder[32] = {0, 16, 1, 17, 2, 18, 3, 19,
                                                        4, 20, 5, 21, 6, 22, 7, 23};
    words = _mm512_maskz_permutexvar_epi16(0xffffffffu, load_raw<__m512i>(kOrder), words);
  } else {
    __m512i half[2];
    for (int h = 0; h < 2; ++h) {
      __m512i v[8];
      for (int g = 0; g < 8; ++g) {
        const int64_t at = (8 * h + g) * group;
        v[g] = magnitudes(at);
        for (int64_t i = 32; i < group; i += 32) v[g] = larger16(v[g], magnitudes(at + i));
      }
      half[h] = quarter_maxima(v);
    }
    words = larger16(_mm512_maskz_shuffle_i64x2(0xff, half[0], half[1], 0x44),
                     _mm512_maskz_shuffle_i64x2(0xff, half[0], half[1], 0xee));
    words = larger16(words, _mm512_maskz_shuffle_i64x2(0xff, words, words, kSwapQuarters));
    words = _mm512_maskz_shuffle_i64x2(0xff, words, words, 0x08);  // quarters 0 and 2
  }
  const auto low = bits_as<u16v>(_mm512_castsi512_si256(words));
  return bits_as<u32v>(S == Format::bf16 ? widen_bf16(low) : widen_f16(low));
}

#endif

// Whether encode_pairs and pair_group_amax serve sources of S.
template <Format S>
HALFTONE_INLINE constexpr bool has_pairs() {
#if defined(__AVX512BW__) && defined(__AVX512DQ__)
  return S == Format::bf16;
#else
  return false;
#endif
}
template <Format S>
HALFTONE_INLINE constexpr bool has_pair_maxima() {
#if defined(__AVX512BW__) && defined(__AVX512DQ__)
  return S != Format::f32;
#else
  return false;
#endif
}

}  // namespace halftone::HALFTONE_LEVEL
