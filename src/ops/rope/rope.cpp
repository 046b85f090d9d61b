#include "halftone/rope.h"

#include <cmath>
#include <numbers>

#include "base/arguments.h"
#include "base/kernel_table.h"
#include "ops/rope/kernels.h"

namespace halftone {

struct RopeKernel : KernelRow<RopeProblem, RopeFunction> {};

namespace {

// Why the options do not fit; empty when they do.
std::string refuse(const RopeOptions& o, int64_t head_dim) {
  const int64_t rotary = o.rotary_dim == 0 ? head_dim : o.rotary_dim;
  if (head_dim < 1) return concat("rope: head_dim is ", head_dim, "; it must be at least 1");
  if (rotary < 0 || rotary > head_dim || rotary % 2 != 0) {
    return concat("rope: rotary_dim is ", rotary, "; it must be even and from 2 to head_dim ",
                  head_dim);
  }
  if (!(o.theta >= 1) || !std::isfinite(o.theta)) {
    return concat("rope: theta is ", o.theta, "; it must be finite and at least 1");
  }
  if (o.llama3) {
    const Llama3Scaling& s = *o.llama3;
    if (!(s.factor >= 1) || !(s.low_freq_factor > 0) || !(s.high_freq_factor > s.low_freq_factor) ||
        s.original_max_position < 1) {
      return concat("rope: llama3 scaling has factor ", s.factor, ", low_freq_factor ",
                    s.low_freq_factor, ", high_freq_factor ", s.high_freq_factor,
                    ", original_max_position ", s.original_max_position,
                    "; factor must be at least 1, the others positive and high above low");
    }
  }
  return "";
}

std::string accepts(const RopeProblem& p) {
  if (p.tokens < 0) return concat("rope: tokens is ", p.tokens, "; it must not be negative");
  if (p.heads < 0) return concat("rope: heads is ", p.heads, "; it must not be negative");
  if (!is_plain_float(p.format)) {
    return concat("rope: x is ", name(p.format), "; it must be f32, f16 or bf16");
  }
  return refuse(p.options, p.head_dim);
}

constexpr RopeKernel kKernels[] = {
#if defined(__x86_64__)
    {{"rope_avx512_bf16", Device::Kind::cpu, CpuLevel::avx512_bf16, accepts,
      cpu_avx512_bf16::rope_tokens}},
    {{"rope_avx512", Device::Kind::cpu, CpuLevel::avx512, accepts, cpu_avx512::rope_tokens}},
    {{"rope_avx2", Device::Kind::cpu, CpuLevel::avx2, accepts, cpu_avx2::rope_tokens}},
#endif
    {{"rope_baseline", Device::Kind::cpu, CpuLevel::baseline, accepts, cpu_baseline::rope_tokens}},
};

const RopeKernel* choose_kernel(const RopeProblem& problem, const Device& device,
                                Support* support) {
  const RopeKernel* kernel =
      choose(std::span<const RopeKernel>(kKernels), problem, device, &support->reason);
  support->ok = kernel != nullptr;
  if (support->ok) support->reason.clear();
  return kernel;
}

int64_t position_at(const Tensor& positions, int64_t i) {
  const int64_t where = i * positions.stride(0);
  return positions.format() == Format::i64 ? positions.data<int64_t>()[where]
                                           : positions.data<int32_t>()[where];
}

}  // namespace

std::vector<double> rope_frequencies(const RopeOptions& options, int64_t head_dim) {
  const std::string reason = refuse(options, head_dim);
  require(reason.empty(), reason);
  const int64_t rotary = options.rotary_dim == 0 ? head_dim : options.rotary_dim;
  std::vector<double> frequencies(static_cast<size_t>(rotary / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    double& f = frequencies[i];
    f = std::pow(options.theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary));
    if (!options.llama3) continue;
    // Long waves turn `factor` times slower, short ones stay, those between are blended linearly
    // in the number of turns within the original context.
    const Llama3Scaling& s = *options.llama3;
    const double turns = static_cast<double>(s.original_max_position) * f / (2 * std::numbers::pi);
    const double smooth = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
    const double kept = std::clamp(smooth, 0.0, 1.0);
    f = (1 - kept) * f / s.factor + kept * f;
  }
  return frequencies;
}

std::string describe(const RopePlan& plan) {
  const RopeProblem& p = plan.problem;
  const RopeOptions& o = p.options;
  return concat(
      plan.kernel->name, ": rope ", o.style == RopeStyle::half_split ? "half-split" : "interleaved",
      " of ", p.tokens, " tokens, ", p.heads, " heads, head_dim ", p.head_dim, ", ",
      2 * plan.frequencies.size(), " rotated, theta ", o.theta,
      o.llama3 ? ", llama3 scaling, " : ", ", name(p.format), ", on ", plan.device.name());
}

Support can_run(const RopeProblem& problem, const Device& device) {
  Support support;
  choose_kernel(problem, device, &support);
  return support;
}

RopePlan plan(const RopeProblem& problem, const Device& device) {
  Support support;
  const RopeKernel* kernel = choose_kernel(problem, device, &support);
  require_support(support);
  return {problem, device, kernel, rope_frequencies(problem.options, problem.head_dim)};
}

void run(const RopePlan& plan, const RopeTensors& t, Stream& stream) {
  const RopeProblem& p = plan.problem;
  require(plan.kernel != nullptr, "rope: the plan is empty; make it with plan()");
  check_tensor("rope", "x", t.x, {p.tokens, p.heads, p.head_dim}, p.format, plan.device);
  const bool fits = t.positions.defined() && is_integer_index(t.positions.format()) &&
                    t.positions.rank() == 1 && t.positions.size(0) == p.tokens;
  if (!fits) {  // the text is built only for the message: it costs more than a decode step's rope
    fail(ErrorCode::invalid_argument, "rope: positions is ",
         t.positions.defined() ? to_string(t.positions) : std::string("undefined"),
         "; it must be i32 or i64 [", p.tokens, "]");
  }
  for (int64_t i = 0; i < p.tokens; ++i) {
    const int64_t position = position_at(t.positions, i);
    require(position >= 0 && position <= int64_t{1} << 31, "rope: positions[", i, "] is ", position,
            "; it must be 0 to 2^31");
  }
  const int64_t bytes = bits(p.format) / 8;
  const RopeArgs args{t.x.data<char>(),
                      t.x.stride(0) * bytes,
                      t.x.stride(1) * bytes,
                      p.heads,
                      plan.frequencies.data(),
                      static_cast<int64_t>(plan.frequencies.size()),
                      t.positions.data(),
                      t.positions.stride(0),
                      t.positions.format() == Format::i64,
                      p.options.style == RopeStyle::interleaved,
                      p.format};
  for_rows(stream, p.tokens, p.heads * p.head_dim,
           [&](int64_t begin, int64_t end) { plan.kernel->function(args, begin, end); });
}

void rope(Tensor& x, const Tensor& positions, const RopeOptions& options, Stream& stream) {
  require(x.defined() && x.rank() == 3, "rope: x is ",
          x.defined() ? to_string(x) : std::string("undefined"),
          "; it must be [tokens, heads, head_dim]");
  const RopeProblem problem{x.size(0), x.size(1), x.size(2), x.format(), options};
  run(plan(problem, x.device()), {x, positions}, stream);
}

}  // namespace halftone
