// Elementwise arithmetic in FP64.
#include <cmath>

#include "base/message.h"
#include "halftone/elementwise.h"
#include "halftone/quantize.h"

namespace halftone {

namespace {

double apply(Elementwise operation, double a, double b, double c, double alpha, double beta) {
  switch (operation) {
    case Elementwise::copy:
      return a;
    case Elementwise::add:
      return a + alpha * b;
    case Elementwise::subtract:
      return a - alpha * b;
    case Elementwise::multiply:
      return a * b;
    case Elementwise::divide:
      return a / b;
    case Elementwise::minimum:
      return std::isnan(a) || std::isnan(b) ? a + b : std::fmin(a, b);
    case Elementwise::maximum:
      return std::isnan(a) || std::isnan(b) ? a + b : std::fmax(a, b);
    case Elementwise::multiply_add:
      return a * b + c;
    case Elementwise::affine:
      return alpha * a + beta;
    case Elementwise::negate:
      return -a;
    case Elementwise::absolute:
      return std::abs(a);
    case Elementwise::square:
      return a * a;
    case Elementwise::sqrt:
      return std::sqrt(a);
    case Elementwise::rsqrt:
      return 1 / std::sqrt(a);
    case Elementwise::reciprocal:
      return 1 / a;
    case Elementwise::exp:
      return std::exp(a);
    case Elementwise::log:
      return std::log(a);
  }
  return a;
}

// Element of x that belongs to flat index i of `shape`.
double at(const Tensor& x, const Shape& shape, int64_t i) {
  if (!x.defined()) return 0;
  int64_t offset = 0;
  const int missing = shape.rank() - x.rank();
  for (int d = shape.rank() - 1; d >= 0; --d) {
    const int64_t index = i % shape[d];
    i /= shape[d];
    if (d >= missing && x.size(d - missing) != 1) offset += index * x.stride(d - missing);
  }
  return x.data<float>()[offset];
}

}  // namespace

Tensor elementwise_reference(Elementwise operation, const Tensor& a, const Tensor& b,
                             const Tensor& c, const ElementwiseOptions& options) {
  const auto widened = [](const Tensor& x) { return x.defined() ? convert(x, Format::f32) : x; };
  const Tensor wide[] = {widened(a), widened(b), widened(c)};
  Shape shape = a.shape();
  for (const Tensor& x : {b, c}) {
    if (!x.defined()) continue;
    if (x.rank() > shape.rank()) {
      Shape longer = x.shape();
      for (int d = 0; d < shape.rank(); ++d) longer[x.rank() - shape.rank() + d] = shape[d];
      shape = longer;
    }
    for (int d = 0; d < x.rank(); ++d) {
      int64_t& extent = shape[shape.rank() - x.rank() + d];
      if (extent == 1) extent = x.size(d);
    }
  }
  Tensor out = Tensor::empty(shape, Format::f32);
  for (int64_t i = 0; i < out.numel(); ++i) {
    out.data<float>()[i] =
        static_cast<float>(apply(operation, at(wide[0], shape, i), at(wide[1], shape, i),
                                 at(wide[2], shape, i), options.alpha, options.beta));
  }
  return out;
}

}  // namespace halftone
