#include "halftone/activation.h"

#include "base/arguments.h"
#include "base/kernel_table.h"
#include "ops/activation/kernels.h"

namespace halftone {

struct SwigluKernel : KernelRow<SwigluProblem, SwigluFunction> {};

namespace {

std::string accepts(const SwigluProblem& p) {
  if (p.rows < 0) return concat("swiglu: rows is ", p.rows, "; it must not be negative");
  if (p.columns < 0) return concat("swiglu: columns is ", p.columns, "; it must not be negative");
  if (!is_plain_float(p.format)) {
    return concat("swiglu: format is ", name(p.format), "; it must be f32, f16 or bf16");
  }
  return "";
}

constexpr SwigluKernel kKernels[] = {
#if defined(__x86_64__)
    {{"swiglu_avx512_bf16", Device::Kind::cpu, CpuLevel::avx512_bf16, accepts,
      cpu_avx512_bf16::swiglu_pieces}},
    {{"swiglu_avx512", Device::Kind::cpu, CpuLevel::avx512, accepts, cpu_avx512::swiglu_pieces}},
    {{"swiglu_avx2", Device::Kind::cpu, CpuLevel::avx2, accepts, cpu_avx2::swiglu_pieces}},
#endif
    {{"swiglu_baseline", Device::Kind::cpu, CpuLevel::baseline, accepts,
      cpu_baseline::swiglu_pieces}},
};

const SwigluKernel* choose_kernel(const SwigluProblem& problem, const Device& device,
                                  Support* support) {
  const SwigluKernel* kernel =
      choose(std::span<const SwigluKernel>(kKernels), problem, device, &support->reason);
  support->ok = kernel != nullptr;
  if (support->ok) support->reason.clear();
  return kernel;
}

}  // namespace

std::string describe(const SwigluPlan& plan) {
  const SwigluProblem& p = plan.problem;
  return concat(plan.kernel->name, ": swiglu of ", p.rows, " rows of ", p.columns, ", ",
                name(p.format), ", on ", plan.device.name());
}

Support can_run(const SwigluProblem& problem, const Device& device) {
  Support support;
  choose_kernel(problem, device, &support);
  return support;
}

SwigluPlan plan(const SwigluProblem& problem, const Device& device) {
  Support support;
  const SwigluKernel* kernel = choose_kernel(problem, device, &support);
  require_support(support);
  return {problem, device, kernel};
}

void run(const SwigluPlan& plan, const SwigluTensors& t, Stream& stream) {
  const SwigluProblem& p = plan.problem;
  require(plan.kernel != nullptr, "swiglu: the plan is empty; make it with plan()");
  const auto rows = [&](const char* argument, const Tensor& x) {
    return check_rows("swiglu", argument, x, p.rows, p.columns, p.format, plan.device);
  };
  SwigluArgs args{
      rows("gate", t.gate), rows("up", t.up), rows("out", t.out), p.columns, 1, p.format};
  check_overlap("swiglu", "out", t.out, "gate", t.gate);
  check_overlap("swiglu", "out", t.out, "up", t.up);
  int64_t count = p.rows;
  if (t.gate.contiguous() && t.up.contiguous() && t.out.contiguous()) {
    args.columns *= count;  // one long row
    count = 1;
  }
  args.column_blocks = (args.columns + kSwigluBlock - 1) / kSwigluBlock;
  for_rows(stream, count * args.column_blocks, std::min(args.columns, kSwigluBlock),
           [&](int64_t begin, int64_t end) { plan.kernel->function(args, begin, end); });
}

Tensor swiglu(const Tensor& gate, const Tensor& up, Stream& stream) {
  const Tensor gate_rows = as_rows("swiglu", "gate", gate), up_rows = as_rows("swiglu", "up", up);
  require(gate.shape() == up.shape(), "swiglu: gate has shape ", to_string(gate.shape()),
          ", up has shape ", to_string(up.shape()), "; they must agree");
  Tensor out = Tensor::empty(gate.shape(), gate.format(), gate.device());
  const SwigluProblem problem{row_count(gate), gate.size(-1), gate.format()};
  run(plan(problem, gate.device()), {gate_rows, up_rows, as_rows("swiglu", "out", out)}, stream);
  return out;
}

}  // namespace halftone
