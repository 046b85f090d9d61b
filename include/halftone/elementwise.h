// Arithmetic element by element, with numpy's broadcasting, and casts between plain formats.
#pragma once
#include <optional>

#include "halftone/error.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

enum class Elementwise : uint8_t {
  copy,          // a: a cast when the formats differ
  add,           // a + alpha b
  subtract,      // a - alpha b
  multiply,      // a b
  divide,        // a / b
  minimum,       // NaN when either operand is
  maximum,       // likewise
  multiply_add,  // a b + c
  affine,        // alpha a + beta
  negate,
  absolute,
  square,
  sqrt,
  rsqrt,
  reciprocal,
  exp,
  log,
};
inline constexpr int kElementwiseCount = 17;
const char* name(Elementwise);
int operand_count(Elementwise);  // 1 to 3: a, b, c

struct ElementwiseProblem {
  Elementwise operation = Elementwise::add;
  Shape shape;  // of out; operands broadcast to it, aligned at the last dimension
  Format a = Format::bf16, b = Format::bf16, c = Format::bf16, out = Format::bf16;  // plain floats
  float alpha = 1, beta = 0;
};
struct ElementwiseTensors {
  Tensor a, b, c, out;  // any strides (0 repeats an element); out may be an operand
};
struct ElementwiseKernel;
struct ElementwisePlan {
  ElementwiseProblem problem;
  Device device;
  const ElementwiseKernel* kernel = nullptr;
};
std::string describe(const ElementwisePlan&);
Support can_run(const ElementwiseProblem&, const Device&);
ElementwisePlan plan(const ElementwiseProblem&, const Device&);
// Computed in f32 and rounded once. a + alpha b, a b + c and alpha a + beta are fused multiply-adds
// (two roundings at the baseline level); division and roots are correctly rounded; exp is within
// 2 ulp and log within 4, exp of 16-bit operands to 16 bits within 2^-16.
void run(const ElementwisePlan&, const ElementwiseTensors&, Stream&);

struct ElementwiseOptions {
  float alpha = 1, beta = 0;
  std::optional<Format> out = {};  // that of a when absent
};
// Operands of unequal shapes are broadcast against each other.
Tensor elementwise(Elementwise, const Tensor& a, const Tensor& b = {}, const Tensor& c = {},
                   const ElementwiseOptions& = {}, Stream& = Stream::default_stream());
Tensor elementwise_reference(Elementwise, const Tensor& a, const Tensor& b = {},
                             const Tensor& c = {}, const ElementwiseOptions& = {});  // FP64 -> f32

inline Tensor add(const Tensor& a, const Tensor& b, Stream& stream = Stream::default_stream()) {
  return elementwise(Elementwise::add, a, b, {}, {}, stream);
}
inline Tensor multiply(const Tensor& a, const Tensor& b,
                       Stream& stream = Stream::default_stream()) {
  return elementwise(Elementwise::multiply, a, b, {}, {}, stream);
}
inline Tensor cast(const Tensor& a, Format out, Stream& stream = Stream::default_stream()) {
  return elementwise(Elementwise::copy, a, {}, {}, {.out = out}, stream);
}

}  // namespace halftone
