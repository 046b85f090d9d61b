// Softmax: rules, plan, run and one-liner.
#include "halftone/softmax.h"

#include <cmath>

#include "base/arguments.h"
#include "base/kernel_table.h"
#include "formats/kernels.h"
#include "ops/softmax/kernels.h"

namespace halftone {

struct SoftmaxKernel : KernelRow<SoftmaxProblem, CpuOrGpu<SoftmaxFunction, SoftmaxGpuFunction>> {};

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
  if (!(p.scale > 0) || !std::isfinite(p.scale)) {
    return concat("softmax: scale is ", p.scale, "; it must be finite and positive");
  }
  if (p.algorithm == SoftmaxAlgorithm::safe && p.columns > kSoftmaxKept) {
    return concat("softmax: columns is ", p.columns, "; the safe algorithm keeps at most ",
                  kSoftmaxKept, ", choose automatic or online");
  }
  return "";
}

constexpr SoftmaxKernel kKernels[] = {HALFTONE_LEVEL_ROWS("softmax", accepts, softmax_rows)
                                          HALFTONE_GPU_ROW("softmax", accepts, softmax_gpu)};

bool is_online(const SoftmaxProblem& p) {
  return p.algorithm == SoftmaxAlgorithm::online || p.columns > kSoftmaxKept;
}

}  // namespace

std::string describe(const SoftmaxPlan& plan) {
  const SoftmaxProblem& p = plan.problem;
  return concat(plan.kernel->name, ": softmax of ", p.rows, " rows of ", p.columns, ", ", name(p.x),
                " to ", name(p.out), ", on ", plan.device.name());
}

Support can_run(const SoftmaxProblem& problem, const Device& device) {
  return support_of(kKernels, problem, device);
}
SoftmaxPlan plan(const SoftmaxProblem& problem, const Device& device) {
  return {problem, device, kernel_for(kKernels, problem, device)};
}

void run(const SoftmaxPlan& plan, const SoftmaxTensors& t, Stream& stream) {
  const SoftmaxProblem& p = plan.problem;
  require(plan.kernel != nullptr, "softmax: the plan is empty; make it with plan()");
  check_stream("softmax", stream, plan.device);
  const SoftmaxArgs args{check_rows("softmax", "x", t.x, p.rows, p.columns, p.x, plan.device),
                         check_rows("softmax", "out", t.out, p.rows, p.columns, p.out, plan.device),
                         p.columns,
                         p.x,
                         p.out,
                         p.scale,
                         is_online(p),
                         t.x.data() != t.out.data() && t.x.bytes() + t.out.bytes() >= kStreamFrom};
  check_overlap("softmax", "out", t.out, "x", t.x);
  if (plan.kernel->function.gpu != nullptr) {
    return plan.kernel->function.gpu(args, p.rows, stream);
  }
  for_rows(stream, p.rows, p.columns,
           [&](int64_t begin, int64_t end) { plan.kernel->function.cpu(args, begin, end); });
}

Tensor softmax(const Tensor& x, Stream& stream) {
  const Tensor rows = as_rows("softmax", "x", x);
  Tensor out = Tensor::empty(x.shape(), x.format(), x.device());
  const SoftmaxProblem problem{row_count(x), x.size(-1), x.format(), x.format()};
  run(plan(problem, x.device()), {rows, as_rows("softmax", "out", out)}, stream);
  return out;
}

}  // namespace halftone
