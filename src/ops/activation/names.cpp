#include <vector>

#include "base/message.h"
#include "halftone/activation_function.h"

namespace halftone {

namespace {

struct Name {
  const char* text;
  Activation kind;
};
// The first one of a kind is its name; the others are spelled so in configurations.
constexpr Name kNames[] = {
    {"identity", Activation::identity},
    {"linear", Activation::identity},
    {"relu", Activation::relu},
    {"relu_squared", Activation::relu_squared},
    {"relu2", Activation::relu_squared},
    {"leaky_relu", Activation::leaky_relu},
    {"elu", Activation::elu},
    {"sigmoid", Activation::sigmoid},
    {"silu", Activation::silu},
    {"swish", Activation::silu},
    {"quick_gelu", Activation::quick_gelu},
    {"gelu_tanh", Activation::gelu_tanh},
    {"gelu_pytorch_tanh", Activation::gelu_tanh},
    {"gelu_new", Activation::gelu_tanh},
    {"gelu_fast", Activation::gelu_tanh},
    {"gelu_erf", Activation::gelu_erf},
    {"gelu", Activation::gelu_erf},
    {"tanh", Activation::tanh},
    {"hardsigmoid", Activation::hardsigmoid},
    {"hardswish", Activation::hardswish},
    {"hardshrink", Activation::hardshrink},
    {"softplus", Activation::softplus},
};

}  // namespace

const char* name(Activation kind) {
  for (const Name& n : kNames) {
    if (n.kind == kind) return n.text;
  }
  return "unknown activation";
}

Activation parse_activation(std::string_view text) {
  std::vector<std::string> known;
  for (const Name& n : kNames) {
    if (text == n.text) return n.kind;
    known.emplace_back(n.text);
  }
  const std::string close = nearest(text, known);
  fail(ErrorCode::invalid_argument, "activation \"", text, "\" is not known",
       close.empty() ? std::string() : concat("; did you mean \"", close, "\"?"));
}

}  // namespace halftone
