#include <cmath>
#include <vector>

#include "base/message.h"
#include "halftone/moe.h"
#include "halftone/quantize.h"
#include "ops/product/weights.h"

namespace halftone {

namespace {

// x [k] times one weight, in double precision.
std::vector<double> product_of(const std::vector<double>& x, const Tensor& weight) {
  const product::Weights w = product::view_of(weight, "weight");
  require(static_cast<int64_t>(x.size()) == w.k, "weight ", to_string(weight.shape()),
          " does not fit a row of ", x.size());
  std::vector<double> row(x.size()), y(static_cast<size_t>(w.n));
  for (int64_t n = 0; n < w.n; ++n) {
    product::weight_row(w, n, row.data());
    for (size_t k = 0; k < x.size(); ++k) y[static_cast<size_t>(n)] += row[k] * x[k];
  }
  return y;
}

}  // namespace

Tensor moe_reference(const Tensor& x, const Routing& routing, const std::vector<Tensor>& gate,
                     const std::vector<Tensor>& up, const std::vector<Tensor>& down) {
  require(x.defined() && x.rank() == 2, "x must be [tokens, hidden]");
  require(gate.size() == up.size() && gate.size() == down.size(), "gate, up and down have ",
          gate.size(), ", ", up.size(), " and ", down.size(), " experts; they must be as many");
  const Tensor values = x.format() == Format::f32 ? x.contiguous_copy() : convert(x, Format::f32);
  const int64_t hidden = x.size(1), top_k = routing.experts.size(1);
  Tensor out = Tensor::empty(x.shape(), Format::f32);
  for (int64_t t = 0; t < x.size(0); ++t) {
    const float* row = values.data<float>() + t * hidden;
    const std::vector<double> token(row, row + hidden);
    std::vector<double> sum(static_cast<size_t>(hidden));
    for (int64_t s = 0; s < top_k; ++s) {
      const auto e =
          static_cast<size_t>(routing.experts.data<int32_t>()[t * routing.experts.stride(0) + s]);
      const double weight = routing.weights.data<float>()[t * routing.weights.stride(0) + s];
      std::vector<double> h = product_of(token, gate.at(e));
      const std::vector<double> u = product_of(token, up.at(e));
      for (size_t i = 0; i < h.size(); ++i) h[i] = h[i] / (1 + std::exp(-h[i])) * u[i];
      const std::vector<double> y = product_of(h, down.at(e));
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += weight * y[i];
    }
    for (int64_t i = 0; i < hidden; ++i) {
      out.data<float>()[t * hidden + i] = static_cast<float>(sum[static_cast<size_t>(i)]);
    }
  }
  return out;
}

}  // namespace halftone
