// Elementwise arithmetic: rules, broadcasting, run and one-liner.
#include "halftone/elementwise.h"

#include <algorithm>
#include <cmath>

#include "base/arguments.h"
#include "ops/map/map.h"

namespace halftone {

struct ElementwiseKernel : KernelRow<ElementwiseProblem, MapFunctions> {};

namespace {

struct Entry {
  const char* name;
  int operands;
  MapOperation operation;
};
constexpr Entry kEntries[kElementwiseCount] = {
    {"copy", 1, MapOperation::copy},
    {"add", 2, MapOperation::add},
    {"subtract", 2, MapOperation::subtract},
    {"multiply", 2, MapOperation::multiply},
    {"divide", 2, MapOperation::divide},
    {"minimum", 2, MapOperation::minimum},
    {"maximum", 2, MapOperation::maximum},
    {"multiply_add", 3, MapOperation::multiply_add},
    {"affine", 1, MapOperation::affine},
    {"negate", 1, MapOperation::negate},
    {"absolute", 1, MapOperation::absolute},
    {"square", 1, MapOperation::square},
    {"sqrt", 1, MapOperation::sqrt},
    {"rsqrt", 1, MapOperation::rsqrt},
    {"reciprocal", 1, MapOperation::reciprocal},
    {"exp", 1, MapOperation::exp},
    {"log", 1, MapOperation::log},
};
static_assert(kEntries[static_cast<int>(Elementwise::log)].operation == MapOperation::log);

std::string accepts(const ElementwiseProblem& p) {
  const int kind = static_cast<int>(p.operation);
  if (kind >= kElementwiseCount) {
    return concat("elementwise: operation is number ", kind, "; there are ", kElementwiseCount);
  }
  const Entry& entry = kEntries[kind];
  const std::pair<const char*, Format> operands[] = {{"a", p.a}, {"b", p.b}, {"c", p.c}};
  for (int i = 0; i < entry.operands; ++i) {
    if (!is_plain_float(operands[i].second)) {
      return concat(entry.name, ": ", operands[i].first, " is ", name(operands[i].second),
                    "; it must be f32, f16 or bf16 (dequantize() expands the others)");
    }
  }
  if (!is_plain_float(p.out)) {
    return concat(entry.name, ": out is ", name(p.out), "; it must be f32, f16 or bf16");
  }
  if (!std::isfinite(p.alpha) || !std::isfinite(p.beta)) {
    return concat(entry.name, ": alpha is ", p.alpha, " and beta ", p.beta,
                  "; both must be finite");
  }
  return "";
}

constexpr ElementwiseKernel kKernels[] = {HALFTONE_LEVEL_ROWS("elementwise", accepts, map_pieces)
                                              HALFTONE_GPU_ROW("elementwise", accepts, map_gpu)};

// The shape that both broadcast to.
Shape joint_shape(const char* operation, const Shape& a, const Shape& b) {
  Shape shape = a.rank() >= b.rank() ? a : b;
  const Shape& other = a.rank() >= b.rank() ? b : a;
  const int missing = shape.rank() - other.rank();
  for (int i = 0; i < other.rank(); ++i) {
    int64_t& extent = shape[missing + i];
    require(extent == other[i] || extent == 1 || other[i] == 1, operation, ": shapes ", shown(a),
            " and ", shown(b), " do not broadcast: ", extent, " and ", other[i], " differ");
    if (extent == 1) extent = other[i];
  }
  return shape;
}

}  // namespace

const char* name(Elementwise operation) { return kEntries[static_cast<int>(operation)].name; }
int operand_count(Elementwise operation) { return kEntries[static_cast<int>(operation)].operands; }

std::string describe(const ElementwisePlan& plan) {
  const ElementwiseProblem& p = plan.problem;
  return concat(plan.kernel->name, ": ", name(p.operation), " to ", to_string(p.shape), ", ",
                name(p.a), " to ", name(p.out), ", on ", plan.device.name());
}
Support can_run(const ElementwiseProblem& problem, const Device& device) {
  return support_of(kKernels, problem, device);
}
ElementwisePlan plan(const ElementwiseProblem& problem, const Device& device) {
  return {problem, device, kernel_for(kKernels, problem, device)};
}

void run(const ElementwisePlan& plan, const ElementwiseTensors& t, Stream& stream) {
  const ElementwiseProblem& p = plan.problem;
  require(plan.kernel != nullptr, "elementwise: the plan is empty; make it with plan()");
  check_stream("elementwise", stream, plan.device);
  const Entry& entry = kEntries[static_cast<int>(p.operation)];
  MapArgs args;
  args.operation = entry.operation;
  args.alpha = p.alpha;
  args.beta = p.beta;
  args.operands = entry.operands;
  const struct {
    const char* argument;
    const Tensor& x;
    Format format;
  } operands[] = {{"a", t.a, p.a}, {"b", t.b, p.b}, {"c", t.c, p.c}};
  require(t.out.defined() && t.out.shape() == p.shape, entry.name, ": out is ",
          t.out.defined() ? to_string(t.out) : std::string("undefined"), ", the plan was made for ",
          shown(p.shape));
  for (int i = 0; i < entry.operands; ++i) {
    const auto& [argument, x, format] = operands[i];
    args.in[i] = map_operand(entry.name, argument, x, p.shape, format, plan.device);
  }
  args.out = map_operand(entry.name, "out", t.out, p.shape, p.out, plan.device);
  for (int i = 0; i < entry.operands; ++i) {
    check_overlap(entry.name, "out", t.out, operands[i].argument, operands[i].x);
  }
  run_map(plan.kernel->function, args, p.shape, stream);
}

Tensor elementwise(Elementwise operation, const Tensor& a, const Tensor& b, const Tensor& c,
                   const ElementwiseOptions& options, Stream& stream) {
  require(static_cast<int>(operation) < kElementwiseCount, "elementwise: operation is number ",
          static_cast<int>(operation), "; there are ", kElementwiseCount);
  const int operands = operand_count(operation);
  const Tensor* given[] = {&a, &b, &c};
  for (int i = 0; i < 3; ++i) {
    require(given[i]->defined() == (i < operands), name(operation), ": takes ", operands,
            operands == 1 ? " operand" : " operands", "; operand ", i + 1, " is ",
            given[i]->defined() ? "given" : "undefined");
  }
  ElementwiseProblem p;
  p.operation = operation;
  p.shape = a.shape();
  p.a = a.format();
  if (operands > 1) p.shape = joint_shape(name(operation), p.shape, b.shape()), p.b = b.format();
  if (operands > 2) p.shape = joint_shape(name(operation), p.shape, c.shape()), p.c = c.format();
  p.out = options.out.value_or(a.format());
  p.alpha = options.alpha;
  p.beta = options.beta;
  const ElementwisePlan made = plan(p, a.device());
  const Tensor out = Tensor::empty(p.shape, p.out, a.device());
  run(made, {a, b, c, out}, stream);
  return out;
}

}  // namespace halftone
