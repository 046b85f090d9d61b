#include "halftone/softmax.h"

#include "base/arguments.h"
#include "base/kernel_table.h"
#include "ops/softmax/kernels.h"

namespace halftone {

struct SoftmaxKernel : KernelRow<SoftmaxProblem, SoftmaxFunction> {};

namespace {

std::string accepts(const SoftmaxProblem& p) {
  if (p.rows < 0) return concat("softmax: rows is ", p.rows, "; it must not be negative");
  if (p.columns < 0) return concat("softmax: columns is ", p.columns, "; it must not be negative");
  if (!is_plain_float(p.x)) {
    return concat("softmax: x is ", name(p.x), "; it must be f32, f16 or bf16");
  }
  if (!is_plain_float(p.out)) {
    return concat("softmax: out is ", name(p.out), "; it must be f32, f16 or bf16");
  }
  return "";
}

constexpr SoftmaxKernel kKernels[] = {
#if defined(__x86_64__)
    {{"softmax_avx512_bf16", Device::Kind::cpu, CpuLevel::avx512_bf16, accepts,
      cpu_avx512_bf16::softmax_rows}},
    {{"softmax_avx512", Device::Kind::cpu, CpuLevel::avx512, accepts, cpu_avx512::softmax_rows}},
    {{"softmax_avx2", Device::Kind::cpu, CpuLevel::avx2, accepts, cpu_avx2::softmax_rows}},
#endif
    {{"softmax_baseline", Device::Kind::cpu, CpuLevel::baseline, accepts,
      cpu_baseline::softmax_rows}},
};

const SoftmaxKernel* choose_kernel(const SoftmaxProblem& problem, const Device& device,
                                   Support* support) {
  const SoftmaxKernel* kernel =
      choose(std::span<const SoftmaxKernel>(kKernels), problem, device, &support->reason);
  support->ok = kernel != nullptr;
  if (support->ok) support->reason.clear();
  return kernel;
}

}  // namespace

std::string describe(const SoftmaxPlan& plan) {
  const SoftmaxProblem& p = plan.problem;
  return concat(plan.kernel->name, ": softmax of ", p.rows, " rows of ", p.columns, ", ", name(p.x),
                " to ", name(p.out), ", on ", plan.device.name());
}

Support can_run(const SoftmaxProblem& problem, const Device& device) {
  Support support;
  choose_kernel(problem, device, &support);
  return support;
}

SoftmaxPlan plan(const SoftmaxProblem& problem, const Device& device) {
  Support support;
  const SoftmaxKernel* kernel = choose_kernel(problem, device, &support);
  require_support(support);
  return {problem, device, kernel};
}

void run(const SoftmaxPlan& plan, const SoftmaxTensors& t, Stream& stream) {
  const SoftmaxProblem& p = plan.problem;
  require(plan.kernel != nullptr, "softmax: the plan is empty; make it with plan()");
  const SoftmaxArgs args{check_rows("softmax", "x", t.x, p.rows, p.columns, p.x, plan.device),
                         check_rows("softmax", "out", t.out, p.rows, p.columns, p.out, plan.device),
                         p.columns, p.x, p.out};
  check_overlap("softmax", "out", t.out, "x", t.x);
  for_rows(stream, p.rows, p.columns,
           [&](int64_t begin, int64_t end) { plan.kernel->function(args, begin, end); });
}

Tensor softmax(const Tensor& x, Stream& stream) {
  const Tensor rows = as_rows("softmax", "x", x);
  Tensor out = Tensor::empty(x.shape(), x.format(), x.device());
  const SoftmaxProblem problem{row_count(x), x.size(-1), x.format(), x.format()};
  run(plan(problem, x.device()), {rows, as_rows("softmax", "out", out)}, stream);
  return out;
}

}  // namespace halftone
