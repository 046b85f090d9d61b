#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/message.h"
#include "halftone/activation.h"
#include "halftone/quantize.h"

namespace halftone {

namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double apply(const ActivationFunction& f, double x) {
  if (std::isnan(x)) return x;
  switch (f.kind) {
    case Activation::identity:
      return x;
    case Activation::relu:
      return std::max(x, 0.0);
    case Activation::relu_squared:
      return x > 0 ? x * x : 0;
    case Activation::leaky_relu:
      return x > 0 ? x : f.slope * x;
    case Activation::elu:
      return x > 0 ? x : f.alpha * std::expm1(x);
    case Activation::sigmoid:
      return sigmoid(x);
    case Activation::silu:
      return x * sigmoid(f.alpha * x);
    case Activation::quick_gelu:
      return x * sigmoid(double{1.702f} * x);
    case Activation::gelu_tanh:
      return x * sigmoid(2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x));
    case Activation::gelu_erf:
      return x * 0.5 * std::erfc(-x / std::numbers::sqrt2);
    case Activation::tanh:
      return std::tanh(x);
    case Activation::hardsigmoid:
      return std::clamp(x + 3, 0.0, 6.0) / 6;
    case Activation::hardswish:
      return x * std::clamp(x + 3, 0.0, 6.0) / 6;
    case Activation::hardshrink:
      return std::abs(x) > f.lambda ? x : 0;
    case Activation::softplus: {
      const double y = f.beta * x;
      return (std::max(y, 0.0) + std::log1p(std::exp(-std::abs(y)))) / f.beta;
    }
  }
  return x;
}

// std::min and std::max keep their first argument when the other is NaN, and it when it is one.
double clamp_above(double x, double limit) { return std::min(x, limit); }

}  // namespace

Tensor activation_reference(const Tensor& x, const ActivationFunction& function) {
  const Tensor values = convert(x, Format::f32);
  Tensor out = Tensor::empty(x.shape(), Format::f32);
  for (int64_t i = 0; i < x.numel(); ++i) {
    out.data<float>()[i] = static_cast<float>(apply(function, values.data<float>()[i]));
  }
  return out;
}

Tensor gated_reference(const Tensor& gate, const Tensor& up, const GatedActivation& g) {
  require(!up.defined() || gate.shape() == up.shape(), "gated_reference: gate has shape ",
          to_string(gate.shape()), ", up has shape ", to_string(up.shape()));
  const bool pairs = !up.defined();
  const Tensor gates = convert(gate, Format::f32), ups = pairs ? gates : convert(up, Format::f32);
  Shape shape = gate.shape();
  if (pairs) shape[shape.rank() - 1] /= 2;
  Tensor out = Tensor::empty(shape, Format::f32);
  for (int64_t i = 0; i < out.numel(); ++i) {
    const double x = gates.data<float>()[pairs ? 2 * i : i];
    const double y = ups.data<float>()[pairs ? 2 * i + 1 : i];
    const double limit = g.limit;
    const double factor = std::max(clamp_above(y, limit), -limit) + g.up_offset;
    out.data<float>()[i] = static_cast<float>(apply(g.function, clamp_above(x, limit)) * factor);
  }
  return out;
}

Tensor swiglu_reference(const Tensor& gate, const Tensor& up) {
  return gated_reference(gate, up, GatedActivation::swiglu());
}

}  // namespace halftone
