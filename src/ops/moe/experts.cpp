// Experts from the forms in which checkpoints store them.
#include "ops/moe/experts.h"

#include "base/message.h"
#include "halftone/quantize.h"
#include "halftone/transpose.h"
#include "ops/gemm/cpu/weights.h"
#include "ops/moe/gpu.h"

namespace halftone {
namespace experts {

namespace {

using gemm::Weights;

std::string described(Format format, bool scaled, const Scaling& scaling) {
  return scaled ? concat(name(format), " with ", to_string(scaling), " scales") : name(format);
}

void check_matrix(const Tensor& w, const std::string& what, const Shape& shape, Format format,
                  bool scaled, const Scaling& scaling) {
  const bool fits = w.defined() && w.shape() == shape && w.format() == format &&
                    w.has_scales() == scaled && (!scaled || w.scaling() == scaling);
  require(fits, what, " is ", w.defined() ? to_string(w) : "undefined", "; the plan needs ",
          described(format, scaled, scaling), " ", to_string(shape));
  require(w.device().is_cpu(), what, " is on ", w.device().name(), "; the plan runs on cpu");
}

// The plan's scaling, or the same with tiled scales that are made linear here.
Tensor linear(const Tensor& t, BoundExperts* bound) {
  Tensor result = with_linear_scales(t);
  bound->kept.push_back(result);
  return result;
}

Tensor floats(const Tensor& bias, const char* what, const Shape& shape) {
  require(bias.shape() == shape, what, " is ", to_string(bias.shape()), "; it must be ",
          to_string(shape));
  require(is_plain_float(bias.format()), what, " is ", name(bias.format()),
          "; it must be f32, f16 or bf16");
  return convert(bias, Format::f32);
}

// Rows of the gate or of the up matrices.
Tensor split_bias(const Tensor& both, int64_t inter, bool interleaved, bool up) {
  const Tensor out = Tensor::empty({both.size(0), inter}, Format::f32);
  for (int64_t e = 0; e < both.size(0); ++e) {
    const float* from = both.data<float>() + e * 2 * inter;
    for (int64_t i = 0; i < inter; ++i) {
      out.data<float>()[e * inter + i] = from[interleaved ? 2 * i + up : up * inter + i];
    }
  }
  return out;
}

void bind_fused(const MoeProblem& p, const ExpertTensors& t, BoundExperts* b) {
  require(t.gate.empty() && t.up.empty() && t.down.empty(),
          "experts are given both separate and fused; give one of them");
  Tensor gate_up = t.gate_up, down = t.all_down;
  require(gate_up.defined() && gate_up.rank() == 3, "gate_up ", to_string(gate_up.shape()),
          " must have three dimensions");
  require(down.defined() && down.rank() == 3, "all_down ", to_string(down.shape()),
          " must have three dimensions");
  if (t.input_major) {
    gate_up = k_innermost(gate_up, "gate_up");
    down = k_innermost(down, "all_down");
  }
  check_matrix(gate_up, "gate_up", {p.experts, 2 * p.intermediate, p.hidden}, p.weight, p.scaled,
               p.scaling);
  check_matrix(down, "all_down", {p.experts, p.hidden, p.intermediate}, p.weight, p.scaled,
               p.scaling);
  gate_up = linear(gate_up, b);
  down = linear(down, b);
  const int64_t step = t.interleaved ? 2 : 1, second = t.interleaved ? 1 : p.intermediate;
  for (int64_t e = 0; e < p.experts; ++e) {
    const Weights both = gemm::view_of(gate_up, "gate_up", e);
    require(gemm::can_take_rows(both, second, step), "gate_up has ", to_string(p.scaling),
            " scales, whose blocks do not separate gate and up; give separate tensors");
    b->weights.push_back(gemm::take_rows(both, 0, step, p.intermediate));
    b->weights.push_back(gemm::take_rows(both, second, step, p.intermediate));
    b->weights.push_back(gemm::view_of(down, "all_down", e));
  }
}

void bind_separate(const MoeProblem& p, const ExpertTensors& t, BoundExperts* b) {
  check_count(p, &t.gate, "gate");
  check_count(p, &t.up, "up");
  check_count(p, &t.down, "down");
  const auto bind = [&](const std::vector<Tensor>& all, int64_t e, const char* what, int64_t n,
                        int64_t k) {
    const Tensor& w = all[static_cast<size_t>(e)];
    check_matrix(w, concat(what, "[", e, "]"), {n, k}, p.weight, p.scaled, p.scaling);
    b->weights.push_back(gemm::view_of(linear(w, b), what));
  };
  for (int64_t e = 0; e < p.experts; ++e) {
    bind(t.gate, e, "gate", p.intermediate, p.hidden);
    bind(t.up, e, "up", p.intermediate, p.hidden);
    bind(t.down, e, "down", p.hidden, p.intermediate);
  }
}

}  // namespace

Tensor k_innermost(const Tensor& t, const char* what) {
  require(t.defined() && t.rank() == 3, what, " ", to_string(t.shape()),
          " must have three dimensions");
  require(bits(t.format()) >= 8, what, " is ", name(t.format()),
          "; input-major tensors need 8 bits or more an element");
  Stream stream(t.device());
  Tensor turned = transpose(t, stream);
  if (t.has_scales()) {
    Scaling scaling = t.scaling();
    require(scaling.layout == ScaleLayout::linear, what, " has ", to_string(scaling),
            " scales; input-major tensors need linear ones");
    std::swap(scaling.block_rows, scaling.block_cols);
    turned = turned.quantized(scaling, transpose(t.scales(), stream), t.tensor_scale());
  }
  stream.synchronize();
  return turned;
}

std::string refuse_experts(const MoeProblem& p) {
  const auto refuse = [&](const char* what, Format format, bool scaled, const Scaling& scaling,
                          int64_t n, int64_t k) {
    const std::string reason = gemm::refuse_weight(format, scaled, scaling, n, k);
    return reason.empty() ? reason : concat(what, reason);
  };
  std::string reason =
      refuse("gate and up: ", p.weight, p.scaled, p.scaling, p.intermediate, p.hidden);
  if (!reason.empty()) return reason;
  reason = refuse("down: ", p.weight, p.scaled, p.scaling, p.hidden, p.intermediate);
  if (!reason.empty() || p.shared_intermediate == 0) return reason;
  const Format format = p.shared_weight;
  reason = refuse("shared gate and up: ", format, p.shared_scaled, p.shared_scaling,
                  p.shared_intermediate, p.hidden);
  if (!reason.empty()) return reason;
  return refuse("shared down: ", format, p.shared_scaled, p.shared_scaling, p.hidden,
                p.shared_intermediate);
}

void check_count(const MoeProblem& p, const std::vector<Tensor>* experts, const char* what) {
  require(experts != nullptr && static_cast<int64_t>(experts->size()) == p.experts, what, " has ",
          experts != nullptr ? experts->size() : 0, " tensors; the plan needs ", p.experts);
}

gemm::Weights expert_view(const MoeProblem& p, const std::vector<Tensor>& experts, int64_t e,
                          const char* what, int64_t n, int64_t k) {
  const Tensor& w = experts[static_cast<size_t>(e)];
  const bool fits = w.defined() && w.rank() == 2 && w.size(0) == n && w.size(1) == k &&
                    w.format() == p.weight && w.has_scales() == p.scaled &&
                    (!p.scaled || w.scaling() == p.scaling);
  if (!fits) check_matrix(w, concat(what, "[", e, "]"), {n, k}, p.weight, p.scaled, p.scaling);
  return gemm::view_of(w, what);
}

}  // namespace experts

MoeWeights bind_experts(const MoeProblem& p, ExpertTensors t) {
  require(p.experts >= 1 && p.hidden >= 1 && p.intermediate >= 1, "the problem has ", p.experts,
          " experts, hidden ", p.hidden, ", intermediate ", p.intermediate,
          "; all must be at least 1");
  const std::string reason = experts::refuse_experts(p);
  if (!reason.empty()) throw Error(ErrorCode::unsupported, reason);
  require(p.shared_intermediate > 0 ||
              (!t.shared_gate.defined() && !t.shared_up.defined() && !t.shared_down.defined()),
          "shared experts are given; the problem has shared_intermediate 0");
  const Tensor& any = t.gate_up.defined() ? t.gate_up : t.gate.empty() ? Tensor() : t.gate[0];
  const bool on_gpu = any.defined() && !any.device().is_cpu();
  auto b = on_gpu ? experts::bind_gpu(p, t, any.device()) : std::make_shared<BoundExperts>();
  b->hidden = p.hidden, b->intermediate = p.intermediate, b->experts = p.experts;
  b->shared_intermediate = p.shared_intermediate;
  b->weight = p.weight, b->scaled = p.scaled, b->scaling = p.scaling;
  b->shared_weight = p.shared_weight, b->shared_scaled = p.shared_scaled;
  b->shared_scaling = p.shared_scaling;
  if (on_gpu) return {std::move(b)};
  if (t.gate_up.defined() || t.all_down.defined()) {
    experts::bind_fused(p, t, b.get());
  } else {
    require(!t.input_major && !t.interleaved,
            "input_major and interleaved are set; they describe the fused tensors only");
    experts::bind_separate(p, t, b.get());
  }
  if (p.shared_intermediate > 0) {
    const auto bind = [&](const Tensor& w, const char* what, int64_t n, int64_t k) {
      experts::check_matrix(w, what, {n, k}, p.shared_weight, p.shared_scaled, p.shared_scaling);
      b->weights.push_back(gemm::view_of(experts::linear(w, b.get()), what));
    };
    bind(t.shared_gate, "shared_gate", p.shared_intermediate, p.hidden);
    bind(t.shared_up, "shared_up", p.shared_intermediate, p.hidden);
    bind(t.shared_down, "shared_down", p.hidden, p.shared_intermediate);
  }
  if (t.gate_up_bias.defined()) {
    const Tensor both =
        experts::floats(t.gate_up_bias, "gate_up_bias", {p.experts, 2 * p.intermediate});
    b->gate_bias = experts::split_bias(both, p.intermediate, t.interleaved, false);
    b->up_bias = experts::split_bias(both, p.intermediate, t.interleaved, true);
  }
  if (t.down_bias.defined()) {
    b->down_bias = experts::floats(t.down_bias, "down_bias", {p.experts, p.hidden});
  }
  return {std::move(b)};
}

}  // namespace halftone
