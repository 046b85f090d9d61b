// RoPE: rules, plan, run and one-liner.
#include "halftone/rope.h"

#include "base/arguments.h"
#include "base/kernel_table.h"
#include "ops/rope/frequencies.h"
#include "ops/rope/kernels.h"

namespace halftone {

struct RopeKernel : KernelRow<RopeProblem, CpuOrGpu<RopeFunction, RopeGpuFunction>> {};

namespace {

std::string accepts(const RopeProblem& p) {
  if (p.tokens < 0) return concat("rope: tokens is ", p.tokens, "; it must not be negative");
  if (p.heads < 0) return concat("rope: heads is ", p.heads, "; it must not be negative");
  if (!is_plain_float(p.format)) {
    return concat("rope: x is ", name(p.format), "; it must be f32, f16 or bf16");
  }
  if (p.length < 0) return concat("rope: length is ", p.length, "; it must not be negative");
  return refuse_rope(p.options, p.head_dim);
}

constexpr RopeKernel kKernels[] = {HALFTONE_LEVEL_ROWS("rope", accepts, rope_tokens)
                                       HALFTONE_GPU_ROW("rope", accepts, rope_gpu)};

const char* scaling_name(const RopeOptions& o) {
  return o.llama3     ? "llama3 scaling, "
         : o.linear   ? "linear scaling, "
         : o.dynamic  ? "dynamic scaling, "
         : o.yarn     ? "yarn scaling, "
         : o.longrope ? "longrope scaling, "
                      : "";
}

int64_t position_at(const Tensor& positions, int64_t i) {
  const int64_t where = i * positions.stride(0);
  return positions.format() == Format::i64 ? positions.data<int64_t>()[where]
                                           : positions.data<int32_t>()[where];
}

}  // namespace

std::string describe(const RopePlan& plan) {
  const RopeProblem& p = plan.problem;
  const RopeOptions& o = p.options;
  return concat(plan.kernel->name, ": rope ",
                o.style == RopeStyle::half_split ? "half-split" : "interleaved", " of ", p.tokens,
                " tokens, ", p.heads, " heads, head_dim ", p.head_dim, ", ",
                2 * plan.frequencies.size(), " rotated, theta ", o.theta, ", ", scaling_name(o),
                name(p.format), ", on ", plan.device.name());
}

Support can_run(const RopeProblem& problem, const Device& device) {
  return support_of(kKernels, problem, device);
}

RopePlan plan(const RopeProblem& problem, const Device& device) {
  const RopeKernel* kernel = kernel_for(kKernels, problem, device);
  RopePlan made{problem,
                device,
                kernel,
                rope_frequencies(problem.options, problem.head_dim, problem.length),
                static_cast<float>(rope_magnitude(problem.options)),
                {}};
  if (kernel->function.gpu != nullptr) {  // as bytes: there is no format f64
    const std::span<const double> values(made.frequencies);
    made.on_device = Tensor::copy_of(values.data(), values.size_bytes(),
                                     {static_cast<int64_t>(values.size_bytes())}, Format::u8)
                         .to(device);
  }
  return made;
}

void run(const RopePlan& plan, const RopeTensors& t, Stream& stream) {
  const RopeProblem& p = plan.problem;
  require(plan.kernel != nullptr, "rope: the plan is empty; make it with plan()");
  check_stream("rope", stream, plan.device);
  const bool on_gpu = plan.kernel->function.gpu != nullptr;
  check_tensor("rope", "x", t.x, {p.tokens, p.heads, p.head_dim}, p.format, plan.device);
  const bool fits = t.positions.defined() && is_integer_index(t.positions.format()) &&
                    t.positions.rank() == 1 && t.positions.size(0) == p.tokens &&
                    t.positions.device() == plan.device;
  if (!fits) {  // the text is built only for the message: it costs more than a decode step's rope
    fail(ErrorCode::invalid_argument, "rope: positions is ",
         t.positions.defined() ? to_string(t.positions) : std::string("undefined"),
         "; it must be i32 or i64 [", p.tokens, "] on ", plan.device.name());
  }
  for (int64_t i = 0; i < p.tokens && !on_gpu; ++i) {  // the GPU kernel checks itself
    const int64_t position = position_at(t.positions, i);
    require(position >= 0 && position <= int64_t{1} << 31, "rope: positions[", i, "] is ", position,
            "; it must be 0 to 2^31");
  }
  const int64_t bytes = bits(p.format) / 8;
  const RopeArgs args{t.x.data<char>(),
                      t.x.stride(0) * bytes,
                      t.x.stride(1) * bytes,
                      p.heads,
                      on_gpu ? plan.on_device.data<double>() : plan.frequencies.data(),
                      static_cast<int64_t>(plan.frequencies.size()),
                      t.positions.data(),
                      t.positions.stride(0),
                      t.positions.format() == Format::i64,
                      p.options.style == RopeStyle::interleaved,
                      p.format,
                      plan.magnitude};
  if (on_gpu) return plan.kernel->function.gpu(args, p.tokens, stream);
  for_rows(stream, p.tokens, p.heads * p.head_dim,
           [&](int64_t begin, int64_t end) { plan.kernel->function.cpu(args, begin, end); });
}

void rope(Tensor& x, const Tensor& positions, const RopeOptions& options, Stream& stream) {
  require(x.defined() && x.rank() == 3, "rope: x is ",
          x.defined() ? to_string(x) : std::string("undefined"),
          "; it must be [tokens, heads, head_dim]");
  const Tensor read = depends_on_length(options) ? positions.to(Device::cpu()) : positions;
  const RopeProblem problem{x.size(0),  x.size(1), x.size(2),
                            x.format(), options,   sequence_length(options, read)};
  run(plan(problem, x.device()), {x, positions}, stream);
}

}  // namespace halftone
