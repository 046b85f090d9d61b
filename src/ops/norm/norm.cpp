// RMS norm and layer norm: rules, plan, run and one-liners.
#include "halftone/norm.h"

#include <cmath>

#include "base/arguments.h"
#include "base/kernel_table.h"
#include "formats/kernels.h"
#include "ops/norm/kernels.h"

namespace halftone {

struct NormKernel : KernelRow<NormProblem, CpuOrGpu<NormFunction, NormGpuFunction>> {};

namespace {

const char* operation_of(const NormProblem& p) {
  return p.kind == NormKind::layer ? "layer_norm" : "rms_norm";
}

std::string accepts(const NormProblem& p) {
  const char* operation = operation_of(p);
  if (p.rows < 0) return concat(operation, ": rows is ", p.rows, "; it must not be negative");
  if (p.columns < 1)
    return concat(operation, ": columns is ", p.columns, "; it must be at least 1");
  if (!is_plain_float(p.x)) {
    return concat(operation, ": x is ", name(p.x), "; it must be f32, f16 or bf16");
  }
  if (!is_plain_float(p.weight)) {
    return concat(operation, ": weight is ", name(p.weight), "; it must be f32, f16 or bf16");
  }
  if (!(p.eps >= 0) || !std::isfinite(p.eps)) {
    return concat(operation, ": eps is ", p.eps, "; it must be finite and not negative");
  }
  if (!std::isfinite(p.weight_offset)) {
    return concat(operation, ": weight_offset is ", p.weight_offset, "; it must be finite");
  }
  return "";
}

constexpr NormKernel kKernels[] = {HALFTONE_LEVEL_ROWS("norm", accepts, norm_rows)
                                       HALFTONE_GPU_ROW("norm", accepts, norm_gpu)};

Tensor one_line(NormProblem p, const Tensor& x, Tensor* residual, const Tensor& weight,
                const Tensor& bias, Stream& stream) {
  const char* operation = operation_of(p);
  p.weighted = weight.defined();
  p.bias = bias.defined();
  require(!p.weighted || weight.rank() == 1, operation, ": weight must be one-dimensional");
  const Tensor rows = as_rows(operation, "x", x);
  const Tensor residual_rows =
      residual != nullptr ? as_rows(operation, "residual", *residual) : Tensor();
  p.rows = row_count(x);
  p.columns = x.size(-1);
  p.x = x.format();
  p.weight = p.weighted ? weight.format() : p.bias ? bias.format() : x.format();
  p.residual = residual != nullptr;
  const NormPlan made = plan(p, x.device());
  Tensor out = Tensor::empty(x.shape(), x.format(), x.device());
  run(made, {rows, weight, out.reshape({p.rows, p.columns}), residual_rows, bias, {}}, stream);
  return out;
}

}  // namespace

std::string describe(const NormPlan& plan) {
  const NormProblem& p = plan.problem;
  return concat(plan.kernel->name, p.kind == NormKind::layer ? ": layer norm" : ": rms norm",
                p.residual ? " with residual" : "", " of ", p.rows, " rows of ", p.columns, ", ",
                name(p.x), p.weighted ? concat(" with ", name(p.weight), " weight") : "",
                p.bias ? " and bias" : "",
                p.weight_offset != 0 ? concat(", weight + ", p.weight_offset) : "", ", on ",
                plan.device.name());
}

Support can_run(const NormProblem& problem, const Device& device) {
  return support_of(kKernels, problem, device);
}
NormPlan plan(const NormProblem& problem, const Device& device) {
  return {problem, device, kernel_for(kKernels, problem, device)};
}

NormArgs norm_args(const NormPlan& plan, const NormTensors& t) {
  const NormProblem& p = plan.problem;
  const char* operation = operation_of(p);
  const auto rows = [&](const char* argument, const Tensor& x) {
    return check_rows(operation, argument, x, p.rows, p.columns, p.x, plan.device);
  };
  const auto given = [&](const char* argument, const Tensor& x, bool wanted) {
    require(x.defined() == wanted, operation, ": ", argument, " is ", wanted ? "missing" : "given",
            ", the plan was made ", wanted ? "with" : "without", " one");
    return wanted;
  };
  const bool stores = t.out.defined();
  const auto apart_from_out = [&](const char* argument, const Tensor& x) {
    if (stores) check_overlap(operation, "out", t.out, argument, x);
  };
  NormArgs args{};
  args.x = rows("x", t.x);
  if (stores) args.out = rows("out", t.out);
  args.columns = p.columns;
  args.format = p.x;
  args.weight_format = p.weight;
  args.eps = p.eps;
  args.weight_offset = p.weight_offset;
  args.layer = p.kind == NormKind::layer;
  apart_from_out("x", t.x);
  const auto vector = [&](const char* argument, const Tensor& x, bool wanted) -> const void* {
    if (!given(argument, x, wanted)) return nullptr;
    check_tensor(operation, argument, x, {p.columns}, p.weight, plan.device);
    apart_from_out(argument, x);
    return x.data();
  };
  args.weight = vector("weight", t.weight, p.weighted);
  args.bias = vector("bias", t.bias, p.bias);
  if (!given("residual", t.residual, p.residual)) {
    given("residual_out", t.residual_out, false);
    return args;
  }
  const bool apart = t.residual_out.defined();
  const Tensor& sum = apart ? t.residual_out : t.residual;
  const char* argument = apart ? "residual_out" : "residual";
  args.residual = rows("residual", t.residual);
  args.sum = rows(argument, sum);
  check_overlap(operation, argument, sum, "x", t.x);
  check_overlap(operation, argument, sum, "residual", t.residual);
  for (const auto& [name, x] : {std::pair{"weight", &t.weight}, {"bias", &t.bias}}) {
    if (x->defined()) check_overlap(operation, argument, sum, name, *x);
  }
  require(!stores || t.out.data() != sum.data() || t.out.numel() == 0, operation, ": out is ",
          argument, "; the sum must outlive the norm, so they need separate memory");
  apart_from_out(argument, sum);
  if (apart) apart_from_out("residual", t.residual);
  return args;
}

void run(const NormPlan& plan, const NormTensors& t, Stream& stream) {
  const NormProblem& p = plan.problem;
  const char* operation = operation_of(p);
  require(plan.kernel != nullptr, operation, ": the plan is empty; make it with plan()");
  check_stream(operation, stream, plan.device);
  if (!t.out.defined()) check_rows(operation, "out", t.out, p.rows, p.columns, p.x, plan.device);
  NormArgs args = norm_args(plan, t);
  args.streamed = t.out.data() != t.x.data() && t.out.data() != t.residual.data() &&
                  t.x.bytes() + t.out.bytes() >= kStreamFrom;
  if (plan.kernel->function.gpu != nullptr) {
    return plan.kernel->function.gpu(args, p.rows, stream);
  }
  for_rows(stream, p.rows, p.columns,
           [&](int64_t begin, int64_t end) { plan.kernel->function.cpu(args, begin, end); });
}

namespace {
NormProblem problem_of(NormKind kind, float eps) {
  NormProblem p;
  p.kind = kind;
  p.eps = eps;
  return p;
}
// RMS norm without a weight needs a plan; here its absence is a mistake.
void require_weight(const char* operation, const Tensor& weight) {
  require(weight.defined() && weight.rank() == 1, operation, ": weight must be one-dimensional");
}
}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, float eps, Stream& stream) {
  require_weight("rms_norm", weight);
  return one_line(problem_of(NormKind::rms, eps), x, nullptr, weight, {}, stream);
}

Tensor rms_norm_residual(const Tensor& x, Tensor& residual, const Tensor& weight, float eps,
                         Stream& stream) {
  require_weight("rms_norm_residual", weight);
  return one_line(problem_of(NormKind::rms, eps), x, &residual, weight, {}, stream);
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                  Stream& stream) {
  return one_line(problem_of(NormKind::layer, eps), x, nullptr, weight, bias, stream);
}

Tensor layer_norm_residual(const Tensor& x, Tensor& residual, const Tensor& weight,
                           const Tensor& bias, float eps, Stream& stream) {
  return one_line(problem_of(NormKind::layer, eps), x, &residual, weight, bias, stream);
}

void qk_norm(Tensor& x, const Tensor& weight, float eps, Stream& stream) {
  require_weight("qk_norm", weight);
  const Tensor rows = as_rows("qk_norm", "x", x);
  const NormProblem problem{row_count(x), x.size(-1), x.format(), weight.format(), eps, false};
  run(plan(problem, x.device()), {rows, weight, rows, {}, {}, {}}, stream);
}

}  // namespace halftone
