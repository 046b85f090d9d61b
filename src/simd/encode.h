// FP32 lanes to codes of the small formats, exactly as formats/codec.h, for files of one
// ISA level.
#pragma once
#include "formats/codec.h"
#include "simd/stream_lines.h"
#include "simd/vec.h"

namespace halftone::HALFTONE_LEVEL {

using halftone::encode_e2m1;
using halftone::encode_e4m3;
using halftone::encode_e5m2;
using halftone::encode_ue8m0_down;
using halftone::encode_ue8m0_up;

HALFTONE_INLINE u32v pick(i32v mask, u32v yes, u32v no) { return mask ? yes : no; }
HALFTONE_INLINE i32v pick(i32v mask, i32v yes, i32v no) { return mask ? yes : no; }
HALFTONE_INLINE f32v pick(i32v mask, f32v yes, f32v no) { return mask ? yes : no; }
// GCC 12 finds VPMINSD and VPMAXSD of 512 bits only when asked by name.
HALFTONE_INLINE i32v min(i32v a, i32v b) {
#if defined(__AVX512F__)
  return bits_as<i32v>(_mm512_maskz_min_epi32(0xffff, bits_as<__m512i>(a), bits_as<__m512i>(b)));
#else
  return pick(a < b, a, b);
#endif
}
HALFTONE_INLINE i32v max(i32v a, i32v b) {
#if defined(__AVX512F__)
  return bits_as<i32v>(_mm512_maskz_max_epi32(0xffff, bits_as<__m512i>(a), bits_as<__m512i>(b)));
#else
  return pick(a > b, a, b);
#endif
}

// Bits of `yes` where `mask` has ones, of `no` elsewhere.
HALFTONE_INLINE u32v merge(uint32_t mask, u32v yes, u32v no) {
#if defined(__AVX512F__)
  return bits_as<u32v>(_mm512_ternarylogic_epi32(_mm512_set1_epi32(static_cast<int>(mask)),
                                                 bits_as<__m512i>(yes), bits_as<__m512i>(no),
                                                 0xca));
#else
  return (yes & mask) | (no & ~mask);
#endif
}

namespace encode_detail {
// A float format of 8 bits or fewer that saturates; kNan: x may be NaN. Only the low
// 1 + kSignShift bits of a lane are the code, what lies above is arbitrary.
//
// To each magnitude the power of two is added whose last bit is the spacing of the format there:
// the addition itself rounds to nearest even, and the low bits of the sum are the significand, with
// the leading 1 of normal numbers. Adding the exponent of that power, counted from the least one,
// above them gives the code; modulo 256 the sum itself may stand for its low bits.
template <int kMantissaBits, int kMinExponent, uint32_t kMaxBits, uint32_t kNanCode, int kSignShift,
          bool kNan>
HALFTONE_INLINE u32v encode_float(f32v x) {
  constexpr int kShift = 23 - kMantissaBits;
  constexpr int kLeastPower = (kMinExponent + 127 + kShift) << 23;
  const u32v bits = bits_as<u32v>(x);
  const i32v magnitude = bits_as<i32v>(bits & 0x7fffffffu);
  const i32v clipped = min(magnitude, broadcast_i32(static_cast<int32_t>(kMaxBits)));
  const i32v power = max((clipped & 0x7f800000) + (kShift << 23), broadcast_i32(kLeastPower));
  const u32v sum = bits_as<u32v>(bits_as<f32v>(clipped) + bits_as<f32v>(power));
  const u32v code = (sum >> kShift) + (sum - (static_cast<uint32_t>(kLeastPower) >> kShift));
  const u32v result = merge((1u << kSignShift) - 1, code, bits >> (31 - kSignShift));
  if constexpr (!kNan) return result;
  return pick(magnitude > broadcast_i32(0x7f800000), broadcast_u32(kNanCode), result);
}

template <Element kElement, bool kNan>
HALFTONE_INLINE u32v encode_small(f32v x) {
  constexpr ElementTraits kTraits = traits_of(kElement);
  constexpr uint32_t kLargest = __builtin_bit_cast(uint32_t, kTraits.largest);
  return encode_float<kTraits.mantissa_bits, least_exponent(kElement), kLargest, kTraits.nan,
                      kTraits.bits - 1, kNan>(x);
}
}  // namespace encode_detail

HALFTONE_INLINE u32v encode_e4m3(f32v x) {
  return encode_detail::encode_small<Element::e4m3, true>(x) & 0xffu;
}
HALFTONE_INLINE u32v encode_e5m2(f32v x) {
  return encode_detail::encode_small<Element::e5m2, true>(x) & 0xffu;
}
HALFTONE_INLINE u32v encode_e2m1(f32v x) {
  return encode_detail::encode_small<Element::e2m1, true>(x) & 0xfu;
}

HALFTONE_INLINE u32v encode_ue8m0_up(f32v x) {
  const u32v magnitude = bits_as<u32v>(x) & 0x7fffffffu;
  // Adding all ones below the exponent carries into it unless they are zero; a subnormal carries
  // when it is above 2^-127.
  const i32v subnormal = bits_as<i32v>(magnitude) < broadcast_i32(0x800000);
  const u32v below = pick(subnormal, broadcast_u32(0x3fffffu), broadcast_u32(0x7fffffu));
  const i32v code = min(bits_as<i32v>((magnitude + below) >> 23), broadcast_i32(254));
  return pick(bits_as<i32v>(magnitude) > broadcast_i32(0x7f800000), broadcast_u32(255),
              bits_as<u32v>(code));
}
HALFTONE_INLINE u32v encode_ue8m0_down(f32v x) {
  const i32v magnitude = bits_as<i32v>(x) & 0x7fffffff;
  const i32v code = min(magnitude >> 23, broadcast_i32(254));
  return pick(magnitude > broadcast_i32(0x7f800000), broadcast_u32(255), bits_as<u32v>(code));
}

// Nearest integer, ties to even, after clamping to limits below 2^22; NaN gives the upper one.
HALFTONE_INLINE i32v round_clamped(f32v x, float low, float high) {
  x = max(min(x, broadcast(high)), broadcast(low));
  const float shift = 12582912.0f;  // 1.5 * 2^23: the sum has no bits below 1
  return bits_as<i32v>(x + shift) - 0x4b400000;
}
HALFTONE_INLINE u32v encode_int8(f32v x) {
  return bits_as<u32v>(round_clamped(x, -127.0f, 127.0f)) & 0xffu;
}
HALFTONE_INLINE u32v encode_int4(f32v x, int zero) {
  const i32v code = round_clamped(x, -16.0f, 16.0f) + zero;
  return bits_as<u32v>(max(min(code, broadcast_i32(15)), broadcast_i32(0)));
}

// --- stores of codes: one a lane, what lies above them arbitrary ---------------------------------
// streamed: past the caches where vectors of codes are long enough. Neighbours then meet in the
// processor's write-combining buffers; by way of a buffer in the first-level cache, each line would
// be loaded from several stores at once, which no processor forwards.

HALFTONE_INLINE void store_bytes(uint8_t* to, u32v codes, bool streamed = false) {
#if defined(__AVX512F__)
  write_raw(to, narrow_u8(codes), streamed);  // truncates
#else
  write_raw(to, narrow_u8(codes & 0xffu), streamed);
#endif
}

// Lanes 2i and 2i + 1 into byte i.
HALFTONE_INLINE void store_nibbles(uint8_t* to, u32v codes,
                                   [[maybe_unused]] bool streamed = false) {
  typedef uint64_t u64v __attribute__((vector_size(kLanes * 4)));
  const u32v high = bits_as<u32v>(bits_as<u64v>(codes) >> 28);
  const u32v pairs = merge(0xf, codes, high);
#if defined(__AVX512F__)
  const __m128i bytes = _mm512_maskz_cvtepi64_epi8(0xff, bits_as<__m512i>(pairs));
  write_raw(to, _mm_cvtsi128_si64(bytes), streamed);
#else
  uint64_t lane[kLanes / 2];
  store_raw(lane, pairs);
  for (int i = 0; i < kLanes / 2; ++i) to[i] = static_cast<uint8_t>(lane[i]);
#endif
}

// Four codes of six bits into three bytes.
HALFTONE_INLINE void store_sixes(uint8_t* to, u32v codes) {
  uint32_t lane[kLanes];
  store_raw(lane, codes & 63u);
  for (int i = 0; i < kLanes; i += 4) {
    const uint32_t word = lane[i] | lane[i + 1] << 6 | lane[i + 2] << 12 | lane[i + 3] << 18;
    std::memcpy(to + i / 4 * 3, &word, 3);
  }
}

// --- by format -----------------------------------------------------------------------------------

// Calls f.template operator()<F>() for a format with the elements of `format`: one of each that
// quantize makes. `kFirst` is the first that is tried.
template <int kFirst = 0, class Function>
HALFTONE_INLINE auto with_element(Format format, Function f) {
  constexpr Format kFormat = format_with(kSmallElements[kFirst]);
  if constexpr (kFirst + 1 == kSmallElementCount) {
    return f.template operator()<kFormat>();
  } else {
    if (element_of(format) == kSmallElements[kFirst]) return f.template operator()<kFormat>();
    return with_element<kFirst + 1>(format, f);
  }
}

// kNan: x may be NaN. Only the low bits of a lane are the code.
template <Format F, bool kNan>
HALFTONE_INLINE u32v encode_lanes(f32v x, int zero) {
  constexpr Element kElement = element_of(F);
  if constexpr (is_small_float(kElement)) {
    return encode_detail::encode_small<kElement, kNan>(x);
  } else if constexpr (kElement == Element::int8) {
    return encode_int8(x);
  } else {
    static_assert(kElement == Element::int4, "an element that has no encoder");
    return encode_int4(x, zero);
  }
}

template <Format F>
HALFTONE_INLINE void store_codes(uint8_t* to, u32v codes, bool streamed = false) {
  if constexpr (bits_of(F) == 4) {
    store_nibbles(to, codes, streamed);
  } else if constexpr (bits_of(F) == 6) {
    store_sixes(to, codes);
  } else {
    static_assert(bits_of(F) == 8);
    store_bytes(to, codes, streamed);
  }
}

}  // namespace halftone::HALFTONE_LEVEL
