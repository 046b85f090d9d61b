// Codes to FP32 lanes; part of simd/decode.h.
#pragma once
#include "formats/codec.h"
#include "simd/vec.h"

namespace halftone::HALFTONE_LEVEL {

using halftone::decode_e4m3;
using halftone::decode_ue8m0;

// --- registers -----------------------------------------------------------------------------------

// 2^(code - 127) of codes below 256. Code 0 is the subnormal 2^-127 and 255 a NaN: both set bit 22.
HALFTONE_INLINE f32v decode_ue8m0(u32v code) {
  const i32v edge = bits_as<i32v>(((code + 1) & 0xfeu) == u32v{});
  return bits_as<f32v>((code << 23) | (bits_as<u32v>(edge) & 0x00400000u));
}

// A code in the low bits of each lane; the bits above it do not count.
template <Format F>
HALFTONE_INLINE f32v decode_code(u32v code) {
  constexpr Element kElement = element_of(F);
  if constexpr (kElement == Element::e4m3) {
    // Exponent 0 has no hidden bit: read as if its exponent were 1 with a hidden bit, it is too
    // large by exactly 2^-6. (Multiplying the bits by 2^120 is shorter, but a multiplication of
    // subnormals costs tens of cycles.)
    const u32v magnitude = (code & 0x7fu) << 20;
    const u32v normal = magnitude + (120u << 23);
    const f32v subnormal = bits_as<f32v>(magnitude + (121u << 23)) - broadcast(0x1p-6f);
    const i32v small = bits_as<i32v>(magnitude < broadcast_u32(0x00800000u));
    const i32v nan = bits_as<i32v>(magnitude == broadcast_u32(0x07f00000u));
    u32v bits = select(small, bits_as<u32v>(subnormal), normal);
    bits = select(nan, broadcast_u32(0x7fc00000u), bits);
    return bits_as<f32v>(bits | ((code << 24) & 0x80000000u));
  } else if constexpr (kElement == Element::e5m2) {
    return widen_f16(narrow_u16((code << 8) & 0xff00u));
  } else if constexpr (kElement == Element::int8) {
    return float_from(bits_as<i32v>(code << 24) >> 24);
  } else if constexpr (kElement == Element::int4) {
#if defined(__AVX512F__)
    const __m512 table = _mm512_setr_ps(-8.0f, -7.0f, -6.0f, -5.0f, -4.0f, -3.0f, -2.0f, -1.0f,
                                        0.0f, 1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f);
    return bits_as<f32v>(_mm512_permutexvar_ps(bits_as<__m512i>(code), table));
#else
    return float_from(bits_as<i32v>(code & 15u) - kInt4Zero);
#endif
  } else if constexpr (kElement != Element::e2m1) {
    // Exponent 0 has no hidden bit: as 1.m with the next exponent, less that power of two.
    static_assert(is_small_float(kElement));
    constexpr int kMantissa = traits_of(kElement).mantissa_bits, kShift = 23 - kMantissa;
    constexpr uint32_t kLeast = static_cast<uint32_t>(least_exponent(kElement) + 127) << 23;
    constexpr uint32_t kSign = 1u << (bits_of(F) - 1);
    const u32v bits = (code & (kSign - 1)) << kShift;
    const f32v subnormal =
        bits_as<f32v>(bits + kLeast) - broadcast(__builtin_bit_cast(float, kLeast));
    const i32v small = bits_as<i32v>(bits < broadcast_u32(0x00800000u));
    const u32v magnitude = select(small, bits_as<u32v>(subnormal), bits + (kLeast - 0x00800000u));
    return bits_as<f32v>(magnitude | (code & kSign) << (32 - bits_of(F)));
  } else {
#if defined(__AVX512F__)
    const __m512 table = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f,
                                        -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
    return bits_as<f32v>(_mm512_permutexvar_ps(bits_as<__m512i>(code), table));
#else
#if defined(__AVX2__)
    const __m256 table = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
    const auto magnitude =
        bits_as<u32v>(_mm256_permutevar8x32_ps(table, bits_as<__m256i>(code)));  // low three bits
#else
    // Exponent 0 has no hidden bit: as 1.m with the exponent of 1, less 1, it is exact.
    const u32v bits = (code & 7u) << 22;
    const f32v subnormal = bits_as<f32v>(bits + (127u << 23)) - broadcast(1.0f);
    const u32v magnitude =
        select(bits_as<i32v>((code & 6u) == u32v{}), bits_as<u32v>(subnormal), bits + (126u << 23));
#endif
    return bits_as<f32v>(magnitude | ((code << 28) & 0x80000000u));
#endif
  }
}

// Scales, a code a byte.
HALFTONE_INLINE f32v decode_e4m3(u8v codes) {
  return decode_code<Format::fp8_e4m3>(widen_u8(codes));
}
HALFTONE_INLINE f32v decode_ue8m0(u8v codes) { return decode_ue8m0(widen_u8(codes)); }

// kLanes nibbles, one a byte, from kLanes / 2 bytes.
HALFTONE_INLINE u8v load_nibbles(const uint8_t* packed) {
#if defined(__x86_64__)
  uint64_t word = 0;
  std::memcpy(&word, packed, kLanes / 2);
  const __m128i bytes = _mm_cvtsi64_si128(static_cast<long long>(word));
  const __m128i mask = _mm_set1_epi8(15);
  const __m128i low = _mm_and_si128(bytes, mask);
  const __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), mask);
  const __m128i codes = _mm_unpacklo_epi8(low, high);
  u8v result;
  std::memcpy(&result, &codes, sizeof result);
  return result;
#else
  u8v result{};
  for (int i = 0; i < kLanes; ++i) result[i] = nibble(packed, i);
  return result;
#endif
}

// kLanes codes of six bits, one a byte, from the bytes they fill.
HALFTONE_INLINE u8v load_sixes(const uint8_t* packed) {
  uint32_t four[kLanes / 4];
  for (int i = 0; i < kLanes / 4; ++i) {
    uint32_t word = 0;
    std::memcpy(&word, packed + 3 * i, 3);
    four[i] =
        (word & 0x3f) | (word << 2 & 0x3f00) | (word << 4 & 0x3f0000) | (word << 6 & 0x3f000000);
  }
  u8v codes;
  std::memcpy(&codes, four, sizeof codes);
  return codes;
}

// --- memory to FP32 lanes ------------------------------------------------------------------------

HALFTONE_INLINE f32v decode_int4(const void* codes, int64_t i, int zero) {
  const u8v nibbles = load_nibbles(static_cast<const uint8_t*>(codes) + i / 2);
  return float_from(bits_as<i32v>(widen_u8(nibbles)) - zero);
}

template <Format F>
HALFTONE_INLINE f32v decode(const void* codes, int64_t i) {
  const auto* bytes = static_cast<const uint8_t*>(codes);
  if constexpr (element_of(F) == Element::e5m2) {
    return widen_f16(__builtin_convertvector(load_raw<u8v>(bytes + i), u16v) << 8);
  } else if constexpr (bits_of(F) == 8) {
    return decode_code<F>(widen_u8(load_raw<u8v>(bytes + i)));
  } else if constexpr (bits_of(F) == 6) {
    return decode_code<F>(widen_u8(load_sixes(bytes + code_offset(F, i))));
  } else {
#if defined(__AVX512F__)
    // Byte b in a 64-bit lane, and its high nibble at the bottom of the lane's upper half: the
    // permutation looks at four bits of each 32-bit index only.
    const __m512i spread = _mm512_cvtepu8_epi64(
        _mm_loadl_epi64(static_cast<const __m128i*>(static_cast<const void*>(bytes + i / 2))));
    return decode_code<F>(bits_as<u32v>(_mm512_or_si512(spread, _mm512_slli_epi64(spread, 28))));
#else
    return decode_code<F>(widen_u8(load_nibbles(bytes + i / 2)));
#endif
  }
}

}  // namespace halftone::HALFTONE_LEVEL
