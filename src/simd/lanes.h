// The vector types of one ISA level: lanes, their raw loads and stores, their widths.
#pragma once
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#ifndef HALFTONE_LEVEL
#error "simd/ is for files compiled by halftone_level_sources"
#endif

#define HALFTONE_INLINE inline __attribute__((always_inline))

namespace halftone::HALFTONE_LEVEL {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

typedef float f32v __attribute__((vector_size(kLanes * 4)));
typedef int32_t i32v __attribute__((vector_size(kLanes * 4)));
typedef uint32_t u32v __attribute__((vector_size(kLanes * 4)));
typedef uint16_t u16v __attribute__((vector_size(kLanes * 2)));
typedef uint8_t u8v __attribute__((vector_size(kLanes)));

template <class To, class From>
HALFTONE_INLINE To bits_as(From x) {
  static_assert(sizeof(To) == sizeof(From));
  To y;
  std::memcpy(&y, &x, sizeof y);
  return y;
}

template <class V>
HALFTONE_INLINE V load_raw(const void* p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class V>
HALFTONE_INLINE void store_raw(void* p, V v) {
  std::memcpy(p, &v, sizeof v);
}

HALFTONE_INLINE f32v broadcast(float x) { return x - f32v{}; }  // exact, also for -0 and NaN
HALFTONE_INLINE u32v broadcast_u32(uint32_t x) { return x + u32v{}; }
HALFTONE_INLINE i32v broadcast_i32(int32_t x) { return x + i32v{}; }

// --- integer widths ------------------------------------------------------------------------------
// One instruction each where there is one: __builtin_convertvector goes through halves in GCC 12.

HALFTONE_INLINE u32v widen_u8(u8v x) {
#if defined(__AVX512F__)
  return bits_as<u32v>(_mm512_maskz_cvtepu8_epi32(0xffff, bits_as<__m128i>(x)));
#elif defined(__AVX2__)
  return bits_as<u32v>(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(bits_as<long long>(x))));
#elif defined(__SSE4_1__)
  return bits_as<u32v>(_mm_cvtepu8_epi32(_mm_cvtsi32_si128(bits_as<int>(x))));
#else
  return __builtin_convertvector(x, u32v);
#endif
}
HALFTONE_INLINE u32v widen_u16(u16v x) {
#if defined(__AVX512F__)
  return bits_as<u32v>(_mm512_maskz_cvtepu16_epi32(0xffff, bits_as<__m256i>(x)));
#elif defined(__AVX2__)
  return bits_as<u32v>(_mm256_cvtepu16_epi32(bits_as<__m128i>(x)));
#elif defined(__SSE4_1__)
  return bits_as<u32v>(_mm_cvtepu16_epi32(_mm_cvtsi64_si128(bits_as<long long>(x))));
#else
  return __builtin_convertvector(x, u32v);
#endif
}
// The low bits of each lane; what lies above them must be 0.
HALFTONE_INLINE u16v narrow_u16(u32v x) {
#if defined(__AVX512F__)
  return bits_as<u16v>(_mm512_maskz_cvtepi32_epi16(0xffff, bits_as<__m512i>(x)));
#elif defined(__AVX2__)
  const __m256i packed = _mm256_packus_epi32(bits_as<__m256i>(x), bits_as<__m256i>(x));
  return bits_as<u16v>(_mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
#elif defined(__SSE4_1__)
  const __m128i packed = _mm_packus_epi32(bits_as<__m128i>(x), bits_as<__m128i>(x));
  return bits_as<u16v>(_mm_cvtsi128_si64(packed));
#else
  return __builtin_convertvector(x, u16v);
#endif
}
HALFTONE_INLINE u8v narrow_u8(u32v x) {
#if defined(__AVX512F__)
  return bits_as<u8v>(_mm512_maskz_cvtepi32_epi8(0xffff, bits_as<__m512i>(x)));
#elif defined(__AVX2__)
  const __m128i words = bits_as<__m128i>(narrow_u16(x));
  return bits_as<u8v>(_mm_cvtsi128_si64(_mm_packus_epi16(words, words)));
#elif defined(__SSE4_1__)
  const __m128i words = _mm_packus_epi32(bits_as<__m128i>(x), bits_as<__m128i>(x));
  return bits_as<u8v>(_mm_cvtsi128_si32(_mm_packus_epi16(words, words)));
#else
  return __builtin_convertvector(x, u8v);
#endif
}
HALFTONE_INLINE f32v float_from(i32v x) {
#if defined(__AVX512F__)
  return bits_as<f32v>(_mm512_maskz_cvtepi32_ps(0xffff, bits_as<__m512i>(x)));
#elif defined(__AVX2__)
  return bits_as<f32v>(_mm256_cvtepi32_ps(bits_as<__m256i>(x)));
#else
  return __builtin_convertvector(x, f32v);
#endif
}

// Whether a comparison holds in any lane.
HALFTONE_INLINE bool any(i32v mask) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask(bits_as<__m512i>(mask), bits_as<__m512i>(mask)) != 0;
#elif defined(__AVX2__)
  return _mm256_testz_si256(bits_as<__m256i>(mask), bits_as<__m256i>(mask)) == 0;
#elif defined(__SSE4_1__)
  return _mm_testz_si128(bits_as<__m128i>(mask), bits_as<__m128i>(mask)) == 0;
#else
  int32_t lane[kLanes], all = 0;
  store_raw(lane, mask);
  for (int i = 0; i < kLanes; ++i) all |= lane[i];
  return all != 0;
#endif
}

}  // namespace halftone::HALFTONE_LEVEL
