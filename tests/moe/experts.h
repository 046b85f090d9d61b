// Random experts with their exact values, and the result and its error bound in FP64, worked out
// here apart from the library.
#pragma once
#include <algorithm>
#include <utility>

#include "halftone/moe.h"
#include "matmul/weights.h"

namespace halftone::test {

struct Experts {
  std::vector<Tensor> gate, up, down;
  std::vector<std::vector<double>> gate_values, up_values, down_values;
};

// `unused` more, of one and the same tensors and without values, are for nobody's rows.
inline Experts random_experts(const WeightSpec& spec, int64_t experts, int64_t hidden,
                              int64_t inter, int64_t unused = 0) {
  Experts all;
  for (int64_t e = 0; e < experts; ++e) {
    const auto seed = static_cast<uint64_t>(e) * 10;
    Weight g = random_weight(spec, inter, hidden, seed + 1);
    Weight u = random_weight(spec, inter, hidden, seed + 2);
    Weight d = random_weight(spec, hidden, inter, seed + 3);
    all.gate.push_back(g.tensor), all.gate_values.push_back(std::move(g.values));
    all.up.push_back(u.tensor), all.up_values.push_back(std::move(u.values));
    all.down.push_back(d.tensor), all.down_values.push_back(std::move(d.values));
  }
  for (int64_t e = 0; e < unused; ++e) {
    all.gate.push_back(all.gate[0]), all.up.push_back(all.up[0]), all.down.push_back(all.down[0]);
  }
  return all;
}

// What a layer has beyond plain SwiGLU experts.
struct Extras {
  GatedActivation gated;
  std::vector<float> gate_bias, up_bias, down_bias;  // [experts, ...] or empty
  bool scale_input = false;
  const Experts* shared = nullptr;  // its first expert
  int64_t shared_intermediate = 0;
  float shared_scale = 1;
};

// The result in FP64 and a bound on the error, with R(k) the roundings of a product over k (which
// include a scale of the row and a bias):
//   dg <= R(hidden) 2^-24 (sum |x wg| + |bias|), du likewise;
//   h = f(g) (u + offset), |f'| <= 1.1, clamps do not widen an error: dh <= 1.1 dg (|u| + du) +
//     |f(g)| du + 9 * 2^-24 |h| (exp 4, sum, quotient, product, offset), and 2^-8 |h| more when x
//     is bf16 and h is rounded to it;
//   dy <= sum |wd| dh + R(inter) 2^-24 (sum |wd| (|h| + dh) + |bias|);
//   the combination adds top_k + 2 roundings, the output one of its format.
inline Expected expected_moe(const Tensor& x, const Routing& r, const Experts& w, int64_t inter,
                             const Extras& extras = {}, double (*rounded)(int64_t) = roundings) {
  const int64_t tokens = x.size(0), hidden = x.size(1), top_k = r.experts.size(1);
  const std::vector<float> xs = to_floats(x);
  const double h_unit = x.format() == Format::bf16 ? 0x1p-8 : 0;
  Expected result;
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<double> sum(static_cast<size_t>(hidden)), error(static_cast<size_t>(hidden));
    const auto add = [&](const Experts& from, size_t e, int64_t width, double weight, bool shared) {
      const bool on_input = extras.scale_input && !shared;
      const auto bias = [&](const std::vector<float>& all, int64_t n, int64_t i) -> double {
        if (all.empty() || shared) return 0;
        return all[e * static_cast<size_t>(n) + static_cast<size_t>(i)];
      };
      std::vector<double> h(static_cast<size_t>(width)), dh(static_cast<size_t>(width));
      for (int64_t i = 0; i < width; ++i) {
        double g = 0, u = 0, dg = 0, du = 0;
        for (int64_t k = 0; k < hidden; ++k) {
          const double v = xs[static_cast<size_t>(t * hidden + k)] * (on_input ? weight : 1);
          const double a = v * from.gate_values[e][static_cast<size_t>(i * hidden + k)];
          const double b = v * from.up_values[e][static_cast<size_t>(i * hidden + k)];
          g += a, dg += std::abs(a), u += b, du += std::abs(b);
        }
        const double gate_bias = bias(extras.gate_bias, width, i);
        const double up_bias = bias(extras.up_bias, width, i);
        g += gate_bias, dg += std::abs(gate_bias), u += up_bias, du += std::abs(up_bias);
        dg *= rounded(hidden) * 0x1p-24, du *= rounded(hidden) * 0x1p-24;
        const double limit = extras.gated.limit;
        g = std::min(g, limit);
        u = std::max(-limit, std::min(limit, u)) + double{extras.gated.up_offset};
        const double silu = g / (1 + std::exp(-double{extras.gated.function.alpha} * g));
        h[static_cast<size_t>(i)] = silu * u;
        dh[static_cast<size_t>(i)] = 1.1 * dg * (std::abs(u) + du) + std::abs(silu) * du +
                                     (9 * 0x1p-24 + h_unit) * std::abs(silu * u);
      }
      for (int64_t i = 0; i < hidden; ++i) {
        const double down_bias = bias(extras.down_bias, hidden, i);
        double y = down_bias, dy = rounded(width) * 0x1p-24 * std::abs(down_bias);
        for (int64_t k = 0; k < width; ++k) {
          const double v = from.down_values[e][static_cast<size_t>(i * width + k)];
          y += v * h[static_cast<size_t>(k)];
          dy += std::abs(v) *
                (dh[static_cast<size_t>(k)] +
                 rounded(width) * 0x1p-24 *
                     (std::abs(h[static_cast<size_t>(k)]) + dh[static_cast<size_t>(k)]));
        }
        const double outer = on_input ? 1 : weight;
        sum[static_cast<size_t>(i)] += outer * y;
        error[static_cast<size_t>(i)] +=
            std::abs(outer) * (dy + static_cast<double>(top_k + 2) * 0x1p-24 * (std::abs(y) + dy));
      }
    };
    for (int64_t s = 0; s < top_k; ++s) {
      const auto e = static_cast<size_t>(r.experts.data<int32_t>()[t * top_k + s]);
      add(w, e, inter, r.weights.at({t, s}), false);
    }
    if (extras.shared != nullptr) {
      add(*extras.shared, 0, extras.shared_intermediate, extras.shared_scale, true);
    }
    for (size_t i = 0; i < sum.size(); ++i) {
      result.values.push_back(static_cast<float>(sum[i]));
      result.magnitudes.push_back(
          error[i] + unit_roundoff(x.format()) * (std::abs(sum[i]) + error[i]) + 0x1p-24);
    }
  }
  return result;  // magnitudes are the bounds
}

inline Routing random_routing(int64_t tokens, int64_t experts, int top_k, uint64_t seed) {
  RoutingOptions options;
  options.top_k = top_k;
  return route(random_tensor({tokens, experts}, Format::f32, seed), options);
}

// Scales that keep silu(gate) * up within f16 range.
inline Tensor small_input(int64_t tokens, int64_t hidden, Format format) {
  std::vector<float> values = random_values(tokens * hidden, 4);
  for (float& v : values) v *= 0x1p-12f;
  return convert(Tensor::from<float>(values, {tokens, hidden}, Format::f32), format);
}

inline MoeProblem problem_of(const WeightSpec& spec, int64_t experts, int64_t hidden,
                             int64_t inter) {
  MoeProblem p;
  p.experts = experts, p.hidden = hidden, p.intermediate = inter;
  p.weight = spec.format, p.scaled = spec.scaled, p.scaling = spec.scaling;
  return p;
}
inline ExpertTensors separate(const Experts& w) {
  ExpertTensors t;
  t.gate = w.gate, t.up = w.up, t.down = w.down;
  return t;
}

// [experts, rows, bytes of a row] from matrices, row i being that of `pick(i)`.
template <class Pick>
Tensor stacked(int64_t experts, int64_t rows, int64_t columns, Format format, const Pick& pick) {
  const Tensor out = Tensor::empty({experts, rows, columns}, format);
  const int64_t row_bytes = columns * bits(format) / 8;
  for (int64_t e = 0; e < experts; ++e) {
    for (int64_t i = 0; i < rows; ++i) {
      const auto [from, row] = pick(e, i);
      std::memcpy(out.data<char>() + (e * rows + i) * row_bytes,
                  from.template data<char>() + row * row_bytes, static_cast<size_t>(row_bytes));
    }
  }
  return out;
}
// The same experts in the fused form; scales must lie in single rows.
inline ExpertTensors fused(const Experts& w, bool interleaved) {
  ExpertTensors t;
  t.interleaved = interleaved;
  const auto experts = static_cast<int64_t>(w.gate.size());
  const int64_t inter = w.gate[0].size(0);
  const auto gate_or_up = [&](bool scales) {
    return [&, scales](int64_t e, int64_t i) {
      const bool up = interleaved ? i % 2 == 1 : i >= inter;
      const Tensor& from = (up ? w.up : w.gate)[static_cast<size_t>(e)];
      return std::pair(scales ? from.scales() : from, interleaved ? i / 2 : i % inter);
    };
  };
  const auto down = [&](bool scales) {
    return [&, scales](int64_t e, int64_t i) {
      const Tensor& from = w.down[static_cast<size_t>(e)];
      return std::pair(scales ? from.scales() : from, i);
    };
  };
  const Tensor& g = w.gate[0];
  const Tensor& d = w.down[0];
  t.gate_up = stacked(experts, 2 * inter, g.size(1), g.format(), gate_or_up(false));
  t.all_down = stacked(experts, d.size(0), d.size(1), d.format(), down(false));
  if (g.has_scales()) {
    const Format f = g.scaling().format;
    const Tensor up_scales = stacked(experts, 2 * inter, g.scales().size(1), f, gate_or_up(true));
    const Tensor down_scales = stacked(experts, d.size(0), d.scales().size(1), f, down(true));
    t.gate_up = t.gate_up.quantized(g.scaling(), up_scales, g.tensor_scale());
    t.all_down = t.all_down.quantized(d.scaling(), down_scales, d.tensor_scale());
  }
  return t;
}

// A fused tensor with its last two dimensions exchanged.
inline Tensor input_major(const Tensor& t) {
  const Tensor plain = Tensor::view(t.data(), t.shape(), t.format());
  const Tensor codes = plain.transpose(1, 2).contiguous_copy();
  if (!t.has_scales()) return codes;
  Scaling s = t.scaling();
  std::swap(s.block_rows, s.block_cols);
  return codes.quantized(s, t.scales().transpose(1, 2).contiguous_copy());
}

}  // namespace halftone::test
