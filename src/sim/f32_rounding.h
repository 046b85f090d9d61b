// FP32 sums and products rounded in any direction, whatever the host's rounding mode is.
//
// The exact result is first rounded to odd in FP64 (an inexact result gets an odd last bit). FP64
// has more than two bits beyond FP32, so rounding that to FP32 rounds the exact result.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace halftone::sim {

enum class RoundF32 : uint8_t { nearest_even, zero, down, up };

namespace rounding_detail {

// a + b rounded to odd.
inline double sum_to_odd(double a, double b) {
  const double sum = a + b;
  if (!std::isfinite(sum)) return sum;
  const double b_part = sum - a;
  const double rest = (a - (sum - b_part)) + (b - b_part);  // exact
  const auto bits = std::bit_cast<uint64_t>(sum);
  if (rest == 0 || (bits & 1) != 0) return sum;
  // Towards the exact sum: one unit away from zero, or nearer to it.
  return std::bit_cast<double>((rest > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

inline float flushed(float x, bool ftz) {
  return ftz && std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
}

inline float rounded(double x, RoundF32 round, bool ftz) {
  if (std::isnan(x)) return std::bit_cast<float>(0x7fffffffu);
  float result = static_cast<float>(x);
  const double at = result;
  const bool lower = round == RoundF32::down || (round == RoundF32::zero && x > 0);
  const bool higher = round == RoundF32::up || (round == RoundF32::zero && x < 0);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (lower && at > x) result = std::nextafter(result, -kInfinity);
  if (higher && at < x) result = std::nextafter(result, kInfinity);
  return flushed(result, ftz);
}

// The sign of an exact zero sum of numbers that are not both zeros of one sign.
inline float zero_sum(RoundF32 round) { return round == RoundF32::down ? -0.0f : 0.0f; }

}  // namespace rounding_detail

inline float fma_f32(float a, float b, float c, RoundF32 round, bool ftz) {
  using namespace rounding_detail;
  const double product = double{flushed(a, ftz)} * double{flushed(b, ftz)};  // exact
  const double addend = flushed(c, ftz);
  const double sum = sum_to_odd(product, addend);
  if (sum == 0 && !(product == 0 && addend == 0 && std::signbit(product) == std::signbit(addend))) {
    return zero_sum(round);
  }
  return rounded(sum, round, ftz);
}

inline float add_f32(float a, float b, RoundF32 round, bool ftz) {
  return fma_f32(a, 1.0f, b, round, ftz);
}

inline float mul_f32(float a, float b, RoundF32 round, bool ftz) {
  using namespace rounding_detail;
  return rounded(double{flushed(a, ftz)} * double{flushed(b, ftz)}, round, ftz);
}

}  // namespace halftone::sim
