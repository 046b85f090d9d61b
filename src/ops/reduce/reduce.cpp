// Reductions: rules, plan, run and one-liner.
#include "halftone/reduce.h"

#include <algorithm>
#include <tuple>

#include "base/arguments.h"
#include "base/kernel_table.h"
#include "ops/reduce/gpu.h"
#include "ops/reduce/reducer.h"

namespace halftone {

struct ReduceKernel : KernelRow<ReduceProblem, CpuOrGpu<ReduceFunction, ReduceGpuFunction>> {};

namespace {

constexpr const char* kNames[kReductionCount] = {"sum", "mean",   "sum_of_squares", "max",
                                                 "min", "argmax", "argmin",         "dot"};
std::string accepts(const ReduceProblem& p) {
  if (static_cast<int>(p.operation) >= kReductionCount) {
    return concat("reduce: operation is number ", static_cast<int>(p.operation), "; there are ",
                  kReductionCount);
  }
  const char* operation = name(p.operation);
  if (p.shape.rank() < 1) return concat(operation, ": x is a scalar; it needs a dimension");
  if (axis_of(p) < 0 || axis_of(p) >= p.shape.rank()) {
    return concat(operation, ": axis is ", p.axis, "; x has ", p.shape.rank(), " dimensions");
  }
  if (is_extreme(p.operation) && p.shape[axis_of(p)] == 0) {
    return concat(operation, ": axis ", p.axis, " has no elements; there is no largest of none");
  }
  for (const auto& [argument, format, scaled] :
       {std::tuple{"x", p.x, p.x_scaled}, {"y", p.y, p.y_scaled}}) {
    if (*argument == 'y' && p.operation != Reduction::dot) continue;
    const std::string reason = RowReader::refuse(format, scaled);
    if (!reason.empty()) return concat(operation, ": ", argument, " is ", reason);
  }
  if (is_arg(p.operation) ? p.out != Format::i64 : !is_plain_float(p.out)) {
    return concat(operation, ": out is ", name(p.out), "; it must be ",
                  is_arg(p.operation) ? "i64" : "f32, f16 or bf16");
  }
  return "";
}

std::string accepts_gpu(const ReduceProblem& p) {
  if (std::string reason = accepts(p); !reason.empty()) return reason;
  return p.shape[axis_of(p)] < int64_t{1} << 32
             ? ""
             : concat(name(p.operation), ": axis ", p.axis, " has ", p.shape[axis_of(p)],
                      " elements; a GPU takes fewer than 2^32");
}

constexpr ReduceKernel kKernels[] = {HALFTONE_LEVEL_ROWS("reduce", accepts, reduce_run)
                                         HALFTONE_GPU_ROW("reduce", accepts_gpu, reduce_gpu)};

Shape without(const Shape& shape, int axis) {
  int64_t extents[Dims::kMaxRank];
  int rank = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i != axis) extents[rank++] = shape[i];
  }
  return rank == 0 ? Shape{1} : Shape(extents, static_cast<size_t>(rank));
}

void check_operand(const ReducePlan& plan, const char* argument, const Tensor& x, Format format,
                   bool scaled) {
  const ReduceProblem& p = plan.problem;
  const char* operation = name(p.operation);
  require(x.defined(), operation, ": ", argument, " is undefined");
  require(x.format() == format && x.has_scales() == scaled && x.shape() == p.shape &&
              x.device() == plan.device,
          operation, ": ", argument, " is ", shown(x), ", the plan was made for ", name(format),
          scaled ? " with scales " : " ", shown(p.shape), " on ", plan.device.name());
  require(x.numel() == 0 || x.size(-1) == 1 || x.stride(-1) == 1 || (!scaled && bits(format) >= 8),
          operation, ": ", argument, " has a last stride of ", x.stride(-1),
          "; of quantised formats it must be 1");
}

// [outer, n, inner] rows, without a workspace.
ReduceGpuArgs gpu_args(const ReduceProblem& p) {
  ReduceGpuArgs args;
  args.operation = p.operation, args.out_format = p.out;
  const int axis = axis_of(p), last = p.shape.rank() - 1;
  args.n = p.shape[axis];
  args.along_rows = axis == last;
  for (int d = 0; d < axis; ++d) args.outer *= p.shape[d];
  for (int d = axis + 1; d < last; ++d) args.inner *= p.shape[d];
  if (!args.along_rows) args.width = p.shape[last];
  args.chunk = reduce_gpu_chunk(args.along_rows, args.n);
  args.chunks = std::max<int64_t>(1, (args.n + args.chunk - 1) / args.chunk);
  return args;
}

void run_on_gpu(const ReducePlan& plan, const ReduceTensors& t, Stream& stream) {
  ReduceGpuArgs args = gpu_args(plan.problem);
  const bool dot = args.operation == Reduction::dot;
  const auto plain = [](const Tensor& x) { return x.contiguous() && !x.has_scales(); };
  args.x = number_rows(t.x);
  if (dot) args.y = number_rows(t.y);
  if (!args.along_rows && plain(t.x) && (!dot || plain(t.y))) {  // rows of all inner dimensions
    const Shape shape{args.outer * args.n, args.inner * args.width};
    args.width *= args.inner, args.inner = 1;
    const auto flat = [&](const Tensor& x) {
      return number_rows(Tensor::view(x.data(), shape, x.format(), x.device()));
    };
    args.x = flat(t.x);
    if (dot) args.y = flat(t.y);
  }
  args.out = t.out.data<char>();
  if (args.chunks > 1) args.partial = plan.workspace.data<uint64_t>();
  plan.kernel->function.gpu(args, stream);
}

}  // namespace

const char* name(Reduction r) { return kNames[static_cast<int>(r)]; }

std::string describe(const ReducePlan& plan) {
  const ReduceProblem& p = plan.problem;
  return concat(plan.kernel->name, ": ", name(p.operation), " of ", to_string(p.shape), " ",
                name(p.x), " along ", axis_of(p), " to ", name(p.out), ", on ", plan.device.name());
}
Support can_run(const ReduceProblem& problem, const Device& device) {
  return support_of(kKernels, problem, device);
}
ReducePlan plan(const ReduceProblem& problem, const Device& device) {
  ReducePlan made{problem, device, kernel_for(kKernels, problem, device), {}};
  const int axis = axis_of(problem);
  const int64_t n = problem.shape[axis], outputs = element_count(without(problem.shape, axis));
  int64_t partials = outputs * ((n + Reducer::kBlockRows - 1) / Reducer::kBlockRows);
  if (axis == problem.shape.rank() - 1) {
    const int64_t chunks = (n + Reducer::kChunk - 1) / Reducer::kChunk;
    partials = chunks > 1 ? outputs * chunks : 0;
  } else if (is_arg(problem.operation)) {
    partials = 0;
  }
  if (!device.is_cpu()) {
    const ReduceGpuArgs args = gpu_args(problem);
    partials = args.chunks == 1 ? 0 : 2 * args.chunks * results_of(args);
  }
  if (partials > 0) made.workspace = Tensor::empty({partials}, Format::f32, device);
  return made;
}

void run(const ReducePlan& plan, const ReduceTensors& t, Stream& stream) {
  const ReduceProblem& p = plan.problem;
  require(plan.kernel != nullptr, "reduce: the plan is empty; make it with plan()");
  const char* operation = name(p.operation);
  check_stream(operation, stream, plan.device);
  check_operand(plan, "x", t.x, p.x, p.x_scaled);
  if (p.operation == Reduction::dot) check_operand(plan, "y", t.y, p.y, p.y_scaled);
  const int axis = axis_of(p);
  const Shape rest = without(p.shape, axis);
  require(t.out.defined() && t.out.format() == p.out && t.out.shape() == rest && t.out.contiguous(),
          operation, ": out is ", t.out.defined() ? to_string(t.out) : std::string("undefined"),
          "; it must be row-major ", name(p.out), " ", shown(rest));
  require(t.out.data() != t.x.data() || t.out.numel() == 0, operation, ": out is x");
  if (plan.kernel->function.gpu != nullptr) return run_on_gpu(plan, t, stream);
  const Reducer reducer(p, plan.kernel->function.cpu, t);
  const int64_t n = p.shape[axis], rows = element_count(rest);
  if (rows == 0) return;
  float* partial = plan.workspace.defined() ? plan.workspace.data<float>() : nullptr;
  if (axis < p.shape.rank() - 1) {
    Reducer::Around around{1, p.shape[p.shape.rank() - 1]};
    for (int d = axis + 1; d < p.shape.rank() - 1; ++d) around.inner *= p.shape[d];
    const int64_t width = around.width, outputs = rows / width;
    // body(index of a unit, first column, columns) for `count` times the columns in segments.
    const auto over_columns = [&](int64_t count, int64_t piece, int64_t height, auto&& body) {
      const int64_t pieces = (width + piece - 1) / piece;
      for_rows(stream, count * pieces, std::max<int64_t>(1, height) * std::min(width, piece),
               [&](int64_t begin, int64_t end) {
                 for (int64_t unit = begin; unit < end; ++unit) {
                   const int64_t first = unit % pieces * piece;
                   body(unit / pieces, first, std::min(piece, width - first));
                 }
               });
    };
    if (is_arg(p.operation)) {
      return over_columns(outputs, Reducer::kColumns, n,
                          [&](int64_t output, int64_t begin, int64_t count) {
                            reducer.places(around, output, begin, count);
                          });
    }
    const int64_t blocks = (n + Reducer::kBlockRows - 1) / Reducer::kBlockRows;
    over_columns(outputs * blocks, Reducer::kBlockColumns, std::min(n, Reducer::kBlockRows),
                 [&](int64_t unit, int64_t begin, int64_t count) {
                   reducer.block(around, unit / blocks, unit % blocks, begin, count,
                                 partial + unit * width + begin);
                 });
    over_columns(
        outputs, Reducer::kColumns, blocks, [&](int64_t output, int64_t begin, int64_t count) {
          const float* sums = blocks > 0 ? partial + output * blocks * width + begin : nullptr;
          reducer.join(around, output, begin, count, sums);
        });
    return;
  }
  const int64_t chunks = std::max<int64_t>(1, (n + Reducer::kChunk - 1) / Reducer::kChunk);
  for_rows(stream, rows * chunks, std::max<int64_t>(1, std::min(n, Reducer::kChunk)),
           [&](int64_t begin, int64_t end) {
             float runs[Reducer::kRuns];
             for (int64_t unit = begin; unit < end; ++unit) {
               const float value = reducer.chunk(unit / chunks, unit % chunks, runs);
               if (chunks > 1) {
                 partial[unit] = value;
               } else {
                 reducer.finish_row(unit, value, 0, runs);
               }
             }
           });
  if (chunks == 1) return;
  for (int64_t row = 0; row < rows; ++row) {
    float* of_row = partial + row * chunks;
    int64_t first = 0;
    if (is_arg(p.operation)) {  // the first chunk that holds the extreme
      float best = of_row[0];
      for (int64_t c = 1; c < chunks && best == best; ++c) {
        const float v = of_row[c];
        const bool better = v != v || (p.operation == Reduction::argmax ? v > best : v < best);
        if (better) best = v, first = c;
      }
    }
    const float value = is_arg(p.operation) ? of_row[first] : reducer.halve(of_row, chunks);
    reducer.finish_row(row, value, first, nullptr);
  }
}

namespace {

Tensor one_line(Reduction operation, const Tensor& x, const Tensor& y, int axis, Stream& stream) {
  require(x.defined(), name(operation), ": x is undefined");
  ReduceProblem p;
  p.operation = operation;
  p.shape = x.shape();
  p.axis = axis;
  p.x = x.format();
  p.x_scaled = x.has_scales();
  if (y.defined()) p.y = y.format(), p.y_scaled = y.has_scales();
  p.out = is_arg(operation) ? Format::i64 : Format::f32;
  const ReducePlan made = plan(p, x.device());
  const Tensor out = Tensor::empty(without(p.shape, axis_of(p)), p.out, x.device());
  run(made, {x, y, out}, stream);
  return out;
}

}  // namespace

Tensor reduce(Reduction operation, const Tensor& x, int axis, Stream& stream) {
  require(operation != Reduction::dot, "reduce: dot takes two tensors; call dot()");
  return one_line(operation, x, {}, axis, stream);
}

Tensor dot(const Tensor& x, const Tensor& y, Stream& stream) {
  require(y.defined(), "dot: y is undefined");
  return one_line(Reduction::dot, x, y, -1, stream);
}

}  // namespace halftone
