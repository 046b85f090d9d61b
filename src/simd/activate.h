// The functions of halftone/activation_function.h on vectors.
#pragma once
#include "halftone/activation_function.h"
#include "simd/math.h"

namespace halftone::HALFTONE_LEVEL {

// `Kind` is a constant, the parameters are not.
template <Activation Kind, bool Half>
HALFTONE_INLINE f32v activate(f32v x, const ActivationFunction& f) {
  const f32v zero{};
  if constexpr (Kind == Activation::identity) {
    return x;
  } else if constexpr (Kind == Activation::relu) {
    return max(zero, x);
  } else if constexpr (Kind == Activation::relu_squared) {
    const f32v y = max(zero, x);
    return y * y;
  } else if constexpr (Kind == Activation::leaky_relu) {
    return select(x > zero, x, x * broadcast(f.slope));
  } else if constexpr (Kind == Activation::elu) {
    return select(x > zero, x, broadcast(f.alpha) * expm1_negative(min(zero, x)));
  } else if constexpr (Kind == Activation::sigmoid) {
    return sigmoid<Half>(x);
  } else if constexpr (Kind == Activation::silu) {
    return x * sigmoid<Half>(x, f.alpha);
  } else if constexpr (Kind == Activation::quick_gelu) {
    return x * sigmoid<Half>(x, 1.702f);
  } else if constexpr (Kind == Activation::gelu_tanh) {
    // (1 + tanh(u)) / 2 = sigmoid(2 u).
    constexpr float kTwice = 1.5957691216f;  // 2 sqrt(2 / pi)
    const f32v cubic = fma(x * x, broadcast(kTwice * 0.044715f), broadcast(kTwice));
    return x * sigmoid<Half>(x * cubic);
  } else if constexpr (Kind == Activation::gelu_erf) {
    return normal_gate<Half>(x);
  } else if constexpr (Kind == Activation::tanh) {
    return tanh<Half>(x);
  } else if constexpr (Kind == Activation::hardsigmoid || Kind == Activation::hardswish) {
    // The upper clamp first, so that NaN passes through both.
    const f32v gate = max(zero, min(broadcast(6.0f), x + 3.0f));
    return Kind == Activation::hardsigmoid ? gate * (1 / 6.0f) : x * gate * (1 / 6.0f);
  } else if constexpr (Kind == Activation::hardshrink) {
    return select(abs(x) <= broadcast(f.lambda), zero, x);
  } else {
    static_assert(Kind == Activation::softplus);
    const f32v y = x * broadcast(f.beta);
    return (max(zero, y) + log1p_unit<Half>(exponential<Half>(-abs(y)))) * broadcast(1.0f / f.beta);
  }
}

// Calls body(constant of f.kind): one loop for each kind, chosen once.
template <class Body>
HALFTONE_INLINE void with_activation(Activation kind, const Body& body) {
  switch (kind) {
#define HALFTONE_CASE(k) \
  case Activation::k:    \
    return body.template operator()<Activation::k>();
    HALFTONE_CASE(identity)
    HALFTONE_CASE(relu)
    HALFTONE_CASE(relu_squared)
    HALFTONE_CASE(leaky_relu)
    HALFTONE_CASE(elu)
    HALFTONE_CASE(sigmoid)
    HALFTONE_CASE(silu)
    HALFTONE_CASE(quick_gelu)
    HALFTONE_CASE(gelu_tanh)
    HALFTONE_CASE(gelu_erf)
    HALFTONE_CASE(tanh)
    HALFTONE_CASE(hardsigmoid)
    HALFTONE_CASE(hardswish)
    HALFTONE_CASE(hardshrink)
    HALFTONE_CASE(softplus)
#undef HALFTONE_CASE
  }
}

// The gate's operand as GatedActivation clamps it, and the factor it is multiplied with. NaN
// passes.
HALFTONE_INLINE f32v clamp_gate(f32v gate, const GatedActivation& g) {
  return min(broadcast(g.limit), gate);
}
HALFTONE_INLINE f32v gated_factor(f32v up, const GatedActivation& g) {
  return max(broadcast(-g.limit), min(broadcast(g.limit), up)) + g.up_offset;
}

}  // namespace halftone::HALFTONE_LEVEL
