#include "ops/matmul/matmul_gpu.h"

#include <algorithm>

#include "base/message.h"
#include "formats/gpu/kernels.h"
#include "ops/gemm/sm80/launch.h"
#include "ops/gemm/sm90/gemv/launch.h"
#include "ops/gemm/sm90/mixed/launch.h"
#include "ops/gemm/sm90/small_m/launch.h"
#include "ops/matmul/cublaslt.h"
#include "ops/matmul/matmul_run.h"

namespace halftone::dense {

namespace {

struct GpuWorkspace {
  gemm::GpuWeight weight;
  gemm::GpuX x;
  Tensor results;  // f32, before they are quantised
};

GpuWorkspace make_workspace(const MatmulProblem& p, const gemm::GemmChoice& choice) {
  return {choice.weight, gemm::GpuX(x_spec(p), choice.weight, p.k), {}};
}

int64_t allocate(const MatmulProblem& p, const Device& device, GpuWorkspace* w) {
  w->x.allocate(p.m, device);
  if (p.quantize_out) w->results = Tensor::empty({p.m, p.n}, Format::f32, device);
  return w->x.bytes() + (p.quantize_out ? w->results.bytes() : 0);
}

struct CublasLtWorkspace : GpuWorkspace {
  std::unique_ptr<CublasLtGemm> product;
};

gemm::GpuEpilogue finish_of(const MatmulProblem& p, const MatmulTensors& t, const Tensor& out) {
  gemm::GpuEpilogue f;
  f.out = out.data<char>();
  f.out_format = out.format();
  f.out_row = out.stride(0) * bits(f.out_format) / 8;
  if (p.residual) {
    f.residual = t.residual.data<char>();
    f.residual_format = t.residual.format();
    f.residual_row = t.residual.stride(0) * bits(f.residual_format) / 8;
  }
  f.activation = p.activation;
  f.gate = p.gated.has_value();
  if (f.gate) f.gated = *p.gated;
  if (p.bias) {
    const int64_t size = bits(t.bias.format()) / 8;
    f.bias_format = t.bias.format();
    f.bias_step = size * (p.interleaved ? 2 : 1);
    f.bias[0] = t.bias.data<char>();
    f.bias[1] = f.bias[0] + size * (p.interleaved ? 1 : p.n);
  }
  return f;
}

// The product; x is still to enter.
gemm::GpuGemm product_of(const MatmulProblem& p, const GpuWorkspace& w, const MatmulTensors& t) {
  gemm::GpuGemm g;
  g.epilogue = finish_of(p, t, p.quantize_out ? w.results : t.out);
  set_weight(w.weight, gemm::gpu_layout(t.weight, "weight"), &g);
  g.source[0] = g.source[1] = gemm::gpu_source(t.weight);
  if (p.separate_up) {
    g.source[1] = gemm::gpu_source(t.up);
  } else if (p.gated) {
    g.weight.row_step = p.interleaved ? 2 : 1;
    g.source[1].first_row = p.interleaved ? 1 : p.n;
  }
  g.n = static_cast<uint32_t>(p.n);
  g.static_weights = p.static_weights && !p.weight_transposed;  // the plan's copy is written
  return g;
}

// Of f32 results, so that codes and scales are those of the product without rounding in between.
void quantise_results(const MatmulProblem& p, const Tensor& results, Tensor out, Stream& stream) {
  QuantizeOptions q = *p.quantize_out;
  const bool given = per_tensor(q) && q.tensor_scale;
  const float scale = given ? *q.tensor_scale : 0;
  if (given) q.tensor_scale.reset();
  QuantizeArgs args = quantize_target(q, out, stream);
  args.x = {results.data<char>(), 1, p.n * 4, 0};
  args.source = Format::f32;
  args.given = scale;
  args.find_tensor_scale = has_tensor_scale(q.format) && !q.tensor_scale;
  quantize_gpu(args, stream);
}

gemm::Sm90GemvNorm norm_of(const MatmulProblem& p, const gemm::GemmChoice& choice,
                           const MatmulTensors& t) {
  if (!p.norm || !choice.normalises) return {};
  return {t.norm.data<uint8_t>(), p.norm->eps, p.norm->weight_offset};
}

void run_cublaslt(const MatmulPlan& plan, const MatmulTensors& t, Stream& stream) {
  const auto& w = static_cast<const CublasLtWorkspace&>(
      *static_cast<const GpuWorkspace*>(plan.workspace.get()));
  CublasLtGemm::Codes codes;
  if (plan.problem.quantize_x) {
    gemm::GpuGemm g;
    w.x.enter(t.x, plan.problem.m, &g, stream, true);
    codes = {g.x, scaled_by_blocks(plan.problem) ? g.x_scales : g.epilogue.row_scales};
  }
  w.product->run(t, codes, stream);
}

gemm::GemmProblem problem_for_sm90(const MatmulProblem& p, const gemm::GemmChoice& choice) {
  gemm::GemmProblem problem = gemm_problem(p);
  problem.transposed = choice.transposed;
  return problem;
}

}  // namespace

gemm::GemmProblem gemm_problem(const MatmulProblem& p) {
  gemm::GemmProblem g{
      p.m, p.n, p.k, 0, p.gated.has_value(), p.weight, p.scaled, p.scaling, p.weight_transposed};
  g.x = x_spec(p);
  g.interleaved = p.interleaved, g.separate_up = p.separate_up;
  if (p.norm) g.norm = p.norm->weight;
  g.f16_sums = p.accumulate == Format::f16;
  g.out = p.out, g.bias = p.bias, g.residual = p.residual;
  g.activation = p.activation.kind != Activation::identity;
  g.quantize_out = p.quantize_out.has_value();
  g.tf32 = p.tf32, g.library = p.library;
  g.batch_invariant = p.batch_invariant, g.alignment = p.alignment;
  return g;
}

OperandAlignment alignment_at_kernel(const MatmulPlan& plan, const MatmulTensors& t) {
  OperandAlignment a = alignment_of(t);
  if (plan.turned.defined()) a.weight = 16;
  if (plan.problem.norm && !plan.kernel->choice.normalises) a.x = 16;
  return a;
}

std::shared_ptr<void> workspace_gpu(const MatmulProblem& p, const Device& device,
                                    const gemm::GemmChoice& choice, int64_t* bytes) {
  auto w = std::make_shared<GpuWorkspace>(make_workspace(p, choice));
  *bytes = allocate(p, device, w.get());
  return w;
}

std::shared_ptr<void> workspace_cublaslt(const MatmulProblem& p, const Device& device,
                                         const gemm::GemmChoice& choice, int64_t* bytes) {
  auto product = cublaslt_gemm(p, device);
  if (product == nullptr) return nullptr;
  auto w = std::make_shared<CublasLtWorkspace>();
  static_cast<GpuWorkspace&>(*w) = make_workspace(p, choice);
  *bytes = product->bytes() + allocate(p, device, w.get());
  w->product = std::move(product);
  return std::shared_ptr<GpuWorkspace>(std::move(w));
}

void run_gpu(const MatmulPlan& plan, const MatmulTensors& t, Stream& stream) {
  using Kernel = gemm::GemmKernel;
  const MatmulProblem& p = plan.problem;
  const gemm::GemmChoice& choice = plan.kernel->choice;
  if (choice.kernel == Kernel::gemm_cublaslt) return run_cublaslt(plan, t, stream);
  const auto& w = *static_cast<const GpuWorkspace*>(plan.workspace.get());
  gemm::GpuGemm g = product_of(p, w, t);
  const gemm::GemmProblem problem = problem_for_sm90(p, choice);
  const bool many = choice.kernel == Kernel::gemm_sm90;
  const gemm::Sm90Matrices matrices =
      many ? gemm::sm90_matrices(g.weight, g.source, 2) : gemm::Sm90Matrices{};
  w.x.enter(t.x, p.m, &g, stream, many && takes_codes_sm90(problem, w.weight, w.x));
  switch (choice.kernel) {
    case Kernel::gemv_sm90:
      launch_sm90_gemv(w.weight, {&g, 1}, stream, 0, norm_of(p, choice, t));
      break;
    case Kernel::gemm_sm90_small_m:
      launch_sm90_small_m(w.weight, {&g, 1}, stream);
      break;
    case Kernel::gemm_sm90:
      launch_sm90(problem, w.weight, choice.sm90, g, matrices, 0, stream);
      break;
    case Kernel::gemv_sm80:
      for (int64_t first = 0, rows = choice.chunk_rows; first < p.m; first += rows) {
        launch_gemv(w.weight, rows_of(g, first, std::min(rows, p.m - first)), choice.loop, 0,
                    stream);
      }
      break;
    default:
      launch_gemm(w.weight, g, 0, stream);
  }
  if (p.quantize_out) quantise_results(p, w.results, t.out, stream);
}

bool run_fused_gpu(std::span<const MatmulCall> calls, Stream& stream) {
  using Kernel = gemm::GemmKernel;
  constexpr size_t kMost = gemm::kSm90MaxFused + 1;
  const MatmulProblem& p = calls[0].plan->problem;
  const gemm::GemmChoice& choice = calls[0].plan->kernel->choice;
  const bool row = choice.kernel == Kernel::gemv_sm90;
  const bool small_m = choice.kernel == Kernel::gemm_sm90_small_m;
  const bool many = choice.kernel == Kernel::gemm_sm90;
  if ((!row && !small_m && !many) || calls.size() > kMost) return false;
  gemm::GemmProblem all_rows = problem_for_sm90(p, choice);
  all_rows.n = 0;
  gemm::GpuGemm gemms[kMost];
  const gemm::Sm90GemvNorm norm = norm_of(p, choice, *calls[0].tensors);
  if (p.norm && norm.weight == nullptr) return false;
  for (size_t i = 0; i < calls.size(); ++i) {
    const MatmulProblem& own = calls[i].plan->problem;
    const auto& w = *static_cast<const GpuWorkspace*>(calls[i].plan->workspace.get());
    gemm::GpuGemm& g = gemms[i];
    if (own.x != p.x || own.m != p.m || own.weight != p.weight || own.scaled != p.scaled ||
        own.scaling != p.scaling || own.weight_transposed || own.quantize_out ||
        own.norm.has_value() != p.norm.has_value()) {
      return false;
    }
    if (p.norm && norm_of(own, calls[i].plan->kernel->choice, *calls[i].tensors) != norm) {
      return false;
    }
    if (many && !w.x.direct()) return false;
    g = product_of(own, w, *calls[i].tensors);
    w.x.enter(calls[i].tensors->x, own.m, &g, stream);
    all_rows.n += own.n;
    // Each with each: the first may have no bias where two others have them in two formats.
    for (size_t j = 0; j < i; ++j) {
      if (!can_fuse_sm90(gemms[j], g)) return false;
    }
  }
  const auto& w = *static_cast<const GpuWorkspace*>(calls[0].plan->workspace.get());
  const std::span<const gemm::GpuGemm> all(gemms, calls.size());
  if (many) return launch_fused_sm90(all_rows, w.weight, w.x, all, stream);
  row ? launch_sm90_gemv(w.weight, all, stream, 0, norm)
      : launch_sm90_small_m(w.weight, all, stream);
  return true;
}

}  // namespace halftone::dense
