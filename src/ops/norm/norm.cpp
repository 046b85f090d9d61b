#include "halftone/norm.h"

#include <cmath>

#include "base/arguments.h"
#include "base/kernel_table.h"
#include "ops/norm/kernels.h"

namespace halftone {

struct NormKernel : KernelRow<NormProblem, NormFunction> {};

namespace {

std::string accepts(const NormProblem& p) {
  if (p.rows < 0) return concat("rms_norm: rows is ", p.rows, "; it must not be negative");
  if (p.columns < 1) return concat("rms_norm: columns is ", p.columns, "; it must be at least 1");
  if (!is_plain_float(p.x)) {
    return concat("rms_norm: x is ", name(p.x), "; it must be f32, f16 or bf16");
  }
  if (!is_plain_float(p.weight)) {
    return concat("rms_norm: weight is ", name(p.weight), "; it must be f32, f16 or bf16");
  }
  if (!(p.eps >= 0) || !std::isfinite(p.eps)) {
    return concat("rms_norm: eps is ", p.eps, "; it must be finite and not negative");
  }
  return "";
}

constexpr NormKernel kKernels[] = {
#if defined(__x86_64__)
    {{"rms_norm_avx512_bf16", Device::Kind::cpu, CpuLevel::avx512_bf16, accepts,
      cpu_avx512_bf16::norm_rows}},
    {{"rms_norm_avx512", Device::Kind::cpu, CpuLevel::avx512, accepts, cpu_avx512::norm_rows}},
    {{"rms_norm_avx2", Device::Kind::cpu, CpuLevel::avx2, accepts, cpu_avx2::norm_rows}},
#endif
    {{"rms_norm_baseline", Device::Kind::cpu, CpuLevel::baseline, accepts,
      cpu_baseline::norm_rows}},
};

const NormKernel* choose_norm(const NormProblem& problem, const Device& device, Support* support) {
  const NormKernel* kernel =
      choose(std::span<const NormKernel>(kKernels), problem, device, &support->reason);
  support->ok = kernel != nullptr;
  if (support->ok) support->reason.clear();
  return kernel;
}

Tensor one_line(const Tensor& x, Tensor* residual, const Tensor& weight, float eps,
                Stream& stream) {
  const char* operation = residual != nullptr ? "rms_norm_residual" : "rms_norm";
  require(weight.defined() && weight.rank() == 1, operation, ": weight must be one-dimensional");
  const Tensor rows = as_rows(operation, "x", x);
  const Tensor residual_rows =
      residual != nullptr ? as_rows(operation, "residual", *residual) : Tensor();
  Tensor out = Tensor::empty(x.shape(), x.format(), x.device());
  const NormProblem problem{row_count(x),    x.size(-1), x.format(),
                            weight.format(), eps,        residual != nullptr};
  run(plan(problem, x.device()),
      {rows, weight, out.reshape({row_count(x), x.size(-1)}), residual_rows}, stream);
  return out;
}

}  // namespace

std::string describe(const NormPlan& plan) {
  const NormProblem& p = plan.problem;
  return concat(plan.kernel->name, ": rms norm", p.residual ? " with residual" : "", " of ", p.rows,
                " rows of ", p.columns, ", ", name(p.x), " with ", name(p.weight), " weight, on ",
                plan.device.name());
}

Support can_run(const NormProblem& problem, const Device& device) {
  Support support;
  choose_norm(problem, device, &support);
  return support;
}

NormPlan plan(const NormProblem& problem, const Device& device) {
  Support support;
  const NormKernel* kernel = choose_norm(problem, device, &support);
  require_support(support);
  return {problem, device, kernel};
}

void run(const NormPlan& plan, const NormTensors& t, Stream& stream) {
  const NormProblem& p = plan.problem;
  const auto rows = [&](const char* argument, const Tensor& x) {
    return check_rows("rms_norm", argument, x, p.rows, p.columns, p.x, plan.device);
  };
  require(plan.kernel != nullptr, "rms_norm: the plan is empty; make it with plan()");
  check_tensor("rms_norm", "weight", t.weight, {p.columns}, p.weight, plan.device);
  require(p.residual == t.residual.defined(), "rms_norm: residual is ",
          t.residual.defined() ? "given" : "missing", ", the plan was made ",
          p.residual ? "with" : "without", " one");
  NormArgs args{rows("x", t.x), rows("out", t.out), {}, t.weight.data(), p.columns, p.x, p.weight,
                p.eps};
  check_overlap("rms_norm", "out", t.out, "x", t.x);
  check_overlap("rms_norm", "out", t.out, "weight", t.weight);
  if (p.residual) {
    args.residual = rows("residual", t.residual);
    check_overlap("rms_norm", "residual", t.residual, "x", t.x);
    check_overlap("rms_norm", "residual", t.residual, "weight", t.weight);
    require(
        t.out.data() != t.residual.data() || t.out.numel() == 0,
        "rms_norm: out is residual; the sum must outlive the norm, so they need separate memory");
    check_overlap("rms_norm", "out", t.out, "residual", t.residual);
  }
  for_rows(stream, p.rows, p.columns,
           [&](int64_t begin, int64_t end) { plan.kernel->function(args, begin, end); });
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, float eps, Stream& stream) {
  return one_line(x, nullptr, weight, eps, stream);
}

Tensor rms_norm_residual(const Tensor& x, Tensor& residual, const Tensor& weight, float eps,
                         Stream& stream) {
  return one_line(x, &residual, weight, eps, stream);
}

void qk_norm(Tensor& x, const Tensor& weight, float eps, Stream& stream) {
  require(weight.defined() && weight.rank() == 1, "qk_norm: weight must be one-dimensional");
  const Tensor rows = as_rows("qk_norm", "x", x);
  const NormProblem problem{row_count(x), x.size(-1), x.format(), weight.format(), eps, false};
  run(plan(problem, x.device()), {rows, weight, rows, {}}, stream);
}

}  // namespace halftone
