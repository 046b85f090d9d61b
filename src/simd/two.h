// Two vectors of f32 from 2 kLanes neighbouring elements, for loops that treat all elements alike.
// kSplit: in the format's own order: bf16 splits into its even elements, a shift, and its odd ones,
// a mask, which saves the widening. Operands of several formats meet as they lie, without it.
#pragma once
#include "simd/stream_lines.h"
#include "simd/vec.h"

namespace halftone::HALFTONE_LEVEL {

struct Two {
  f32v a, b;
};

// Elements that a Two holds, and their bytes.
inline constexpr int kTwo = 2 * kLanes;
template <Format F>
inline constexpr int kTwoBytes = kTwo*(F == Format::f32 ? 4 : 2);

template <Format F, bool kSplit = true>
HALFTONE_INLINE Two load_two(const void* p) {
  if constexpr (F == Format::bf16 && kSplit) {
    const auto words = load_raw<u32v>(p);
    return {bits_as<f32v>(words << 16), bits_as<f32v>(words & 0xffff0000u)};
  } else {
    return {load<F>(p, 0), load<F>(p, kLanes)};
  }
}

// The elements of load_two<F> as they lie in memory.
template <Format F>
HALFTONE_INLINE Two in_order(Two v) {
  if constexpr (F != Format::bf16) return v;
#if defined(__AVX512F__)
  return {__builtin_shufflevector(v.a, v.b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
          __builtin_shufflevector(v.a, v.b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30,
                                  15, 31)};
#elif defined(__AVX2__)
  return {__builtin_shufflevector(v.a, v.b, 0, 8, 1, 9, 2, 10, 3, 11),
          __builtin_shufflevector(v.a, v.b, 4, 12, 5, 13, 6, 14, 7, 15)};
#else
  return {__builtin_shufflevector(v.a, v.b, 0, 4, 1, 5),
          __builtin_shufflevector(v.a, v.b, 2, 6, 3, 7)};
#endif
}

#if defined(__AVX512BF16__)
// VCVTNE2PS2BF16 flushes subnormals. They are rare, so its zeros are looked at first.
HALFTONE_INLINE bool loses_subnormals(u32v rounded, f32v a, f32v b) {
  const __mmask32 zeros =
      _mm512_testn_epi16_mask(bits_as<__m512i>(rounded), _mm512_set1_epi16(0x7fff));
  if (__builtin_expect(zeros == 0, 1)) return false;
  constexpr int kSubnormal = 0x20;
  return !_kortestz_mask16_u8(_mm512_fpclass_ps_mask(bits_as<__m512>(a), kSubnormal),
                              _mm512_fpclass_ps_mask(bits_as<__m512>(b), kSubnormal));
}
#endif

// bf16 words of both vectors, as load_two<bf16, kSplit> reads them. kNormal: no number is
// subnormal.
template <bool kSplit, bool kNormal = false>
HALFTONE_INLINE u32v round_two(Two v) {
#if defined(__AVX512BF16__)
  const auto rounded =
      bits_as<u32v>(_mm512_cvtne2ps_pbh(bits_as<__m512>(v.b), bits_as<__m512>(v.a)));
  if (kNormal || __builtin_expect(!loses_subnormals(rounded, v.a, v.b), 1)) {
    if constexpr (!kSplit) return rounded;
    alignas(64) static constexpr uint16_t kInterleaved[32] = {
        0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return bits_as<u32v>(_mm512_maskz_permutexvar_epi16(
        0xffffffffu, load_raw<__m512i>(kInterleaved), bits_as<__m512i>(rounded)));
  }
#endif
  if constexpr (!kSplit) {
    const u16v halves[2] = {narrow_bf16(v.a), narrow_bf16(v.b)};
    return load_raw<u32v>(halves);
  }
  // As narrow_bf16, the result in the upper half.
  const auto round = [](f32v x) __attribute__((always_inline)) {
    const u32v u = bits_as<u32v>(x);
    const i32v is_nan = bits_as<i32v>((u & 0x7fffffffu) > broadcast_u32(0x7f800000u));
    return select(is_nan, u | 0x400000u, u + 0x7fffu + ((u >> 16) & 1));
  };
  return (round(v.a) >> 16) | (round(v.b) & 0xffff0000u);
}

// kExact: of numbers that F holds already, in the order of load_two<F>; kNormal: none is subnormal.
template <Format F, bool kSplit = true, bool kExact = false, bool kNormal = false>
HALFTONE_INLINE void store_two(void* p, Two v, bool streamed = false) {
  const auto put = [&](int64_t at, auto x) __attribute__((always_inline)) {
    write_raw(static_cast<char*>(p) + at, x, streamed);
  };
  if constexpr (F == Format::bf16 && kSplit && kExact) {
    put(0, (bits_as<u32v>(v.a) >> 16) | (bits_as<u32v>(v.b) & 0xffff0000u));
  } else if constexpr (F == Format::bf16) {
    put(0, round_two<kSplit, kNormal>(v));
  } else if constexpr (F == Format::f16) {
    const u16v halves[2] = {narrow_f16(v.a), narrow_f16(v.b)};
    put(0, load_raw<u32v>(halves));
  } else {
    put(0, v.a);
    put(sizeof v.a, v.b);
  }
}

// Of the first `count` < kTwo elements; the others read as 0 and are not written.
template <Format F, bool kSplit = true>
HALFTONE_INLINE Two load_two_partial(const void* p, int64_t count) {
  char copy[kTwoBytes<F>] = {};
  std::memcpy(copy, p, static_cast<size_t>(count * (kTwoBytes<F> / kTwo)));
  return load_two<F, kSplit>(copy);
}
template <Format F, bool kSplit = true, bool kNormal = false>
HALFTONE_INLINE void store_two_partial(void* p, Two v, int64_t count) {
  char copy[kTwoBytes<F>];
  store_two<F, kSplit, false, kNormal>(copy, v);
  std::memcpy(p, copy, static_cast<size_t>(count * (kTwoBytes<F> / kTwo)));
}

// Streams from beyond the second-level cache ask for what comes so many bytes later: the hardware's
// prefetcher stops at every page and stays too close to a loop that computes.
inline constexpr int64_t kAhead = 4096;
template <int kBytes>
HALFTONE_INLINE void ask_ahead(const char* p) {
  for (int64_t line = 0; line < kBytes; line += 64) __builtin_prefetch(p + kAhead + line);
}

}  // namespace halftone::HALFTONE_LEVEL
