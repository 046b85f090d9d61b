#include "halftone/activation.h"

#include <cmath>

#include "base/arguments.h"
#include "ops/map/map.h"

namespace halftone {

// A table of its own for each family, over the kernels of ops/map.
struct MapKernel : KernelRow<ActivationProblem, MapFunctions> {};

namespace {

std::string refuse(const char* operation, const ActivationFunction& f) {
  if (static_cast<int>(f.kind) >= kActivationCount) {
    return concat(operation, ": the function is number ", static_cast<int>(f.kind), "; there are ",
                  kActivationCount);
  }
  for (const auto& [parameter, value] :
       {std::pair{"alpha", f.alpha}, {"slope", f.slope}, {"lambda", f.lambda}, {"beta", f.beta}}) {
    if (!std::isfinite(value)) {
      return concat(operation, ": ", parameter, " is ", value, "; it must be finite");
    }
  }
  if (f.lambda < 0) {
    return concat(operation, ": lambda is ", f.lambda, "; it must not be negative");
  }
  if (f.beta <= 0) return concat(operation, ": beta is ", f.beta, "; it must be positive");
  return "";
}

std::string accepts(const ActivationProblem& p) {
  if (!is_plain_float(p.x) || !is_plain_float(p.out)) {
    return concat("activation: x is ", name(p.x), " and out ", name(p.out),
                  "; both must be f32, f16 or bf16");
  }
  return refuse("activation", p.function);
}

std::string accepts_gated(const GatedProblem& p) {
  if (p.rows < 0) return concat("gated: rows is ", p.rows, "; it must not be negative");
  if (p.columns < 0) return concat("gated: columns is ", p.columns, "; it must not be negative");
  if (!is_plain_float(p.format)) {
    return concat("gated: format is ", name(p.format), "; it must be f32, f16 or bf16");
  }
  if (!(p.function.limit > 0)) {
    return concat("gated: limit is ", p.function.limit,
                  "; it must be positive (infinity: no clamping)");
  }
  if (!std::isfinite(p.function.up_offset)) {
    return concat("gated: up_offset is ", p.function.up_offset, "; it must be finite");
  }
  return refuse("gated", p.function.function);
}

constexpr MapKernel kKernels[] = {HALFTONE_LEVEL_ROWS("activation", accepts, map_pieces)
                                      HALFTONE_GPU_ROW("activation", accepts, map_gpu)};

// A gated problem is accepted or refused before the level is chosen, which does not depend on it.
Support gated_support(const GatedProblem& p, const Device& device) {
  const std::string reason = accepts_gated(p);
  if (!reason.empty()) return {false, reason};
  return support_of(kKernels, ActivationProblem{{}, p.function.function, p.format, p.format},
                    device);
}

std::string gate_name(const GatedActivation& g) {
  const std::string limit = std::isinf(g.limit) ? "" : concat(", clamped at ", g.limit);
  const Activation kind = g.function.kind;
  const std::string function = kind == Activation::silu        ? "swiglu"
                               : kind == Activation::gelu_tanh ? "geglu (tanh)"
                               : kind == Activation::gelu_erf  ? "geglu (erf)"
                                                               : concat(name(kind), " gate");
  return concat(function, limit, g.up_offset != 0 ? concat(", up + ", g.up_offset) : "");
}

}  // namespace

std::string describe(const ActivationPlan& plan) {
  const ActivationProblem& p = plan.problem;
  return concat(plan.kernel->name, ": ", name(p.function.kind), " of ", to_string(p.shape), ", ",
                name(p.x), " to ", name(p.out), ", on ", plan.device.name());
}
Support can_run(const ActivationProblem& problem, const Device& device) {
  return support_of(kKernels, problem, device);
}
ActivationPlan plan(const ActivationProblem& problem, const Device& device) {
  return {problem, device, kernel_for(kKernels, problem, device)};
}

void run(const ActivationPlan& plan, const ActivationTensors& t, Stream& stream) {
  const ActivationProblem& p = plan.problem;
  require(plan.kernel != nullptr, "activation: the plan is empty; make it with plan()");
  check_stream("activation", stream, plan.device);
  MapArgs args;
  args.operation = MapOperation::activation;
  args.function.function = p.function;
  args.in[0] = map_operand("activation", "x", t.x, p.shape, p.x, plan.device);
  args.out = map_operand("activation", "out", t.out, p.shape, p.out, plan.device);
  require(t.x.shape() == p.shape && t.out.shape() == p.shape, "activation: x is ",
          shown(t.x.shape()), " and out ", shown(t.out.shape()), ", the plan was made for ",
          shown(p.shape));
  check_overlap("activation", "out", t.out, "x", t.x);
  run_map(plan.kernel->function, args, p.shape, stream);
}

Tensor activation(const Tensor& x, const ActivationFunction& function, Stream& stream) {
  require(x.defined(), "activation: x is undefined");
  const Tensor out = Tensor::empty(x.shape(), x.format(), x.device());
  run(plan(ActivationProblem{x.shape(), function, x.format(), x.format()}, x.device()), {x, out},
      stream);
  return out;
}

std::string describe(const GatedPlan& plan) {
  const GatedProblem& p = plan.problem;
  return concat(plan.kernel->name, ": ", gate_name(p.function), " of ", p.rows, " rows of ",
                p.columns, p.interleaved ? ", interleaved, " : ", ", name(p.format), ", on ",
                plan.device.name());
}
Support can_run(const GatedProblem& problem, const Device& device) {
  return gated_support(problem, device);
}
GatedPlan plan(const GatedProblem& problem, const Device& device) {
  require_support(gated_support(problem, device));
  const ActivationProblem inner{{}, problem.function.function, problem.format, problem.format};
  return {problem, device, kernel_for(kKernels, inner, device)};
}

void run(const GatedPlan& plan, const GatedTensors& t, Stream& stream) {
  const GatedProblem& p = plan.problem;
  require(plan.kernel != nullptr, "gated: the plan is empty; make it with plan()");
  check_stream("gated", stream, plan.device);
  MapArgs args;
  args.operation = MapOperation::gated;
  args.function = p.function;
  args.operands = 2;
  // [rows, columns] or [outer, inner, columns], as norms take their rows.
  const auto checked = [&](const char* argument, const Tensor& x, int64_t columns) {
    require(x.defined(), "gated: ", argument, " is undefined");
    require(x.rank() >= 1 && row_count(x) == p.rows && x.size(-1) == columns, "gated: ", argument,
            " has shape ", shown(x.shape()), ", the plan was made for ", p.rows, " rows of ",
            columns);
  };
  checked("out", t.out, p.columns);
  const Shape& shape = t.out.shape();
  args.out = map_operand("gated", "out", t.out, shape, p.format, plan.device);
  if (p.interleaved) {
    checked("gate", t.gate, 2 * p.columns);
    require(!t.up.defined(), "gated: up is given; interleaved gates hold it");
    const Tensor gate = t.gate;
    Shape pairs = gate.shape();
    pairs[pairs.rank() - 1] = p.columns;
    Strides strides = gate.strides();
    strides[pairs.rank() - 1] *= 2;
    const Tensor first = Tensor::view(gate.data(), pairs, strides, gate.format(), gate.device());
    args.in[0] = map_operand("gated", "gate", first, shape, p.format, plan.device);
    args.in[1] = args.in[0];
    args.in[1].base += gate.stride(-1) * bits(p.format) / 8;
  } else {
    checked("gate", t.gate, p.columns);
    checked("up", t.up, p.columns);
    args.in[0] = map_operand("gated", "gate", t.gate, shape, p.format, plan.device);
    args.in[1] = map_operand("gated", "up", t.up, shape, p.format, plan.device);
  }
  check_overlap("gated", "out", t.out, "gate", t.gate);
  if (!p.interleaved) check_overlap("gated", "out", t.out, "up", t.up);
  run_map(plan.kernel->function, args, shape, stream);
}

Tensor gated(const Tensor& gate, const Tensor& up, const GatedActivation& function,
             Stream& stream) {
  require(gate.defined() && gate.rank() >= 1, "gated: gate is ",
          gate.defined() ? "a scalar" : "undefined", "; it must be [..., columns]");
  Shape shape = gate.shape();
  if (up.defined()) {
    require(gate.shape() == up.shape(), "gated: gate has shape ", shown(gate.shape()),
            ", up has shape ", shown(up.shape()), "; they must agree");
  } else {
    require(gate.size(-1) % 2 == 0, "gated: gate has ", gate.size(-1),
            " columns; without up they are interleaved pairs, an even number");
    shape[shape.rank() - 1] /= 2;
  }
  const Tensor out = Tensor::empty(shape, gate.format(), gate.device());
  const GatedProblem problem{row_count(out), out.size(-1), gate.format(), function, !up.defined()};
  run(plan(problem, gate.device()), {gate, up, out}, stream);
  return out;
}

Tensor swiglu(const Tensor& gate, const Tensor& up, Stream& stream) {
  require(up.defined(), "swiglu: up is undefined");
  return gated(gate, up, GatedActivation::swiglu(), stream);
}

}  // namespace halftone
