// Permuted copies and transposition: rules, merging of dimensions, run and one-liners.
#include "halftone/transpose.h"

#include "base/arguments.h"
#include "base/kernel_table.h"
#include "formats/kernels.h"
#include "ops/transpose/kernels.h"

namespace halftone {

struct PermuteKernel : KernelRow<PermuteProblem, CpuOrGpu<PermuteFunction, PermuteGpuFunction>> {};

namespace {

std::string accepts(const PermuteProblem& p) {
  if (bits(p.format) < 8) {
    return concat("permute: x is ", name(p.format),
                  ", packed two a byte; dequantize() gives elements that can move");
  }
  unsigned seen = 0;
  for (const int64_t d : p.order) {
    if (d >= 0 && d < p.shape.rank()) seen |= 1u << d;
  }
  if (p.order.rank() != p.shape.rank() || seen != (1u << p.shape.rank()) - 1) {
    return concat("permute: order is ", to_string(p.order), "; it must name each of the ",
                  p.shape.rank(), " dimensions once");
  }
  return "";
}

constexpr PermuteKernel kKernels[] = {
    {{"permute", Device::Kind::cpu, CpuLevel::baseline, accepts, permute_strips}},
    HALFTONE_GPU_ROW("permute", accepts, permute_gpu)};

Shape permuted(const Shape& shape, const Dims& order) {
  Shape result = shape;
  for (int i = 0; i < shape.rank(); ++i) result[i] = shape[static_cast<int>(order[i])];
  return result;
}

}  // namespace

std::string describe(const PermutePlan& plan) {
  const PermuteProblem& p = plan.problem;
  return concat(plan.kernel->name, ": ", to_string(p.shape), " in order ", to_string(p.order), ", ",
                name(p.format), ", on ", plan.device.name());
}
Support can_run(const PermuteProblem& problem, const Device& device) {
  return support_of(kKernels, problem, device);
}
PermutePlan plan(const PermuteProblem& problem, const Device& device) {
  return {problem, device, kernel_for(kKernels, problem, device)};
}

void run(const PermutePlan& plan, const PermuteTensors& t, Stream& stream) {
  const PermuteProblem& p = plan.problem;
  require(plan.kernel != nullptr, "permute: the plan is empty; make it with plan()");
  check_stream("permute", stream, plan.device);
  require(t.x.defined() && t.x.shape() == p.shape && t.x.format() == p.format &&
              t.x.device() == plan.device,
          "permute: x is ", t.x.defined() ? to_string(t.x) : std::string("undefined"),
          ", the plan was made for ", name(p.format), " ", shown(p.shape));
  const Shape shape = permuted(p.shape, p.order);
  require(t.out.defined() && t.out.shape() == shape && t.out.format() == p.format &&
              t.out.contiguous() && t.out.device() == plan.device,
          "permute: out is ", t.out.defined() ? to_string(t.out) : std::string("undefined"),
          "; it must be row-major ", name(p.format), " ", shown(shape));
  if (t.out.numel() == 0) return;
  require(t.out.data() != t.x.data(), "permute: out is x; it needs separate memory");
  check_overlap("permute", "out", t.out, "x", t.x);

  // Dimensions of one element are dropped; neighbours that both sides step through evenly are
  // merged.
  PermuteArgs args;
  args.element = bits(p.format) / 8;
  const Strides out_strides = row_major(shape);
  int64_t extent[8], x_stride[8], out_stride[8];
  int rank = 0;
  for (int d = 0; d < shape.rank(); ++d) {
    if (shape[d] == 1) continue;
    const int64_t step = t.x.stride(static_cast<int>(p.order[d])) * args.element;
    const bool merges = rank > 0 && x_stride[rank - 1] == step * shape[d];
    if (!merges) ++rank;
    extent[rank - 1] = merges ? extent[rank - 1] * shape[d] : shape[d];
    x_stride[rank - 1] = step;
    out_stride[rank - 1] = out_strides[d] * args.element;
  }
  // Columns are the last dimension of out; rows the one along which the source is contiguous, if it
  // is another, else the one before.
  args.columns = rank > 0 ? extent[rank - 1] : 1;
  args.x_column = rank > 0 ? x_stride[rank - 1] : args.element;
  int row = rank - 2;
  for (int d = 0; d + 1 < rank; ++d) {
    if (x_stride[d] == args.element && args.x_column != args.element)
      row = d, args.transposed = true;
  }
  if (row >= 0) {
    args.rows = extent[row];
    args.x_row = x_stride[row];
    args.out_row = out_stride[row];
  }
  int64_t count = 1;
  for (int d = 0; d + 1 < rank; ++d) {
    if (d == row) continue;
    args.extent[args.outer] = extent[d];
    args.x_stride[args.outer] = x_stride[d];
    args.out_stride[args.outer] = out_stride[d];
    count *= extent[d];
    ++args.outer;
  }
  args.x = t.x.data<char>();
  args.out = t.out.data<char>();
  if (plan.kernel->function.gpu != nullptr) return plan.kernel->function.gpu(args, count, stream);
  const int64_t tile = permute_tile(args.element);
  args.strips = (args.rows + tile - 1) / tile;
  args.streamed = 2 * t.out.bytes() >= kStreamFrom;
  for_rows(stream, count * args.strips, std::min(args.rows, tile) * args.columns,
           [&](int64_t begin, int64_t end) { plan.kernel->function.cpu(args, begin, end); });
}

Tensor permute(const Tensor& x, const Dims& order, Stream& stream) {
  require(x.defined(), "permute: x is undefined");
  const PermutePlan made = plan(PermuteProblem{x.shape(), order, x.format()}, x.device());
  const Tensor out = Tensor::empty(permuted(x.shape(), order), x.format(), x.device());
  run(made, {x, out}, stream);
  return out;
}

Tensor transpose(const Tensor& x, Stream& stream) {
  require(x.defined() && x.rank() >= 2, "transpose: x is ",
          x.defined() ? to_string(x) : std::string("undefined"),
          "; it must have at least two dimensions");
  Dims order = x.shape();
  for (int i = 0; i < x.rank(); ++i) order[i] = i;
  std::swap(order[x.rank() - 2], order[x.rank() - 1]);
  return permute(x, order, stream);
}

}  // namespace halftone
