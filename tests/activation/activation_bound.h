// Activations under test and how far their results may be from the reference.
#pragma once
#include <algorithm>
#include <cmath>

#include "halftone/activation.h"
#include "support/compare.h"
#include "support/tolerance.h"

namespace halftone::test {

// Error before the last rounding, of a value y = f(x). Formulas that multiply within 8 roundings:
// 10 u of the value. An argument of exp that is itself rounded moves the result by as many u as it
// is large, at most 88 and 3 roundings. Softplus adds two terms of its own sign: the larger counts.
// Results below 2^-126 may come out as 0: then x 2^-126 is lost.
inline double activation_error(const ActivationFunction& f, double x, double y, bool half) {
  const double magnitude = std::min(std::abs(x), 88.0);
  double relative = 10 * kF32Roundoff;
  if (f.kind == Activation::gelu_tanh) {
    relative +=
        6 * std::min(88.0, 1.6 * magnitude * (1 + 0.045 * magnitude * magnitude)) * kF32Roundoff;
  }
  if (f.kind == Activation::gelu_erf) {
    // Without a fused multiply-add the rounding of x^2 / 2 is not made good.
    const bool fused = cpu_level() > CpuLevel::baseline;
    relative += (6 + (fused ? 0 : std::min(88.0, x * x / 2))) * kF32Roundoff;
  }
  if (f.kind == Activation::softplus) relative += 88 * kF32Roundoff;
  if (f.kind == Activation::silu || f.kind == Activation::quick_gelu)
    relative += 176 * kF32Roundoff;
  const bool exponential = f.kind >= Activation::elu && f.kind != Activation::hardshrink &&
                           f.kind != Activation::hardswish && f.kind != Activation::hardsigmoid;
  if (half && exponential) relative += 0x1p-14;
  if (f.kind == Activation::elu) relative += 16 * kF32Roundoff;
  return std::abs(y) * relative + (exponential ? (90 + std::abs(f.alpha)) * 0x1p-126 : 0);
}

inline std::vector<ActivationFunction> activation_functions() {
  std::vector<ActivationFunction> all;
  for (int i = 0; i < kActivationCount; ++i) all.push_back({.kind = static_cast<Activation>(i)});
  all.push_back({.kind = Activation::elu, .alpha = 1.6732632f});
  all.push_back({.kind = Activation::silu, .alpha = 1.702f});
  all.push_back({.kind = Activation::leaky_relu, .slope = 0.2f});
  all.push_back({.kind = Activation::hardshrink, .lambda = 1.25f});
  all.push_back({.kind = Activation::softplus, .beta = 3});
  return all;
}

inline std::vector<double> activation_bounds(const Tensor& x, const std::vector<float>& reference,
                                             const ActivationFunction& f, Format out) {
  const bool half = x.format() != Format::f32 && out != Format::f32;
  const std::vector<float> in = to_floats(x);
  std::vector<double> bound;
  for (size_t i = 0; i < in.size(); ++i) {
    const double error = activation_error(f, in[i], reference[i], half);
    bound.push_back(rounded_bound(out, reference[i], 0) + error * (1 + unit_roundoff(out)));
  }
  return bound;
}

}  // namespace halftone::test
