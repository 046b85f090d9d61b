// Norms in FP64.
#include <cmath>

#include "base/message.h"
#include "halftone/norm.h"
#include "halftone/quantize.h"

namespace halftone {

Tensor norm_reference(const NormProblem& p, const Tensor& x, const Tensor& weight,
                      const Tensor& bias) {
  const auto fits = [&](const Tensor& t, bool wanted) {
    return t.defined() == wanted && (!wanted || t.shape() == Shape{x.size(-1)});
  };
  require(x.rank() >= 1 && fits(weight, p.weighted) && fits(bias, p.bias),
          "norm_reference: weight and bias do not fit x ", to_string(x.shape()));
  const Tensor values = convert(x, Format::f32);
  const auto widened = [](const Tensor& t) { return t.defined() ? convert(t, Format::f32) : t; };
  const Tensor weights = widened(weight), biases = widened(bias);
  Tensor out = Tensor::empty(x.shape(), Format::f32);
  const int64_t columns = x.size(-1);
  for (int64_t first = 0; first < x.numel(); first += columns) {
    const float* in = values.data<float>() + first;
    double mean = 0, squares = 0;
    if (p.kind == NormKind::layer) {
      for (int64_t i = 0; i < columns; ++i) mean += in[i];
      mean /= static_cast<double>(columns);
    }
    for (int64_t i = 0; i < columns; ++i) squares += (in[i] - mean) * (in[i] - mean);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(columns) + double{p.eps});
    for (int64_t i = 0; i < columns; ++i) {
      const double w = p.weighted ? weights.data<float>()[i] + double{p.weight_offset} : 1;
      const double b = p.bias ? biases.data<float>()[i] : 0;
      out.data<float>()[first + i] = static_cast<float>((in[i] - mean) * scale * w + b);
    }
  }
  return out;
}

Tensor rms_norm_reference(const Tensor& x, const Tensor& weight, float eps) {
  NormProblem p;
  p.eps = eps;
  return norm_reference(p, x, weight);
}

}  // namespace halftone
