// Vectors of one ISA level, for files compiled once per level (halftone_level_sources).
//
// Compiler vector extensions carry the arithmetic; intrinsics appear only where the language has no
// word for the instruction. Everything is always inlined into the level's own namespace, so that
// code of one level never ends up in another.
#pragma once
#include <bit>

#include "halftone/dtype.h"
#include "simd/lanes.h"

namespace halftone::HALFTONE_LEVEL {

// a * b + c with one rounding where the level has FMA, two where it has not (baseline).
HALFTONE_INLINE f32v fma(f32v a, f32v b, f32v c) {
#if defined(__AVX512F__)
  return bits_as<f32v>(_mm512_fmadd_ps(bits_as<__m512>(a), bits_as<__m512>(b), bits_as<__m512>(c)));
#elif defined(__FMA__)
  return bits_as<f32v>(_mm256_fmadd_ps(bits_as<__m256>(a), bits_as<__m256>(b), bits_as<__m256>(c)));
#else
  return a * b + c;
#endif
}

// NaN in either operand gives b, as do zeros of either sign: what MAXPS and MINPS do.
HALFTONE_INLINE f32v max(f32v a, f32v b) {
#if defined(__AVX512F__)
  return bits_as<f32v>(_mm512_maskz_max_ps(0xffff, bits_as<__m512>(a), bits_as<__m512>(b)));
#elif defined(__AVX2__)
  return bits_as<f32v>(_mm256_max_ps(bits_as<__m256>(a), bits_as<__m256>(b)));
#elif defined(__x86_64__)
  return bits_as<f32v>(_mm_max_ps(bits_as<__m128>(a), bits_as<__m128>(b)));
#else
  const i32v keep = a > b;
  return bits_as<f32v>((bits_as<i32v>(a) & keep) | (bits_as<i32v>(b) & ~keep));
#endif
}
HALFTONE_INLINE f32v min(f32v a, f32v b) {
#if defined(__AVX512F__)
  return bits_as<f32v>(_mm512_maskz_min_ps(0xffff, bits_as<__m512>(a), bits_as<__m512>(b)));
#elif defined(__AVX2__)
  return bits_as<f32v>(_mm256_min_ps(bits_as<__m256>(a), bits_as<__m256>(b)));
#elif defined(__x86_64__)
  return bits_as<f32v>(_mm_min_ps(bits_as<__m128>(a), bits_as<__m128>(b)));
#else
  const i32v keep = a < b;
  return bits_as<f32v>((bits_as<i32v>(a) & keep) | (bits_as<i32v>(b) & ~keep));
#endif
}
// Lanes of `mask` are all ones or zero, as comparisons make them.
HALFTONE_INLINE f32v select(i32v mask, f32v yes, f32v no) { return mask != 0 ? yes : no; }
HALFTONE_INLINE u32v select(i32v mask, u32v yes, u32v no) { return mask != 0 ? yes : no; }
HALFTONE_INLINE f32v abs(f32v x) {
  return bits_as<f32v>(bits_as<u32v>(x) & broadcast_u32(0x7fffffffu));
}

// Lane i + width in lane i, of width lanes; the others are of no use.
template <int kWidth>
HALFTONE_INLINE f32v upper_lanes(f32v x) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(x, x, kWidth, kWidth + 1, kWidth + 2, kWidth + 3, kWidth + 4,
                                 kWidth + 5, kWidth + 6, kWidth + 7, 8, 9, 10, 11, 12, 13, 14, 15);
#elif defined(__AVX2__)
  return __builtin_shufflevector(x, x, kWidth, kWidth + 1, kWidth + 2, kWidth + 3, 4, 5, 6, 7);
#else
  return __builtin_shufflevector(x, x, kWidth, kWidth + 1, 2, 3);
#endif
}
// join() of all lanes by halving: lane i with lane i + width / 2, so that the order is fixed.
template <class Join>
HALFTONE_INLINE float fold_lanes(f32v x, const Join& join) {
  if constexpr (kLanes > 8) x = join(x, upper_lanes<8>(x));
  if constexpr (kLanes > 4) x = join(x, upper_lanes<4>(x));
  x = join(x, upper_lanes<2>(x));
  return join(x, upper_lanes<1>(x))[0];
}
HALFTONE_INLINE float reduce_add(f32v x) {
  return fold_lanes(
      x, [](f32v a, f32v b) __attribute__((always_inline)) { return a + b; });
}
HALFTONE_INLINE float reduce_max(f32v x) {
  return fold_lanes(
      x, [](f32v a, f32v b) __attribute__((always_inline)) { return max(a, b); });
}

// --- bf16 and f16, exactly as formats/codec.h
// -----------------------------------------------------

HALFTONE_INLINE f32v widen_bf16(u16v x) { return bits_as<f32v>(widen_u16(x) << 16); }
HALFTONE_INLINE u16v narrow_bf16(f32v x) {
#if defined(__AVX512BF16__)
  // VCVTNEPS2BF16 flushes subnormals, which are rare; integer rounding, below, does not.
  constexpr int kSubnormal = 0x20;
  if (__builtin_expect(_mm512_fpclass_ps_mask(bits_as<__m512>(x), kSubnormal) == 0, 1)) {
    return bits_as<u16v>(_mm512_cvtneps_pbh(bits_as<__m512>(x)));
  }
#endif
  const u32v u = bits_as<u32v>(x);
  const u32v rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
  const u32v quiet = (u >> 16) | 0x40;
  const i32v is_nan = bits_as<i32v>((u & 0x7fffffffu) > broadcast_u32(0x7f800000u));
  return narrow_u16(select(is_nan, quiet, rounded));
}

HALFTONE_INLINE f32v widen_f16(u16v x) {
#if defined(__AVX512F__)
  // The unmasked intrinsics pass an undefined vector, of which GCC 12 warns.
  return bits_as<f32v>(_mm512_maskz_cvtph_ps(0xffff, bits_as<__m256i>(x)));
#elif defined(__F16C__)
  return bits_as<f32v>(_mm256_cvtph_ps(bits_as<__m128i>(x)));
#else
  const u32v code = widen_u16(x);
  const u32v sign = (code & 0x8000u) << 16;
  const u32v magnitude = (code & 0x7fffu) << 13;
  // Multiplying by 2^112 re-biases normal and subnormal codes alike; infinity and NaN need 255.
  const u32v finite =
      bits_as<u32v>(bits_as<f32v>(magnitude) * broadcast(std::bit_cast<float>(0x77800000u)));
  const i32v special = bits_as<i32v>((code & 0x7c00u) == broadcast_u32(0x7c00u));
  const i32v nan = bits_as<i32v>((code & 0x7fffu) > broadcast_u32(0x7c00u));
  const u32v quiet = select(nan, broadcast_u32(0x400000u), u32v{});
  return bits_as<f32v>(sign | select(special, magnitude | 0x7f800000u | quiet, finite));
#endif
}
HALFTONE_INLINE u16v narrow_f16(f32v x) {
#if defined(__AVX512F__)
  return bits_as<u16v>(
      _mm512_maskz_cvtps_ph(0xffff, bits_as<__m512>(x), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
  return bits_as<u16v>(_mm256_cvtps_ph(bits_as<__m256>(x), _MM_FROUND_TO_NEAREST_INT));
#else
  const u32v all = bits_as<u32v>(x);
  const u32v u = all & 0x7fffffffu;
  const u32v sign = (all >> 16) & 0x8000u;
  const u32v normal = ((u + 0xfffu + ((u >> 13) & 1)) >> 13) - (112u << 10);
  const f32v magic = broadcast(0.5f);  // its last bit is the f16 subnormal spacing, 2^-24
  const u32v tiny = bits_as<u32v>(bits_as<f32v>(u) + magic) - bits_as<u32v>(magic);
  u32v code = select(bits_as<i32v>(u < broadcast_u32(0x38800000u)), tiny, normal);
  code = select(bits_as<i32v>(u >= broadcast_u32(0x477ff000u)), broadcast_u32(0x7c00u), code);
  const i32v nan = bits_as<i32v>(u > broadcast_u32(0x7f800000u));
  code = select(nan, 0x7e00u | ((u >> 13) & 0x3ffu), code);
  return narrow_u16(sign | code);
#endif
}

// --- loads and stores by format
// -------------------------------------------------------------------

// Element `i` of a row of plain floats starting at `p`.
template <Format F>
HALFTONE_INLINE f32v load(const void* p, int64_t i) {
  static_assert(F == Format::f32 || F == Format::bf16 || F == Format::f16);
  if constexpr (F == Format::f32) {
    return load_raw<f32v>(static_cast<const float*>(p) + i);
  } else if constexpr (F == Format::bf16) {
    return widen_bf16(load_raw<u16v>(static_cast<const uint16_t*>(p) + i));
  } else {
    return widen_f16(load_raw<u16v>(static_cast<const uint16_t*>(p) + i));
  }
}
template <Format F>
HALFTONE_INLINE void store(void* p, int64_t i, f32v x) {
  static_assert(F == Format::f32 || F == Format::bf16 || F == Format::f16);
  if constexpr (F == Format::f32) {
    store_raw(static_cast<float*>(p) + i, x);
  } else if constexpr (F == Format::bf16) {
    store_raw(static_cast<uint16_t*>(p) + i, narrow_bf16(x));
  } else {
    store_raw(static_cast<uint16_t*>(p) + i, narrow_f16(x));
  }
}
// Elements i .. i + 2 kLanes - 1.
template <Format F>
HALFTONE_INLINE void store_pair(void* p, int64_t i, f32v a, f32v b) {
#if defined(__AVX512BF16__)
  if constexpr (F == Format::bf16) {
    const __m512 x = bits_as<__m512>(a), y = bits_as<__m512>(b);
    constexpr int kSubnormal = 0x20;  // as in narrow_bf16
    if (__builtin_expect(_kortestz_mask16_u8(_mm512_fpclass_ps_mask(x, kSubnormal),
                                             _mm512_fpclass_ps_mask(y, kSubnormal)),
                         1)) {
      store_raw(static_cast<uint16_t*>(p) + i, _mm512_cvtne2ps_pbh(y, x));
      return;
    }
  }
#endif
  store<F>(p, i, a);
  store<F>(p, i + kLanes, b);
}
// The first `count` < kLanes elements; the other lanes read as 0 and are not written. With masks
// where there are: a copy of unknown length is a call, and no load is forwarded from its stores.
template <Format F>
HALFTONE_INLINE f32v load_partial(const void* p, int64_t i, int count) {
  constexpr int kBytes = F == Format::f32 ? 4 : 2;
  const auto* from = static_cast<const unsigned char*>(p) + i * kBytes;
  alignas(64) unsigned char copy[kLanes * kBytes] = {};
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  const auto held = static_cast<__mmask16>((1u << count) - 1);
  if constexpr (F == Format::f32) return bits_as<f32v>(_mm512_maskz_loadu_ps(held, from));
  store_raw(copy, _mm256_maskz_loadu_epi16(held, from));
#else
  std::memcpy(copy, from, static_cast<size_t>(count * kBytes));
#endif
  return load<F>(copy, 0);
}
template <Format F>
HALFTONE_INLINE void store_partial(void* p, int64_t i, f32v x, int count) {
  constexpr int kBytes = F == Format::f32 ? 4 : 2;
  auto* to = static_cast<unsigned char*>(p) + i * kBytes;
  alignas(64) unsigned char copy[kLanes * kBytes];
  store<F>(copy, 0, x);
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  const auto held = static_cast<__mmask16>((1u << count) - 1);
  if constexpr (F == Format::f32) {
    _mm512_mask_storeu_ps(to, held, load_raw<__m512>(copy));
  } else {
    _mm256_mask_storeu_epi16(to, held, load_raw<__m256i>(copy));
  }
#else
  std::memcpy(to, copy, static_cast<size_t>(count * kBytes));
#endif
}

// --- exp
// ------------------------------------------------------------------------------------------

// exp(x) within 2 ulp where the result is normal; a subnormal result (x below ln 2^-126) is 0, as
// producing it costs some processors a hundred cycles. Above 88.72 it gives infinity, NaN stays
// NaN. x = n ln 2 + r, |r| <= ln 2 / 2; exp(r) by the Taylor polynomial of degree 6 with the
// coefficients moved by minimax on that interval (relative error below 2^-26 before rounding).
HALFTONE_INLINE f32v exp(f32v x) {
  const f32v shift = broadcast(12582912.0f);   // 1.5 * 2^23: adding it rounds to an integer
  const f32v lowest = broadcast(-87.336540f);  // exp of it is just above 2^-126
  const f32v highest = broadcast(88.8f);
  const f32v clamped = min(highest, max(lowest, x));  // NaN passes through
  const f32v n = fma(clamped, broadcast(1.44269504f), shift);
  const f32v whole = n - shift;
  f32v r = fma(whole, broadcast(-0.693359375f), clamped);  // ln 2 in two parts, the first exact
  r = fma(whole, broadcast(2.12194440e-4f), r);
  // Pairs of terms side by side: half the latency of Horner's rule for as many instructions.
  const f32v r2 = r * r;
  const f32v low = fma(broadcast(1.6666665459e-1f), r, broadcast(5.0000001201e-1f));
  const f32v middle = fma(broadcast(8.3334519073e-3f), r, broadcast(4.1665795894e-2f));
  const f32v high = fma(broadcast(1.9875691500e-4f), r, broadcast(1.3981999507e-3f));
  const f32v p = fma(fma(fma(high, r2, middle), r2, low), r2, r) + 1.0f;
#if defined(__AVX512F__)
  const __mmask16 normal =
      _mm512_cmp_ps_mask(bits_as<__m512>(x), bits_as<__m512>(lowest), _CMP_NLT_UQ);
  return bits_as<f32v>(_mm512_maskz_scalef_ps(normal, bits_as<__m512>(p), bits_as<__m512>(whole)));
#else
  // 2^n in two factors, since n may be 128.
  const i32v e = bits_as<i32v>(n) - broadcast_i32(0x4b400000);
  const i32v half = e >> 1;
  const f32v first = bits_as<f32v>((half + 127) << 23);
  const f32v second = bits_as<f32v>((e - half + 127) << 23);
  const f32v y = p * first * second;
  return select(x != x, x, select(x < lowest, f32v{}, y));
#endif
}

}  // namespace halftone::HALFTONE_LEVEL
