// Functions of vectors beyond vec.h: sigmoid, tanh, expm1, log, the normal distribution.
//
// Each comes in two precisions. `Half` is for results that are rounded to 16 bits: AVX-512 levels
// then use shorter polynomials, within 2^-15 of the value; other levels take the full ones.
// Polynomials are minimax over the stated interval (Remez), coefficients from the constant up.
#pragma once
#include "simd/vec.h"

namespace halftone::HALFTONE_LEVEL {

template <class... C>
HALFTONE_INLINE f32v polynomial(f32v x, float last) {
  (void)x;
  return broadcast(last);
}
template <class... C>
HALFTONE_INLINE f32v polynomial(f32v x, float first, C... rest) {
  return fma(polynomial(x, rest...), x, broadcast(first));
}

HALFTONE_INLINE f32v root(f32v x) {
#if defined(__AVX512F__)
  return bits_as<f32v>(_mm512_maskz_sqrt_ps(0xffff, bits_as<__m512>(x)));
#elif defined(__AVX2__)
  return bits_as<f32v>(_mm256_sqrt_ps(bits_as<__m256>(x)));
#elif defined(__x86_64__)
  return bits_as<f32v>(_mm_sqrt_ps(bits_as<__m128>(x)));
#else
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}

// exp(factor x), to 2^-16 when Half; infinities and NaN as exp. The factor should be worked out
// beforehand: it costs nothing then.
template <bool Half>
HALFTONE_INLINE f32v exponential(f32v x, f32v factor) {
#if defined(__AVX512DQ__)
  if constexpr (Half) {
    // 2^t with t = n + f, 0 <= f < 1: VREDUCEPS gives f, VSCALEFPS multiplies by 2^floor(t).
    const __m512 t = bits_as<__m512>(x * (factor * 1.44269504f));
    constexpr int kFloor = 0x09;
    const f32v f = bits_as<f32v>(_mm512_maskz_reduce_ps(0xffff, t, kFloor));
    const f32v p = polynomial(f, 1.0000025933f, 6.9300383830e-1f, 2.4144273389e-1f,
                              5.2011502778e-2f, 1.3534145254e-2f);
    return bits_as<f32v>(_mm512_maskz_scalef_ps(0xffff, bits_as<__m512>(p), t));
  }
#endif
  return exp(x * factor);
}
template <bool Half>
HALFTONE_INLINE f32v exponential(f32v x, float factor = 1) {
  return exponential<Half>(x, broadcast(factor));
}

// 1 / d for d >= 1; 0 from 2^126 on, NaN of NaN.
HALFTONE_INLINE f32v reciprocal(f32v d) {
#if defined(__AVX512F__)
  // The division alone would take as long as everything else; an estimate of 14 bits and a Newton
  // step are as good. The mask drops the NaN that the step makes of infinity.
  const __m512 v = bits_as<__m512>(d), y = _mm512_maskz_rcp14_ps(0xffff, v);
  const __mmask16 near = _mm512_cmp_ps_mask(v, _mm512_set1_ps(0x1p126f), _CMP_NGE_UQ);
  return bits_as<f32v>(
      _mm512_maskz_fmadd_ps(near, y, _mm512_fnmadd_ps(v, y, _mm512_set1_ps(1.0f)), y));
#else
  return 1.0f / d;
#endif
}
// Likewise of 1 <= d < 2^126.
HALFTONE_INLINE f32v reciprocal_bounded(f32v d) {
#if defined(__AVX512F__)
  const __m512 v = bits_as<__m512>(d), y = _mm512_maskz_rcp14_ps(0xffff, v);
  return bits_as<f32v>(_mm512_fmadd_ps(y, _mm512_fnmadd_ps(v, y, _mm512_set1_ps(1.0f)), y));
#else
  return 1.0f / d;
#endif
}

// 1 / (1 + exp(-factor x)).
template <bool Half>
HALFTONE_INLINE f32v sigmoid(f32v x, float factor = 1) {
  return reciprocal(1.0f + exponential<Half>(x, -factor));
}

template <bool Half>
HALFTONE_INLINE f32v tanh(f32v x) {
  if constexpr (Half) {
    // x P(x^2) / Q(x^2) to 2^-17.8 up to 5.55, from where on tanh is 1 to 2^-15. NaN passes.
    const f32v v = max(broadcast(-5.55f), min(broadcast(5.55f), x)), z = v * v;
    const f32v p = polynomial(z, 9.999956767e-1f, 1.1565966764e-1f, 1.5698535803e-3f);
    const f32v q = polynomial(z, 1.0f, 4.4896158593e-1f, 1.7929204497e-2f, 5.9875987957e-5f);
    return v * p * reciprocal_bounded(q);
  }
  const f32v z = x * x;
  const f32v p = polynomial(z, -3.3333283925e-1f, 1.3331491278e-1f, -5.3743497239e-2f,
                            2.0650584368e-2f, -5.7170416883e-3f);  // on |x| < 0.625
  const f32v a = abs(x);
  const f32v large = 1.0f - 2.0f * reciprocal(1.0f + exponential<Half>(a, 2));
  const u32v sign = bits_as<u32v>(x) & broadcast_u32(0x80000000u);
  return select(a < broadcast(0.625f), fma(x * z, p, x),
                bits_as<f32v>(bits_as<u32v>(large) | sign));
}

// exp(x) - 1 for x <= 0, without cancellation near 0.
HALFTONE_INLINE f32v expm1_negative(f32v x) {
  // Taylor's polynomial of degree 6 leaves less than 2^-26 of |x| up to 1/4; beyond that the
  // subtraction costs at most two bits.
  const f32v q = polynomial(x, 1.0f, 0.5f, 1 / 6.0f, 1 / 24.0f, 1 / 120.0f, 1 / 720.0f, 1 / 5040.f);
  return select(x > broadcast(-0.25f), q * x, exp(x) - 1.0f);
}

// ln x; of 0 -infinity, of less NaN.
HALFTONE_INLINE f32v log(f32v x) {
  const i32v tiny = x < broadcast(0x1p-126f);
  const u32v u = bits_as<u32v>(select(tiny, x * 0x1p23f, x));
  // x = 2^n (1 + m), 1 + m in [sqrt(1/2), sqrt(2)).
  const u32v moved = u - broadcast_u32(0x3f3504f3u);
  const i32v n = (bits_as<i32v>(moved) >> 23) + (tiny & -23);
  const f32v m =
      bits_as<f32v>((moved & broadcast_u32(0x7fffffu)) + broadcast_u32(0x3f3504f3u)) - 1.0f;
  const f32v p = polynomial(m, 3.3333312605e-1f, -2.5000009589e-1f, 2.0002118586e-1f,
                            -1.6667996047e-1f, 1.4219554017e-1f, -1.2405589839e-1f,
                            1.1888153172e-1f, -1.1675631588e-1f, 6.7466255442e-2f);
  const f32v whole = float_from(n), z = m * m;
  // ln 2 in two parts, the first exact in products with n.
  f32v low = fma(whole, broadcast(-2.12194440e-4f), z * m * p);
  low = fma(z, broadcast(-0.5f), low);
  f32v y = fma(whole, broadcast(0.693359375f), m + low);
  y = select(x < broadcast(__builtin_inff()), y, x);  // infinity and NaN
  y = select(x == f32v{}, broadcast(-__builtin_inff()), y);
  return select(x < f32v{}, broadcast(__builtin_nanf("")), y);
}

// ln(1 + e) for 0 <= e <= 1, to 2^-27 of itself before rounding (Half: 2^-16.8).
template <bool Half>
HALFTONE_INLINE f32v log1p_unit(f32v e) {
  if constexpr (Half) {
    return e * polynomial(e, 9.9999159832e-1f, -4.9936137199e-1f, 3.2520672869e-1f,
                          -2.1004880977e-1f, 1.0122240953e-1f, -2.386919782e-2f);
  }
  return e * polynomial(e, 9.9999999529e-1f, -4.9999902430e-1f, 3.3329962569e-1f, -2.4954134797e-1f,
                        1.9675943468e-1f, -1.5305601128e-1f, 1.0603664657e-1f, -5.6959593521e-2f,
                        1.9851477782e-2f, -3.2440256501e-3f);
}

// x times the normal distribution function of x, x (1 + erf(x / sqrt 2)) / 2, relatively exact on
// both sides: with z = |x|, Phi(-z) = exp(-z^2/2) t P(t), t = 1 / (1 + c z), P to 2^-28 (Half:
// 2^-16.9) for z <= 14, beyond which exp(-z^2/2) is 0: at 20 without any doubt.
template <bool Half>
HALFTONE_INLINE f32v normal_gate(f32v x) {
#if defined(__AVX512DQ__)
  constexpr int kSmallerMagnitude = 0x0a;  // of the two, without sign; 20 of NaN
  const f32v z = bits_as<f32v>(_mm512_maskz_range_ps(
      0xffff, bits_as<__m512>(x), bits_as<__m512>(broadcast(20.0f)), kSmallerMagnitude));
#else
  const f32v z = min(abs(x), broadcast(20.0f));
#endif
  const f32v square = z * z;
  f32v p, t, e;
  if constexpr (Half) {
    t = reciprocal_bounded(fma(z, broadcast(0.3f), broadcast(1.0f)));
    p = polynomial(t, 1.2007423075e-1f, 1.1374193501e-1f, 1.4419636918e-1f, -1.6948103430e-2f,
                   2.1603713909e-1f, -7.7097467757e-2f);
    e = exponential<Half>(square, -0.5f);
  } else {
    t = reciprocal_bounded(fma(z, broadcast(0.24f), broadcast(1.0f)));
    p = polynomial(t, 9.5742438770e-2f, 9.5850773904e-2f, 8.8983646014e-2f, 8.7551650428e-2f,
                   2.8714617124e-2f, 1.4048725541e-1f, -1.4319255156e-1f, 2.0472325684e-1f,
                   -1.2433440513e-1f, 2.5473319755e-2f);
    e = exp(square * -0.5f);
    const f32v lost = fma(z, z, -square);  // of the square's rounding
    e = fma(e, lost * -0.5f, e);
  }
  const f32v tail = e * t * p;
  return x * select(x < f32v{}, tail, 1.0f - tail);
}

}  // namespace halftone::HALFTONE_LEVEL
