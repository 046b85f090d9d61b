// Dispatch and checks of the grouped product.
#include "halftone/moe.h"

#include <algorithm>

#include "base/kernel_table.h"
#include "base/message.h"
#include "halftone/activation.h"
#include "ops/gemm/cpu/weights.h"
#include "ops/moe/gpu.h"
#include "ops/moe/grouped.h"

namespace halftone {

namespace {

std::string refuse(const MoeProblem& p) {
  if (p.tokens < 0) return concat("tokens is ", p.tokens, "; it must not be negative");
  if (p.experts < 1) return concat("experts is ", p.experts, "; it must be at least 1");
  if (p.top_k < 1 || p.top_k > p.experts) {
    return concat("top_k is ", p.top_k, "; it must be 1 to the number of experts, ", p.experts);
  }
  if (!is_plain_float(p.x)) return concat("x is ", name(p.x), "; it must be f32, f16 or bf16");
  if (p.shared_intermediate < 0) {
    return concat("shared_intermediate is ", p.shared_intermediate, "; it must not be negative");
  }
  std::string reason = can_run(GatedProblem{1, 1, Format::f32, p.gated}, Device::cpu()).reason;
  if (reason.empty()) reason = experts::refuse_experts(p);
  if (!reason.empty() || !p.quantize_x) return reason;
  for (const int64_t k : {p.hidden, p.intermediate, p.shared_intermediate}) {
    if (k > 0 && reason.empty()) reason = gemm::refuse_x({p.x, false, {}, p.quantize_x}, k);
  }
  return reason;
}

void check_experts(const MoeProblem& p, const MoeTensors& t, const Device& device) {
  if (t.weights == nullptr) {
    require(device.is_cpu(), "weights is null; experts on ", device.name(), " need bind_experts");
    require(p.shared_intermediate == 0,
            "weights is null; a problem with a shared expert needs bind_experts");
    require(p.scaling.layout == ScaleLayout::linear || !p.scaled,
            "weights is null; tiled scales need bind_experts");
    experts::check_count(p, t.gate, "gate");
    experts::check_count(p, t.up, "up");
    experts::check_count(p, t.down, "down");
    return;
  }
  require(t.gate == nullptr && t.up == nullptr && t.down == nullptr,
          "experts are given both bound and as vectors; give one of them");
  require(t.weights->experts != nullptr, "weights is empty; make it with bind_experts");
  const BoundExperts& b = *t.weights->experts;
  require(b.device == device, "weights are on ", b.device.name(), "; the plan runs on ",
          device.name());
  const bool shared = p.shared_intermediate == 0 ||
                      (b.shared_weight == p.shared_weight && b.shared_scaled == p.shared_scaled &&
                       (!p.shared_scaled || b.shared_scaling == p.shared_scaling));
  const bool fits = b.hidden == p.hidden && b.intermediate == p.intermediate &&
                    b.experts == p.experts && b.shared_intermediate == p.shared_intermediate &&
                    b.weight == p.weight && b.scaled == p.scaled &&
                    (!p.scaled || b.scaling == p.scaling) && shared;
  require(fits, "weights are ", b.experts, " experts, ", name(b.weight), " [", b.intermediate, ", ",
          b.hidden, "]; the plan needs ", p.experts, ", ", name(p.weight), " [", p.intermediate,
          ", ", p.hidden, "], with the same scaling and shared expert");
}

void check(const MoeProblem& p, const MoeTensors& t, const Device& device) {
  const auto there = [&](const Tensor& x, const char* what) {
    require(x.device() == device, what, " is on ", x.device().name(), "; the plan runs on ",
            device.name());
  };
  const auto matrix = [&](const Tensor& m, const char* what, int64_t rows, int64_t columns,
                          Format format) {
    require(m.defined() && m.rank() == 2 && m.size(0) == rows && m.size(1) == columns, what, " is ",
            shown(m.shape()), "; the plan needs [", rows, ", ", columns, "]");
    require(m.format() == format, what, " is ", name(m.format()), "; the plan needs ",
            name(format));
    require(m.stride(1) == 1 || columns == 1 || rows == 0, what, " has strides ",
            shown(m.strides()), "; its last dimension must be contiguous");
    there(m, what);
  };
  matrix(t.x, "x", p.tokens, p.hidden, p.x);
  matrix(t.out, "out", p.tokens, p.hidden, p.x);
  if (t.residual.defined()) matrix(t.residual, "residual", p.tokens, p.hidden, p.x);
  matrix(t.routing.experts, "routing.experts", p.tokens, p.top_k, Format::i32);
  matrix(t.routing.weights, "routing.weights", p.tokens, p.top_k, Format::f32);
  check_experts(p, t, device);
  if (t.shared_scale.defined()) {
    require(p.shared_intermediate > 0, "shared_scale is given; the plan has no shared expert");
    require(t.shared_scale.format() == Format::f32 && t.shared_scale.shape() == Shape{p.tokens},
            "shared_scale is ", shown(t.shared_scale), "; the plan needs f32 [", p.tokens, "]");
    there(t.shared_scale, "shared_scale");
  }
  if (!device.is_cpu()) return;  // the host does not see what is chosen
  for (int64_t i = 0; i < p.tokens; ++i) {
    const int32_t* expert_ids = t.routing.experts.data<int32_t>() + i * t.routing.experts.stride(0);
    for (int64_t s = 0; s < p.top_k; ++s) {
      require(expert_ids[s] >= 0 && expert_ids[s] < p.experts, "routing.experts[", i, ", ", s,
              "] is ", expert_ids[s], "; there are ", p.experts, " experts");
    }
  }
}

}  // namespace

std::string describe(const MoePlan& plan) {
  require(plan.kernels != nullptr, "the plan is empty; make it with plan()");
  const MoeProblem& p = plan.problem;
  const MoeKernels& k = *plan.kernels;
  const bool shared = p.shared_intermediate > 0;
  return concat(
      k.up.name, ": ", p.tokens, " tokens to ", p.top_k, " of ", p.experts, " experts, hidden ",
      p.hidden, ", intermediate ", p.intermediate, ", x ", name(p.x), ", weights ", name(p.weight),
      p.scaled ? " (" + to_string(p.scaling) + " scales)" : "",
      p.quantize_x ? " x " + to_string(*p.quantize_x) : "",
      p.scale_input ? ", weights on the input" : "",
      shared ? concat(", shared expert ", p.shared_intermediate, " ", name(p.shared_weight)) : "",
      k.cpu() != nullptr ? ""
                         : concat(", up by ", to_string(k.up), "; down by ", to_string(k.down)),
      k.cpu() == nullptr && shared ? concat("; shared up by ", to_string(k.shared_up),
                                            "; shared down by ", to_string(k.shared_down))
                                   : "",
      ", workspace ", plan.workspace_bytes, " bytes");
}

MoeAlignment alignment_of(const MoeTensors& t) {
  if (!t.x.defined() || t.x.device().is_cpu() || t.weights == nullptr ||
      t.weights->experts == nullptr || t.weights->experts->gpu == nullptr) {
    return {};
  }
  MoeAlignment a = t.weights->experts->gpu->alignment;
  a.up.x = a.shared_up.x = gemm::rows_alignment(t.x);
  return a;
}

namespace {

// "" or why no kernel takes the problem.
std::string find(const MoeProblem& p, const Device& device, MoeKernels* found) {
  std::string reason = refuse(p);
  if (reason.empty() && !device.is_cpu()) reason = experts::accepts_gpu(p);
  if (!reason.empty()) return reason;
  const gemm::GemmDevice d = gemm::gemm_device(device);
  const bool explain = kernel_trace != nullptr, shared = p.shared_intermediate > 0;
  const auto trace = [&](const gemm::GemmChoice& c, const char* what) {
    if (!explain) return;
    for (const auto& [kernel, why] : c.trace) kernel_trace->emplace_back(what + kernel, why);
  };
  if (device.is_cpu()) {
    std::vector<gemm::GemmProblem> all = {experts::up_problem(p), experts::down_problem(p)};
    if (shared) all.push_back(experts::shared_up_problem(p));
    if (shared) all.push_back(experts::shared_down_problem(p));
    found->up = found->down = found->shared_up = found->shared_down =
        gemm::dispatch_cpu(all, d, explain);
    trace(found->up, "");
    return found->up.reason;
  }
  const auto one = [&](gemm::GemmChoice* choice, const gemm::GemmProblem& problem,
                       const char* what) {
    if (!reason.empty()) return;
    *choice = dispatch(problem, d, explain);
    trace(*choice, what);
    reason = choice->reason;
  };
  one(&found->up, experts::up_problem(p), "up: ");
  one(&found->down, experts::down_problem(p), "down: ");
  if (shared) one(&found->shared_up, experts::shared_up_problem(p), "shared up: ");
  if (shared) one(&found->shared_down, experts::shared_down_problem(p), "shared down: ");
  return reason;
}

void check_alignments(const MoePlan& plan, const MoeTensors& t) {
  const MoeProblem& p = plan.problem;
  const MoeKernels& k = *plan.kernels;
  const MoeAlignment a = alignment_of(t);
  const char* field = "MoeProblem::alignment";
  check_alignment(k.up, experts::up_problem(p), a.up, field);
  check_alignment(k.down, experts::down_problem(p), a.down, field);
  if (p.shared_intermediate == 0) return;
  check_alignment(k.shared_up, experts::shared_up_problem(p), a.shared_up, field);
  check_alignment(k.shared_down, experts::shared_down_problem(p), a.shared_down, field);
}

}  // namespace

Support can_run(const MoeProblem& problem, const Device& device) {
  MoeKernels found;
  const std::string reason = find(problem, device, &found);
  return {reason.empty(), reason};
}

MoePlan plan(const MoeProblem& p, const Device& device) {
  auto found = std::make_shared<MoeKernels>();
  const std::string reason = find(p, device, found.get());
  if (!reason.empty()) throw Error(ErrorCode::unsupported, reason);
  MoePlan plan;
  plan.problem = p;
  plan.device = device;
  if (found->cpu() == nullptr) {
    plan.workspace = experts::workspace_gpu(p, *found, device, &plan.workspace_bytes);
  } else {
    auto w = std::make_shared<experts::Workspace>();
    experts::prepare(p, *found->cpu(), w.get());
    plan.workspace_bytes = experts::bytes(*w);
    plan.workspace = std::move(w);
  }
  plan.kernels = std::move(found);
  return plan;
}

void run(const MoePlan& plan, const MoeTensors& t, Stream& stream) {
  require(plan.kernels != nullptr, "the plan is empty; make it with plan()");
  const MoeProblem& p = plan.problem;
  require(stream.device() == plan.device, "stream is on ", stream.device().name(),
          "; the plan runs on ", plan.device.name());
  check(p, t, plan.device);
  if (plan.kernels->cpu() == nullptr) {
    check_alignments(plan, t);
    return experts::run_gpu(plan, t, stream);
  }
  auto* w = static_cast<experts::Workspace*>(plan.workspace.get());
  for (int64_t t0 = 0; t0 < p.tokens; t0 += experts::kTokens) {
    experts::run_tokens(p, *plan.kernels->cpu(), t, t0, std::min(experts::kTokens, p.tokens - t0),
                        w, stream.pool());
  }
}

Tensor moe(const Tensor& x, const Routing& routing, const std::vector<Tensor>& gate,
           const std::vector<Tensor>& up, const std::vector<Tensor>& down, Stream& stream) {
  require(x.defined() && x.rank() == 2, "x ", to_string(x.shape()),
          " must have two dimensions, [tokens, hidden]");
  require(!gate.empty() && gate[0].defined() && gate[0].rank() == 2,
          "gate is empty or not made of matrices [intermediate, hidden]");
  require(routing.experts.defined() && routing.experts.rank() == 2,
          "routing.experts must be [tokens, top_k]; see route()");
  MoeProblem p;
  p.tokens = x.size(0);
  p.hidden = x.size(1);
  p.intermediate = gate[0].size(0);
  p.experts = static_cast<int64_t>(gate.size());
  p.top_k = static_cast<int>(routing.experts.size(1));
  p.x = x.format();
  p.weight = gate[0].format();
  p.scaled = gate[0].has_scales();
  if (p.scaled) p.scaling = gate[0].scaling();
  const Tensor out = Tensor::empty(x.shape(), x.format(), x.device());
  run(plan(p, x.device()), {x, routing, &gate, &up, &down, out}, stream);
  return out;
}

Tensor moe(const Tensor& x, const Routing& routing, const MoeProblem& problem,
           const MoeWeights& weights, Stream& stream) {
  require(x.defined() && x.rank() == 2, "x ", to_string(x.shape()),
          " must have two dimensions, [tokens, hidden]");
  require(routing.experts.defined() && routing.experts.rank() == 2,
          "routing.experts must be [tokens, top_k]; see route()");
  MoeProblem p = problem;
  p.tokens = x.size(0);
  p.top_k = static_cast<int>(routing.experts.size(1));
  p.x = x.format();
  const Tensor out = Tensor::empty(x.shape(), x.format(), x.device());
  const MoeTensors tensors{x, routing, nullptr, nullptr, nullptr, out, &weights};
  p.alignment = alignment_of(tensors);
  run(plan(p, x.device()), tensors, stream);
  return out;
}

}  // namespace halftone
