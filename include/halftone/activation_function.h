// The functions that activations, products and experts apply, with their parameters. Plain data:
// kernels of every ISA level read it.
#pragma once
#include <cstdint>
#include <string_view>

namespace halftone {

enum class Activation : uint8_t {
  identity,      // x
  relu,          // max(x, 0)
  relu_squared,  // max(x, 0)^2
  leaky_relu,    // x > 0 ? x : slope x
  elu,           // x > 0 ? x : alpha (exp(x) - 1)
  sigmoid,       // 1 / (1 + exp(-x))
  silu,          // x sigmoid(alpha x); with alpha 1 also called swish
  quick_gelu,    // x sigmoid(1.702 x)
  gelu_tanh,     // x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2
  gelu_erf,      // x (1 + erf(x / sqrt(2))) / 2
  tanh,
  hardsigmoid,  // min(max(x + 3, 0), 6) / 6
  hardswish,    // x min(max(x + 3, 0), 6) / 6
  hardshrink,   // |x| > lambda ? x : 0
  softplus,     // log(1 + exp(beta x)) / beta
};
inline constexpr int kActivationCount = 15;

struct ActivationFunction {
  Activation kind = Activation::silu;
  float alpha = 1;      // elu, silu
  float slope = 0.01f;  // leaky_relu
  float lambda = 0.5f;  // hardshrink; not negative
  float beta = 1;       // softplus; positive
  bool operator==(const ActivationFunction&) const = default;
};

// out = f(min(gate, limit)) * (clamp(up, -limit, limit) + up_offset), each step in f32.
struct GatedActivation {
  ActivationFunction function = {};
  float limit = __builtin_inff();  // positive
  float up_offset = 0;
  bool operator==(const GatedActivation&) const = default;

  static constexpr GatedActivation swiglu() { return {}; }
  static constexpr GatedActivation geglu_tanh() { return {{.kind = Activation::gelu_tanh}}; }
  static constexpr GatedActivation geglu_erf() { return {{.kind = Activation::gelu_erf}}; }
  // DeepSeek-V4 clamps at 10.
  static constexpr GatedActivation clamped_swiglu(float limit = 10) { return {{}, limit, 0}; }
  // gpt-oss: gate sigmoid(1.702 gate) (up + 1), clamped at 7; gate and up interleaved.
  static constexpr GatedActivation gpt_oss(float alpha = 1.702f, float limit = 7) {
    return {{.alpha = alpha}, limit, 1};
  }
};

const char* name(Activation);
// Accepts the names of `name()` and those of configurations ("gelu", "gelu_new",
// "gelu_pytorch_tanh", "swish", "relu2", "linear", ...); an unknown name is an Error that offers
// the nearest one.
Activation parse_activation(std::string_view);

}  // namespace halftone
