// The functions of halftone/activation_function.h on a thread's values.
#pragma once
#include "halftone/activation_function.h"
#include "pipe/math.h"

namespace halftone::pipe {

template <bool kHalf, uint32_t kCount>
HT_DEVICE void activate(const ActivationFunction& f, float (&x)[kCount]) {
  const auto each = [&](const auto& function) {
    HT_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) x[i] = function(x[i]);
  };
  const auto magnitude = [](float v) {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(v) & 0x7fffffff);
  };
  switch (f.kind) {
    case Activation::identity:
      return;
    case Activation::relu:
      return each([](float v) { return at_least(0, v); });
    case Activation::relu_squared:
      return each([](float v) { return at_least(0, v) * at_least(0, v); });
    case Activation::leaky_relu:
      return each([&](float v) { return v > 0 ? v : v * f.slope; });
    case Activation::elu:
      return each([&](float v) { return v > 0 ? v : f.alpha * expm1_negative(at_most(0, v)); });
    case Activation::sigmoid:
      return each([](float v) { return sigmoid<kHalf>(v); });
    case Activation::silu:
      return each([&](float v) { return v * sigmoid<kHalf>(v, f.alpha); });
    case Activation::quick_gelu:
      return each([](float v) { return v * sigmoid<kHalf>(v, 1.702f); });
    case Activation::gelu_tanh:
      // (1 + tanh(u)) / 2 = sigmoid(2 u).
      return each([](float v) {
        constexpr float kTwice = 1.5957691216f;  // 2 sqrt(2 / pi)
        return v * sigmoid<kHalf>(v * hw::fma(v * v, kTwice * 0.044715f, kTwice));
      });
    case Activation::gelu_erf:
      return each([](float v) { return normal_gate<kHalf>(v); });
    case Activation::tanh:
      return each([](float v) { return tanh<kHalf>(v); });
    case Activation::hardsigmoid:
      return each([](float v) { return at_least(0, at_most(6, v + 3)) * (1 / 6.0f); });
    case Activation::hardswish:
      return each([](float v) { return v * at_least(0, at_most(6, v + 3)) * (1 / 6.0f); });
    case Activation::hardshrink:
      return each([&](float v) { return magnitude(v) <= f.lambda ? 0 : v; });
    case Activation::softplus:
      return each([&](float v) {
        const float y = v * f.beta;
        return (at_least(0, y) + log1p_unit(exponential<kHalf>(-magnitude(y)))) * (1.0f / f.beta);
      });
  }
}

// gate = f(min(gate, limit)) * (clamp(up, -limit, limit) + up_offset); NaN passes.
template <bool kHalf, uint32_t kCount>
HT_DEVICE void activate_gate(const GatedActivation& g, float (&gate)[kCount],
                             const float (&up)[kCount]) {
  if (!(g.limit < __builtin_huge_valf()) && g.up_offset == 0) {  // the most frequent ones
    activate<kHalf>(g.function, gate);
    HT_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) gate[i] = gate[i] * up[i];
    return;
  }
  HT_UNROLL
  for (uint32_t i = 0; i < kCount; ++i) gate[i] = hw::min_nan(g.limit, gate[i]);
  activate<kHalf>(g.function, gate);
  HT_UNROLL
  for (uint32_t i = 0; i < kCount; ++i) {
    const float clamped = hw::max_nan(-g.limit, hw::min_nan(g.limit, up[i]));
    gate[i] = gate[i] * (clamped + g.up_offset);
  }
}

}  // namespace halftone::pipe
