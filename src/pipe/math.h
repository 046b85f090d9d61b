// Functions of a float beyond the instructions, as src/simd/math.h has them for vectors: the same
// polynomials, so that a GPU's results differ from the CPU's by roundings alone.
//
// `kHalf` is for results that are rounded to 16 bits: exponentials and reciprocals then come from
// the special-function unit, within 2^-15 of the value.
#pragma once
#include <bit>

#include "hw/math.h"
#include "hw/mufu.h"

namespace halftone::pipe {

// Coefficients from the constant up.
HT_DEVICE float polynomial(float, float last) { return last; }
template <class... C>
HT_DEVICE float polynomial(float x, float first, C... rest) {
  return hw::fma(polynomial(x, rest...), x, first);
}

// NaN passes through both.
HT_DEVICE float at_least(float low, float x) { return x < low ? low : x; }
HT_DEVICE float at_most(float high, float x) { return x > high ? high : x; }

// Within 2 ulp where the result is normal, 0 where it is subnormal; above 88.72 infinity.
HT_DEVICE float exp(float x) {
  constexpr float kShift = 12582912.0f;   // 1.5 * 2^23: adding it rounds to an integer
  constexpr float kLowest = -87.336540f;  // exp of it is just above 2^-126
  const float clamped = at_most(88.8f, at_least(kLowest, x));
  const float n = hw::fma(clamped, 1.44269504f, kShift);
  const float whole = n - kShift;
  float r = hw::fma(whole, -0.693359375f, clamped);  // ln 2 in two parts, the first exact
  r = hw::fma(whole, 2.12194440e-4f, r);
  const float r2 = r * r;
  const float low = hw::fma(1.6666665459e-1f, r, 5.0000001201e-1f);
  const float middle = hw::fma(8.3334519073e-3f, r, 4.1665795894e-2f);
  const float high = hw::fma(1.9875691500e-4f, r, 1.3981999507e-3f);
  const float p = hw::fma(hw::fma(hw::fma(high, r2, middle), r2, low), r2, r) + 1.0f;
  // 2^n in two factors, since n may be 128.
  const int32_t e = std::bit_cast<int32_t>(n) - 0x4b400000, half = e >> 1;
  const float first = std::bit_cast<float>(static_cast<uint32_t>(half + 127) << 23);
  const float second = std::bit_cast<float>(static_cast<uint32_t>(e - half + 127) << 23);
  const float y = p * first * second;
  return x != x ? x : x < kLowest ? 0 : y;
}

// exp(x) for x <= 0: one power of two is enough, and it is 0 from 2^-127 down. To the bits of exp
// where that is not 0.
HT_DEVICE float exp_of_negative(float x) {
  constexpr float kShift = 12582912.0f;
  const float clamped = hw::max_nan(-88.0f, x);
  const float n = hw::fma(clamped, 1.44269504f, kShift);
  const float whole = n - kShift;
  float r = hw::fma(whole, -0.693359375f, clamped);
  r = hw::fma(whole, 2.12194440e-4f, r);
  const float r2 = r * r;
  const float low = hw::fma(1.6666665459e-1f, r, 5.0000001201e-1f);
  const float middle = hw::fma(8.3334519073e-3f, r, 4.1665795894e-2f);
  const float high = hw::fma(1.9875691500e-4f, r, 1.3981999507e-3f);
  const float p = hw::fma(hw::fma(hw::fma(high, r2, middle), r2, low), r2, r) + 1.0f;
  return p * std::bit_cast<float>((std::bit_cast<uint32_t>(n) << 23) + 0x3f800000u);
}

// exp(factor x).
template <bool kHalf>
HT_DEVICE float exponential(float x, float factor = 1) {
  if constexpr (kHalf) return hw::ex2_approx_ftz(x * (factor * 1.44269504f));
  return exp(x * factor);
}

// exp(x) for x <= 0.
template <bool kHalf>
HT_DEVICE float exponential_of_negative(float x) {
  if constexpr (kHalf) return exponential<true>(x);
  return exp_of_negative(x);
}

// 1 / d for d >= 1; NaN of NaN.
template <bool kHalf>
HT_DEVICE float reciprocal(float d) {
  if constexpr (kHalf) return hw::rcp_approx_ftz(d);
  return 1.0f / d;
}

// 1 / d for 1 <= d < 2^64, within an ulp.
HT_DEVICE float reciprocal_of_finite(float d) {
  const float near = hw::rcp_approx_ftz(d);
  return hw::fma(near, hw::fma(-d, near, 1.0f), near);
}

// 1 / (1 + exp(-factor x)).
template <bool kHalf>
HT_DEVICE float sigmoid(float x, float factor = 1) {
  return reciprocal<kHalf>(1.0f + exponential<kHalf>(x, -factor));
}

template <bool kHalf>
HT_DEVICE float tanh(float x) {
  const float z = x * x;
  if constexpr (kHalf) {
    // Below 1/16 the difference has less than 18 bits, and two terms of the series have them.
    const float large = hw::fma(-2.0f, reciprocal<true>(1.0f + exponential<true>(x, 2)), 1.0f);
    return z < 0x1p-8f ? hw::fma(x * z, -1 / 3.0f, x) : large;
  }
  const float a = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7fffffff);
  const float p = polynomial(z, -3.3333283925e-1f, 1.3331491278e-1f, -5.3743497239e-2f,
                             2.0650584368e-2f, -5.7170416883e-3f);
  const float small = hw::fma(x * z, p, x), t = exp_of_negative(-2.0f * a);
  const float large = hw::fma(-2.0f * t, reciprocal_of_finite(1.0f + t), 1.0f);
  return a < 0.625f ? small
                    : std::bit_cast<float>(std::bit_cast<uint32_t>(large) |
                                           (std::bit_cast<uint32_t>(x) & 0x80000000));
}

// exp(x) - 1 for x <= 0, without cancellation near 0: beyond -1/4 the subtraction costs at most
// two bits.
HT_DEVICE float expm1_negative(float x) {
  if (x > -0.25f) {
    return x * polynomial(x, 1.0f, 0.5f, 1 / 6.0f, 1 / 24.0f, 1 / 120.0f, 1 / 720.0f, 1 / 5040.f);
  }
  return exp(x) - 1.0f;
}

// ln x; of 0 -infinity, of less NaN.
HT_DEVICE float log(float x) {
  if (x == 0) return -__builtin_huge_valf();
  if (x < 0) return std::bit_cast<float>(0x7fc00000u);
  if (!(x < __builtin_huge_valf())) return x;  // infinity and NaN
  const bool tiny = x < 0x1p-126f;
  const uint32_t u = std::bit_cast<uint32_t>(tiny ? x * 0x1p23f : x);
  // x = 2^n (1 + m), 1 + m in [sqrt(1/2), sqrt(2)).
  const uint32_t moved = u - 0x3f3504f3u;
  const int32_t n = (static_cast<int32_t>(moved) >> 23) - (tiny ? 23 : 0);
  const float m = std::bit_cast<float>((moved & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
  const float p = polynomial(m, 3.3333312605e-1f, -2.5000009589e-1f, 2.0002118586e-1f,
                             -1.6667996047e-1f, 1.4219554017e-1f, -1.2405589839e-1f,
                             1.1888153172e-1f, -1.1675631588e-1f, 6.7466255442e-2f);
  const float whole = static_cast<float>(n), z = m * m;
  float low = hw::fma(whole, -2.12194440e-4f, z * m * p);  // ln 2 in two parts
  low = hw::fma(z, -0.5f, low);
  return hw::fma(whole, 0.693359375f, m + low);
}

// ln(1 + e) for 0 <= e <= 1.
HT_DEVICE float log1p_unit(float e) {
  return e * polynomial(e, 9.9999999529e-1f, -4.9999902430e-1f, 3.3329962569e-1f, -2.4954134797e-1f,
                        1.9675943468e-1f, -1.5305601128e-1f, 1.0603664657e-1f, -5.6959593521e-2f,
                        1.9851477782e-2f, -3.2440256501e-3f);
}

// x times the normal distribution function of x. With z = |x| that of -z is exp(-z^2/2) t P(t),
// t = 1 / (1 + c z), or for 16 bits 2^(P(r) - z^2 / (2 ln 2)), r = t^(1/2), within 2^-15.3. From
// z = 14 on it is 0.
template <bool kHalf>
HT_DEVICE float normal_gate(float x) {
  const float magnitude = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7fffffff);
  if constexpr (kHalf) {
    // Nothing to clamp: of an infinite z the power and r are 0.
    const float r = hw::rsqrt_approx_ftz(hw::fma(magnitude, 0.35178763f, 1.0f));
    const float p = polynomial(r, -10.7993163f, 22.9193273f, -33.6410333f, 33.7865346f,
                               -15.8708831f, 2.6053556f);
    float part = hw::ex2_approx_ftz(hw::fma(x * -0.72134752f, x, p));
    if (!(x < 0)) part = 1.0f - part;
    return x * part;
  }
  const float z = hw::min_nan(14.0f, magnitude), square = z * z;
  const float t = reciprocal_of_finite(hw::fma(z, 0.24f, 1.0f));
  const float p = polynomial(
      t, 9.5742438770e-2f, 9.5850773904e-2f, 8.8983646014e-2f, 8.7551650428e-2f, 2.8714617124e-2f,
      1.4048725541e-1f, -1.4319255156e-1f, 2.0472325684e-1f, -1.2433440513e-1f, 2.5473319755e-2f);
  // The power's error is its instruction's: what the square and its product with 1 / (2 ln 2) lost
  // by rounding comes as a factor.
  constexpr float kHigh = 0.72134752f, kLow = 9.6298e-9f;
  const float power = square * -kHigh;
  float lost = hw::fma(square, -kHigh, -power);
  lost = hw::fma(square, -kLow, lost);
  lost = hw::fma(hw::fma(z, z, -square), -kHigh, lost);
  const float e = hw::ex2_approx_ftz(power);
  float part = hw::fma(e, lost * 0.69314718f, e) * t * p;
  if (!(x < 0)) part = 1.0f - part;
  return x * part;
}

}  // namespace halftone::pipe
