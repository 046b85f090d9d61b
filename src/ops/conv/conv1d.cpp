// 1D convolution: rules, plan, workspace, run and one-liner.
#include <algorithm>
#include <cmath>

#include "base/arguments.h"
#include "base/kernel_table.h"
#include "halftone/conv.h"
#include "ops/conv/kernels.h"

namespace halftone {

struct Conv1dKernel : KernelRow<Conv1dProblem, CpuOrGpu<Conv1dFunction, Conv1dGpuFunction>> {};

namespace {

std::string accepts(const Conv1dProblem& p) {
  for (const auto& [argument, value] :
       {std::pair{"batch", p.batch}, {"length", p.length}, {"padding", p.padding}}) {
    if (value < 0) return concat("conv1d: ", argument, " is ", value, "; it must not be negative");
  }
  for (const auto& [argument, value] : {std::pair{"in_channels", p.in_channels},
                                        {"out_channels", p.out_channels},
                                        {"kernel", p.kernel},
                                        {"stride", p.stride},
                                        {"dilation", p.dilation},
                                        {"groups", p.groups}}) {
    if (value < 1) return concat("conv1d: ", argument, " is ", value, "; it must be at least 1");
  }
  // So that no sum of indices overflows.
  constexpr int64_t kMost = int64_t{1} << 31;
  for (const auto& [argument, value] : {std::pair{"length", p.length},
                                        {"padding", p.padding},
                                        {"kernel", p.kernel},
                                        {"stride", p.stride},
                                        {"dilation", p.dilation}}) {
    if (value > kMost) return concat("conv1d: ", argument, " is ", value, "; at most 2^31");
  }
  if (p.in_channels % p.groups != 0 || p.out_channels % p.groups != 0) {
    return concat("conv1d: groups is ", p.groups, "; it must divide in_channels ", p.in_channels,
                  " and out_channels ", p.out_channels);
  }
  for (const auto& [argument, format] :
       {std::pair{"x", p.x}, {"weight", p.weight}, {"out", p.out}}) {
    if (!is_plain_float(format)) {
      return concat("conv1d: ", argument, " is ", name(format), "; it must be f32, f16 or bf16");
    }
  }
  return "";
}

std::string accepts_gpu(const Conv1dProblem& p) {
  if (std::string reason = accepts(p); !reason.empty()) return reason;
  constexpr int64_t kMost = 65535;  // of a grid's second and third extent
  if (p.out_channels > kMost || p.batch > kMost) {
    return concat("conv1d: out_channels is ", p.out_channels, " and batch ", p.batch,
                  "; a GPU takes at most ", kMost, " of each");
  }
  return "";
}

constexpr Conv1dKernel kKernels[] = {HALFTONE_LEVEL_ROWS("conv1d", accepts, conv1d_units)
                                         HALFTONE_GPU_ROW("conv1d", accepts_gpu, conv1d_gpu)};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The arguments that follow from the problem; pointers are left null.
struct Layout {
  Conv1dArgs args{};
  Conv1dTile tile{};
  int64_t output_tiles = 0, output_blocks = 0;
  int64_t expanded = 0, packed = 0;  // in floats
};
Layout layout_of(const Conv1dProblem& p, Conv1dFunction function) {
  Layout l;
  Conv1dArgs& a = l.args;
  a.channels = p.in_channels / p.groups;
  a.outputs = p.out_channels / p.groups;
  a.groups = p.groups;
  a.kernel = p.kernel;
  a.length = p.length;
  a.out_length = conv1d_length(p);
  a.stride = p.stride;
  a.padding = p.padding;
  a.dilation = p.dilation;
  a.activation = p.activation;
  a.x_format = p.x;
  a.weight_format = p.weight;
  a.out_format = p.out;
  if (function == nullptr) return l;  // GPUs have no workspace
  function(a, Conv1dStep::multiply, 0, 0, &l.tile);
  // The first tap lies ceil(padding / stride) elements before the first output's position, the last
  // one this far after it.
  a.lead = ceil_div(p.padding, p.stride);
  const int64_t behind = std::max<int64_t>(0, (p.kernel - 1) * p.dilation - p.padding) / p.stride;
  a.width = a.lead + ceil_div(a.out_length, l.tile.positions) * l.tile.positions + behind + 1;
  const int64_t tiles = ceil_div(a.outputs, l.tile.outputs);
  l.output_tiles = tiles * p.groups;
  l.output_blocks = ceil_div(tiles, l.tile.tiles) * p.groups;
  l.expanded = element_count({p.in_channels, p.stride, a.width});
  l.packed = element_count({l.output_tiles, l.tile.outputs, a.channels, p.kernel});
  return l;
}

}  // namespace

int64_t conv1d_length(const Conv1dProblem& p) {
  const int64_t reach = p.length + 2 * p.padding - p.dilation * (p.kernel - 1) - 1;
  return reach < 0 ? 0 : reach / p.stride + 1;
}

std::string describe(const Conv1dPlan& plan) {
  const Conv1dProblem& p = plan.problem;
  return concat(plan.kernel->name, ": conv1d of ", p.batch, " x ", p.in_channels, " x ", p.length,
                " to ", p.out_channels, " x ", conv1d_length(p), ", kernel ", p.kernel, ", stride ",
                p.stride, ", padding ", p.padding, ", dilation ", p.dilation, ", groups ", p.groups,
                ", ", name(p.x), " with ", name(p.weight), " weight, ", plan.workspace_bytes,
                " bytes of workspace, on ", plan.device.name());
}

Support can_run(const Conv1dProblem& problem, const Device& device) {
  return support_of(kKernels, problem, device);
}
Conv1dPlan plan(const Conv1dProblem& problem, const Device& device) {
  Conv1dPlan made{problem, device, kernel_for(kKernels, problem, device), 0, nullptr};
  const Layout l = layout_of(problem, made.kernel->function.cpu);
  const int64_t floats = l.expanded + l.packed;
  made.workspace_bytes = floats * int64_t{sizeof(float)};
  require(floats < (int64_t{1} << 40), "conv1d: the workspace would take ", made.workspace_bytes,
          " bytes; split the problem");
  made.workspace.reset(new float[static_cast<size_t>(floats)]);
  return made;
}

void run(const Conv1dPlan& plan, const Conv1dTensors& t, Stream& stream) {
  const Conv1dProblem& p = plan.problem;
  require(plan.kernel != nullptr, "conv1d: the plan is empty; make it with plan()");
  check_stream("conv1d", stream, plan.device);
  const auto check = [&](const char* argument, const Tensor& x, const Shape& shape, Format format) {
    require(x.defined() && x.shape() == shape && x.format() == format && x.device() == plan.device,
            "conv1d: ", argument, " is ", x.defined() ? to_string(x) : std::string("undefined"),
            ", the plan was made for ", name(format), " ", shown(shape), " on ",
            plan.device.name());
  };
  const Conv1dFunction function = plan.kernel->function.cpu;
  Layout l = layout_of(p, function);
  Conv1dArgs& a = l.args;
  check("x", t.x, {p.batch, p.in_channels, p.length}, p.x);
  check("weight", t.weight, {p.out_channels, a.channels, p.kernel}, p.weight);
  check("out", t.out, {p.batch, p.out_channels, a.out_length}, p.out);
  require(t.weight.contiguous(), "conv1d: weight has strides ", shown(t.weight.strides()),
          "; it must be row-major");
  require(t.bias.defined() == p.bias, "conv1d: bias is ", p.bias ? "missing" : "given",
          ", the plan was made ", p.bias ? "with" : "without", " one");
  if (p.bias) {
    check_tensor("conv1d", "bias", t.bias, {p.out_channels},
                 t.bias.format() == Format::f32 ? Format::f32 : p.weight, plan.device);
    a.bias = t.bias.data<char>();
    a.bias_format = t.bias.format();
  }
  for (const auto& [argument, x] :
       {std::pair{"x", &t.x}, {"weight", &t.weight}, {"bias", &t.bias}}) {
    if (x->defined() && x->numel() > 0 && t.out.numel() > 0) {
      require(x->data() != t.out.data(), "conv1d: out is ", argument, "; it needs separate memory");
      check_overlap("conv1d", "out", t.out, argument, *x);
    }
  }
  if (t.out.numel() == 0) return;
  const int64_t in_bytes = bits(p.x) / 8, out_bytes = bits(p.out) / 8;
  a.x_channel = t.x.stride(1) * in_bytes;
  a.x_step = t.x.stride(2) * in_bytes;
  a.weight = t.weight.data<char>();
  a.out_channel = t.out.stride(1) * out_bytes;
  a.out_step = t.out.stride(2) * out_bytes;
  if (plan.kernel->function.gpu != nullptr) {
    a.x = t.x.data<char>(), a.out = t.out.data<char>();
    return plan.kernel->function.gpu(a, p.batch, t.x.stride(0) * in_bytes,
                                     t.out.stride(0) * out_bytes, stream);
  }
  a.expanded = plan.workspace.get();
  a.packed = a.expanded + l.expanded;
  const auto step = [&](Conv1dStep what, int64_t units, int64_t work) {
    for_rows(stream, units, work,
             [&](int64_t begin, int64_t end) { function(a, what, begin, end, nullptr); });
  };
  const int64_t terms = a.channels * p.kernel;
  step(Conv1dStep::pack, l.output_tiles, l.tile.outputs * terms);
  for (int64_t b = 0; b < p.batch; ++b) {
    a.x = t.x.data<char>() + b * t.x.stride(0) * in_bytes;
    a.out = t.out.data<char>() + b * t.out.stride(0) * out_bytes;
    step(Conv1dStep::expand, p.in_channels, p.stride * a.width);
    const int64_t blocks = ceil_div(a.out_length, l.tile.positions);
    step(Conv1dStep::multiply, blocks * l.output_blocks,
         l.tile.tiles * l.tile.outputs * l.tile.positions * std::max<int64_t>(1, terms / 16));
  }
}

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv1dOptions& options, Stream& stream) {
  require(x.defined() && x.rank() == 3, "conv1d: x is ",
          x.defined() ? to_string(x) : std::string("undefined"),
          "; it must be [batch, in_channels, length]");
  require(weight.defined() && weight.rank() == 3, "conv1d: weight is ",
          weight.defined() ? to_string(weight) : std::string("undefined"),
          "; it must be [out_channels, in_channels / groups, kernel]");
  Conv1dProblem p;
  p.batch = x.size(0), p.in_channels = x.size(1), p.length = x.size(2);
  p.out_channels = weight.size(0), p.kernel = weight.size(2);
  p.stride = options.stride, p.padding = options.padding, p.dilation = options.dilation;
  p.groups = options.groups, p.activation = options.activation;
  p.x = p.out = x.format(), p.weight = weight.format();
  p.bias = bias.defined();
  const Conv1dPlan made = plan(p, x.device());
  const Tensor out = Tensor::empty({p.batch, p.out_channels, conv1d_length(p)}, p.out, x.device());
  run(made, {x, weight, out, bias}, stream);
  return out;
}

}  // namespace halftone
