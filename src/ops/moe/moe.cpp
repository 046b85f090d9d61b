// Dispatch and checks of the grouped product.
#include "halftone/moe.h"

#include <algorithm>

#include "base/kernel_table.h"
#include "base/message.h"
#include "halftone/activation.h"
#include "ops/gemm/cpu/kernel_sets.h"
#include "ops/gemm/cpu/weights.h"
#include "ops/moe/gpu.h"
#include "ops/moe/grouped.h"

namespace halftone {

struct MoeKernel : KernelRow<MoeProblem, CpuOrGpu<const gemm::Kernels*, const experts::MoeGpu*>> {};

namespace {

std::string accepts_any(const MoeProblem&) { return ""; }
[[maybe_unused]] std::string accepts_bf16(const MoeProblem& p) {
  const auto refuse = [&](Format weight, bool scaled, const Scaling& scaling, int64_t k) {
    const bool octets = gemm::octet_order(gemm::code_of(weight, scaled, scaling));
    const gemm::XRows x({p.x, false, {}, p.quantize_x}, octets, k);
    return gemm::refuse_bf16(x.packed(), weight, scaled, scaling);
  };
  const std::string reason = refuse(p.weight, p.scaled, p.scaling, p.hidden);
  if (!reason.empty() || p.shared_intermediate == 0) return reason;
  return refuse(p.shared_weight, p.shared_scaled, p.shared_scaling, p.hidden);
}

std::string accepts_int8(const MoeProblem& p) {
  const gemm::XRows x({p.x, false, {}, p.quantize_x}, true, p.hidden);
  if (!x.can_use_integers()) return "x is not rounded to int8 with one scale a row";
  const int64_t k = std::max({p.hidden, p.intermediate, p.shared_intermediate});
  const std::string reason = gemm::refuse_int8(p.weight, p.scaled, p.scaling, k);
  if (!reason.empty() || p.shared_intermediate == 0) return reason;
  return gemm::refuse_int8(p.shared_weight, p.shared_scaled, p.shared_scaling, k);
}

constexpr MoeKernel kTable[] = {
#if defined(__x86_64__)
    {{"moe_avx512_bf16_int8", Device::Kind::cpu, CpuLevel::avx512_bf16, accepts_int8,
      &cpu_avx512_bf16::int8_kernels}},
    {{"moe_avx512_bf16_dot", Device::Kind::cpu, CpuLevel::avx512_bf16, accepts_bf16,
      &cpu_avx512_bf16::bf16_kernels}},
    {{"moe_avx512_bf16_f32", Device::Kind::cpu, CpuLevel::avx512_bf16, accepts_any,
      &cpu_avx512_bf16::f32_kernels}},
    {{"moe_avx512_int8", Device::Kind::cpu, CpuLevel::avx512, accepts_int8,
      &cpu_avx512::int8_kernels}},
    {{"moe_avx512_f32", Device::Kind::cpu, CpuLevel::avx512, accepts_any,
      &cpu_avx512::f32_kernels}},
    {{"moe_avx2_int8", Device::Kind::cpu, CpuLevel::avx2, accepts_int8, &cpu_avx2::int8_kernels}},
    {{"moe_avx2_f32", Device::Kind::cpu, CpuLevel::avx2, accepts_any, &cpu_avx2::f32_kernels}},
#endif
    {{"moe_baseline_int8", Device::Kind::cpu, CpuLevel::baseline, accepts_int8,
      &cpu_baseline::int8_kernels}},
    {{"moe_baseline_f32", Device::Kind::cpu, CpuLevel::baseline, accepts_any,
      &cpu_baseline::f32_kernels}},
    HALFTONE_GPU_ROW("moe", experts::accepts_gpu, &experts::moe_gpu),
};

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
  const MoeProblem& p = plan.problem;
  return concat(
      plan.kernel, ": ", p.tokens, " tokens to ", p.top_k, " of ", p.experts, " experts, hidden ",
      p.hidden, ", intermediate ", p.intermediate, ", x ", name(p.x), ", weights ", name(p.weight),
      p.scaled ? " (" + to_string(p.scaling) + " scales)" : "",
      p.quantize_x ? " x " + to_string(*p.quantize_x) : "",
      p.scale_input ? ", weights on the input" : "",
      p.shared_intermediate > 0
          ? concat(", shared expert ", p.shared_intermediate, " ", name(p.shared_weight))
          : "",
      plan.row->function.gpu != nullptr ? ", " + plan.row->function.gpu->describe(p, plan.device)
                                        : "",
      ", workspace ", plan.workspace_bytes, " bytes");
}

Support can_run(const MoeProblem& problem, const Device& device) {
  std::string reason = refuse(problem);
  if (reason.empty()) {
    if (choose<MoeKernel>(kTable, problem, device, &reason) != nullptr) reason.clear();
  }
  return {reason.empty(), reason};
}

MoePlan plan(const MoeProblem& p, const Device& device) {
  std::string reason = refuse(p);
  if (!reason.empty()) throw Error(ErrorCode::unsupported, reason);
  MoePlan plan;
  plan.problem = p;
  plan.device = device;
  plan.row = choose<MoeKernel>(kTable, p, device, &reason);
  if (plan.row == nullptr) throw Error(ErrorCode::unsupported, reason);
  plan.kernel = plan.row->name;
  if (const experts::MoeGpu* gpu = plan.row->function.gpu) {
    plan.workspace = gpu->workspace(p, device, &plan.workspace_bytes);
    return plan;
  }
  auto w = std::make_shared<experts::Workspace>();
  experts::prepare(p, *plan.row->function.cpu, w.get());
  plan.workspace_bytes = experts::bytes(*w);
  plan.workspace = std::move(w);
  return plan;
}

void run(const MoePlan& plan, const MoeTensors& t, Stream& stream) {
  require(plan.row != nullptr, "the plan is empty; make it with plan()");
  const MoeProblem& p = plan.problem;
  require(stream.device() == plan.device, "stream is on ", stream.device().name(),
          "; the plan runs on ", plan.device.name());
  check(p, t, plan.device);
  if (plan.row->function.gpu != nullptr) return plan.row->function.gpu->run(plan, t, stream);
  auto* w = static_cast<experts::Workspace*>(plan.workspace.get());
  for (int64_t t0 = 0; t0 < p.tokens; t0 += experts::kTokens) {
    experts::run_tokens(p, *plan.row->function.cpu, t, t0,
                        std::min(experts::kTokens, p.tokens - t0), w, stream.pool());
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
  run(plan(p, x.device()), {x, routing, nullptr, nullptr, nullptr, out, &weights}, stream);
  return out;
}

}  // namespace halftone
