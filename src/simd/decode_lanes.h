// Codes to FP32 lanes; part of simd/decode.h.
#pragma once
#include "formats/codec.h"
#include "simd/vec.h"

namespace halftone::HALFTONE_LEVEL {

using halftone::decode_e2m1;
using halftone::decode_e4m3;
using halftone::decode_e5m2;
using halftone::decode_ue8m0;

typedef int16_t i16v __attribute__((vector_size(kLanes * 2)));
typedef int8_t i8v __attribute__((vector_size(kLanes)));

// --- registers: one code a byte ------------------------------------------------------------------

HALFTONE_INLINE f32v decode_ue8m0(u8v codes) {
  const u32v code = widen_u8(codes);
  const u32v least = select(bits_as<i32v>(code == u32v{}), broadcast_u32(0x400000u), code << 23);
  const i32v nan = bits_as<i32v>(code == broadcast_u32(255));
  return bits_as<f32v>(select(nan, broadcast_u32(0x7fc00000u), least));
}

HALFTONE_INLINE f32v decode_e5m2(u8v codes) {
  return widen_f16(__builtin_convertvector(codes, u16v) << 8);
}

HALFTONE_INLINE f32v decode_e4m3(u8v codes) {
  const u32v code = widen_u8(codes);
  const u32v magnitude = code & 0x7fu;
  const u32v normal = (magnitude << 20) + (120u << 23);
  const f32v subnormal = float_from(bits_as<i32v>(magnitude)) * 0x1p-9f;
  const i32v small = bits_as<i32v>(magnitude < broadcast_u32(8));
  const i32v nan = bits_as<i32v>(magnitude == broadcast_u32(0x7f));
  u32v bits = select(small, bits_as<u32v>(subnormal), normal);
  bits = select(nan, broadcast_u32(0x7fc00000u), bits);
  return bits_as<f32v>(bits | ((code & 0x80u) << 24));
}

// Only the low four bits of a code count.
HALFTONE_INLINE f32v decode_e2m1(u8v codes) {
  const u32v code = widen_u8(codes);
#if defined(__AVX512F__)
  const __m512 table = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f,
                                      -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
  return bits_as<f32v>(_mm512_permutexvar_ps(bits_as<__m512i>(code), table));
#else
  const u32v sign = (code & 8u) << 28;
#if defined(__AVX2__)
  const __m256 table = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
  const auto magnitude =
      bits_as<u32v>(_mm256_permutevar8x32_ps(table, bits_as<__m256i>(code)));  // low three bits
#else
  const u32v index = code & 7u;
  const f32v subnormal = float_from(bits_as<i32v>(index)) * 0.5f;
  const u32v magnitude = select(bits_as<i32v>(index < broadcast_u32(2)), bits_as<u32v>(subnormal),
                                (index << 22) + (126u << 23));
#endif
  return bits_as<f32v>(magnitude | sign);
#endif
}

HALFTONE_INLINE f32v decode_int8(u8v codes) {
  return float_from(bits_as<i32v>(widen_u8(codes) << 24) >> 24);
}

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

// --- memory to FP32 lanes ------------------------------------------------------------------------

HALFTONE_INLINE f32v decode_int4(const void* codes, int64_t i, int zero) {
  const u8v nibbles = load_nibbles(static_cast<const uint8_t*>(codes) + i / 2);
  return float_from(bits_as<i32v>(widen_u8(nibbles)) - zero);
}

template <Format F>
HALFTONE_INLINE f32v decode(const void* codes, int64_t i) {
  const auto* bytes = static_cast<const uint8_t*>(codes);
  if constexpr (F == Format::fp8_e4m3 || F == Format::mxfp8) {
    return decode_e4m3(load_raw<u8v>(bytes + i));
  } else if constexpr (F == Format::fp8_e5m2) {
    return decode_e5m2(load_raw<u8v>(bytes + i));
  } else if constexpr (F == Format::int8) {
    return decode_int8(load_raw<u8v>(bytes + i));
  } else if constexpr (F == Format::int4) {
    return decode_int4(codes, i, kInt4Zero);
  } else {
    static_assert(F == Format::mxfp4 || F == Format::nvfp4);
#if defined(__AVX512F__)
    // Byte b in a 64-bit lane, and its high nibble at the bottom of the lane's upper half: the
    // permutation looks at four bits of each 32-bit index only.
    const __m512i spread = _mm512_cvtepu8_epi64(
        _mm_loadl_epi64(static_cast<const __m128i*>(static_cast<const void*>(bytes + i / 2))));
    const __m512i index = _mm512_or_si512(spread, _mm512_slli_epi64(spread, 28));
    const __m512 table = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f,
                                        -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
    return bits_as<f32v>(_mm512_permutexvar_ps(index, table));
#else
    return decode_e2m1(load_nibbles(bytes + i / 2));
#endif
  }
}

}  // namespace halftone::HALFTONE_LEVEL
