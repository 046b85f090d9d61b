#include <algorithm>
#include <cmath>
#include <vector>

#include "base/message.h"
#include "halftone/activation.h"
#include "halftone/quantize.h"
#include "ops/gemm/cpu/weights.h"
#include "ops/moe/experts.h"

namespace halftone {

namespace {

using Row = std::vector<double>;

// x [k] times one weight, in double precision, plus a bias.
Row product_of(const Row& x, const gemm::Weights& w, const Tensor& biases, size_t expert) {
  require(static_cast<int64_t>(x.size()) == w.k, "a weight has K = ", w.k,
          "; it does not fit a row of ", x.size());
  Row row(x.size()), y(static_cast<size_t>(w.n));
  for (int64_t n = 0; n < w.n; ++n) {
    gemm::weight_row(w, n, row.data());
    double& sum = y[static_cast<size_t>(n)];
    for (size_t k = 0; k < x.size(); ++k) sum += row[k] * x[k];
    if (biases.defined()) sum += biases.at({static_cast<int64_t>(expert), n});
  }
  return y;
}

// A row quantised as the problem says.
Row rounded(const Row& x, const std::optional<QuantizeOptions>& options) {
  if (!options) return x;
  const auto k = static_cast<int64_t>(x.size());
  const Tensor row = Tensor::empty({1, k}, Format::f32);
  for (int64_t i = 0; i < k; ++i)
    row.data<float>()[i] = static_cast<float>(x[static_cast<size_t>(i)]);
  const Tensor values = dequantize(quantize(row, *options));
  return Row(values.data<float>(), values.data<float>() + k);
}

double gated(const GatedActivation& g, double gate, double up) {
  if (g.function.kind != Activation::silu) {  // rounds both to f32
    const auto one = [](double x) { return Tensor::from({static_cast<float>(x)}, {1}); };
    return gated_reference(one(gate), one(up), g).at({0});
  }
  const double limit = g.limit;
  gate = std::min(gate, limit);
  up = std::max(-limit, std::min(limit, up));
  return gate / (1 + std::exp(-double{g.function.alpha} * gate)) * (up + double{g.up_offset});
}

}  // namespace

Tensor moe_reference(const Tensor& x, const Routing& routing, const MoeProblem& p,
                     const ExpertTensors& tensors, const Tensor& shared_scale) {
  require(x.defined() && x.rank() == 2, "x must be [tokens, hidden]");
  const MoeWeights bound = bind_experts(p, tensors);
  const BoundExperts& all = *bound.experts;
  const Tensor values = x.format() == Format::f32 ? x.contiguous_copy() : convert(x, Format::f32);
  const int64_t hidden = x.size(1), top_k = routing.experts.size(1);
  Tensor out = Tensor::empty(x.shape(), Format::f32);
  for (int64_t t = 0; t < x.size(0); ++t) {
    const float* from = values.data<float>() + t * hidden;
    const Row token = rounded(Row(from, from + hidden), p.quantize_x);
    Row sum(static_cast<size_t>(hidden));
    const auto add = [&](size_t e, bool shared, double weight) {
      const gemm::Weights* w = all.weights.data() + 3 * e;
      const double on_input = p.scale_input && !shared ? weight : 1;
      Row scaled = token;
      for (double& v : scaled) v *= on_input;
      const Tensor none;
      Row h = product_of(scaled, w[0], shared ? none : all.gate_bias, e);
      const Row u = product_of(scaled, w[1], shared ? none : all.up_bias, e);
      for (size_t i = 0; i < h.size(); ++i) h[i] = gated(p.gated, h[i], u[i]);
      const Row y = product_of(rounded(h, p.quantize_x), w[2], shared ? none : all.down_bias, e);
      for (size_t i = 0; i < sum.size(); ++i)
        sum[i] += (p.scale_input && !shared ? 1 : weight) * y[i];
    };
    for (int64_t s = 0; s < top_k; ++s) {
      const int32_t e = routing.experts.data<int32_t>()[t * routing.experts.stride(0) + s];
      add(static_cast<size_t>(e), false,
          routing.weights.data<float>()[t * routing.weights.stride(0) + s]);
    }
    if (p.shared_intermediate > 0) {
      add(static_cast<size_t>(p.experts), true, shared_scale.defined() ? shared_scale.at({t}) : 1);
    }
    for (int64_t i = 0; i < hidden; ++i) {
      out.data<float>()[t * hidden + i] = static_cast<float>(sum[static_cast<size_t>(i)]);
    }
  }
  return out;
}

Tensor moe_reference(const Tensor& x, const Routing& routing, const std::vector<Tensor>& gate,
                     const std::vector<Tensor>& up, const std::vector<Tensor>& down) {
  require(!gate.empty() && gate[0].defined() && gate[0].rank() == 2,
          "gate is empty or not made of matrices [intermediate, hidden]");
  MoeProblem p;
  p.hidden = gate[0].size(1);
  p.intermediate = gate[0].size(0);
  p.experts = static_cast<int64_t>(gate.size());
  p.weight = gate[0].format();
  p.scaled = gate[0].has_scales();
  if (p.scaled) p.scaling = gate[0].scaling();
  ExpertTensors tensors;
  tensors.gate = gate, tensors.up = up, tensors.down = down;
  return moe_reference(x, routing, p, tensors);
}

}  // namespace halftone
