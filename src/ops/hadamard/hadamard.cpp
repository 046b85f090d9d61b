// The Walsh-Hadamard transform: rules, run and one-liner.
#include "halftone/hadamard.h"

#include <array>
#include <cmath>

#include "base/arguments.h"
#include "base/kernel_table.h"
#include "ops/hadamard/kernels.h"
#include "ops/heads/kernels.h"

namespace halftone {

namespace {

using HadamardGpuFunction = void (*)(const HadamardArgs&, int64_t tokens, int64_t heads, Stream&);
struct HadamardKernel
    : KernelRow<HadamardProblem, CpuOrGpu<HadamardFunction, HadamardGpuFunction>> {};

constexpr auto kSigns = [] {
  std::array<uint32_t, kLargestHadamard> signs{};
  for (uint32_t i = 0; i < signs.size(); ++i) {
    signs[i] = (hadamard_signs(i / 8) >> i % 8 & 1) << 31;
  }
  return signs;
}();

std::string accepts(const HadamardProblem& p) {
  if (!is_plain_float(p.format)) {
    return concat("hadamard: x is ", name(p.format), "; it must be f32, f16 or bf16");
  }
  if (p.head_dim < 1) return concat("hadamard: head_dim is ", p.head_dim, "; it must be positive");
  return "";
}

HeadsArgs heads_of(const HadamardArgs& args, int64_t tokens, int64_t heads) {
  HeadsArgs made;
  made.tokens = tokens, made.head_dim = args.head_dim, made.format = args.format;
  HeadRows& rows = made.rows[0];
  rows.x = args.x, rows.out = args.out, rows.heads = heads, rows.hadamard = true;
  made.count = 1;
  return made;
}

std::string accepts_on_gpu(const HadamardProblem& p) {
  if (std::string why = accepts(p); !why.empty()) return why;
  const std::string why =
      heads_gpu_error(heads_of({.head_dim = p.head_dim, .format = p.format}, 0, 0));
  if (why.empty()) return why;
  return concat("hadamard: x is ", name(p.format), " with head_dim ", p.head_dim,
                "; on a GPU it must be f16 or bf16 with 64, 128, 256 or 512");
}

void hadamard_gpu(const HadamardArgs& args, int64_t tokens, int64_t heads, Stream& stream) {
  const HeadsArgs made = heads_of(args, tokens, heads);
  const std::string why = heads_gpu_error(made);
  require(why.empty(), "hadamard: ", why, "; align x and out, and their strides");
  heads_gpu(made, stream);
}

constexpr HadamardKernel kKernels[] = {HALFTONE_LEVEL_ROWS(
    "hadamard", accepts, hadamard_rows) HALFTONE_GPU_ROW("hadamard", accepts_on_gpu, hadamard_gpu)};

bool is_heads(const Tensor& x) {
  return x.defined() && (x.rank() == 3 || x.rank() == 4) && (x.stride(-1) == 1 || x.size(-1) == 1);
}

}  // namespace

Support can_run(const HadamardProblem& problem, const Device& device) {
  return support_of(kKernels, problem, device);
}

void hadamard_into(const Tensor& x, Tensor& out, Stream& stream) {
  require(is_heads(x), "hadamard: x is ", x.defined() ? to_string(x) : "undefined",
          "; it must be [tokens, heads, head_dim] or [batch, length, heads, head_dim] with a last "
          "stride of 1");
  const HadamardProblem problem{x.size(-1), x.format()};
  const HadamardKernel* kernel = kernel_for(kKernels, problem, x.device());
  require(is_heads(out) && out.shape() == x.shape() && out.format() == x.format() &&
              out.device() == x.device(),
          "hadamard: out is ", out.defined() ? to_string(out) : "undefined",
          "; it must be like x, ", to_string(x));
  check_stream("hadamard", stream, x.device());
  check_overlap("hadamard", "out", out, "x", x);
  if (x.rank() == 4) {
    // Batches whose rows are contiguous are one.
    const auto even = [&](const Tensor& t) {
      return t.size(0) == 1 || t.stride(0) == t.size(1) * t.stride(1);
    };
    const auto tokens = [](const Tensor& t) {
      return Tensor::view(t.data(), {t.size(0) * t.size(1), t.size(2), t.size(3)},
                          {t.stride(1), t.stride(2), t.stride(3)}, t.format(), t.device());
    };
    const int64_t step = even(x) && even(out) ? std::max<int64_t>(x.size(0), 1) : 1;
    for (int64_t b = 0; b < x.size(0); b += step) {
      Tensor to = tokens(out.slice(0, b, b + step));
      hadamard_into(tokens(x.slice(0, b, b + step)), to, stream);
    }
    return;
  }
  const int64_t tokens = x.size(0), heads = x.size(1), block = hadamard_block(problem.head_dim);
  const auto rows = [&](const Tensor& t) {
    const int64_t bytes = bits(t.format()) / 8;
    return Rows{t.data<char>(), heads, t.stride(0) * bytes, heads == 1 ? 0 : t.stride(1) * bytes};
  };
  const HadamardArgs args{rows(x),        rows(out),     problem.head_dim,     block,
                          problem.format, kSigns.data(), hadamard_scale(block)};
  if (kernel->function.gpu != nullptr) return kernel->function.gpu(args, tokens, heads, stream);
  for_rows(stream, tokens * heads, problem.head_dim,
           [&](int64_t begin, int64_t end) { kernel->function.cpu(args, begin, end); });
}

Tensor hadamard(const Tensor& x, Stream& stream) {
  require(x.defined() && is_plain_float(x.format()), "hadamard: x is ",
          x.defined() ? to_string(x) : "undefined", "; it must be f32, f16 or bf16");
  Tensor out = Tensor::empty(x.shape(), x.format(), x.device());
  hadamard_into(x, out, stream);
  return out;
}

}  // namespace halftone
