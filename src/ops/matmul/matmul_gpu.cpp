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

bool many_rows(const MatmulProblem& p, const gemm::GpuX& x) {
  return !gemm::fits_gemv(p.m * x.terms());
}

// The kernel of many rows multiplies 128 columns, however few there are. So where operands have
// terms, or codes are expanded, some dozens of rows go to that of few, in portions that each read W
// (docs/findings/gpu-gemv.md).
int64_t chunk_rows(const MatmulProblem& p, const GpuWorkspace& w) {
  constexpr int64_t kMaxChunks = 6;
  using Code = gemm::GpuCode;
  const Code code = w.weight.code;
  const bool plain = code == Code::bf16 || code == Code::f16 || code == Code::f16_sums;
  const int64_t rows = gemm::kGemvMaxColumns / w.x.terms();
  if (!many_rows(p, w.x) || (plain && w.x.terms() == 1) || p.m > kMaxChunks * rows) return p.m;
  return rows;
}

// Of E4M3 in blocks. Beyond so many rows cuBLASLt takes 0.91 to 0.95 of the time of Halftone's own
// kernel (docs/findings/gemm-hopper.md); up to there it gains little or loses, as it reads
// scales in an order of its own, into which every run copies them.
constexpr int64_t kOwnBlockRows = 256;

// Their tensor cores sum in f16 at twice the rate.
bool prefers_f16_sums(Arch arch) { return arch == Arch::sm_89 || arch == Arch::sm_120a; }

GpuWorkspace make_workspace(const MatmulProblem& p, Arch arch) {
  GpuWorkspace w;
  w.weight = gemm::gpu_weight(x_spec(p), p.weight, p.scaled, p.scaling);
  w.x = gemm::GpuX(x_spec(p), w.weight, p.k);
  if (p.accumulate == Format::f16 && w.weight.code == gemm::GpuCode::f16 && many_rows(p, w.x) &&
      prefers_f16_sums(arch)) {
    w.weight.code = gemm::GpuCode::f16_sums;
  }
  return w;
}

int64_t allocate(const MatmulProblem& p, const Device& device, GpuWorkspace* w) {
  w->x.allocate(p.m, device);
  if (p.quantize_out) w->results = Tensor::empty({p.m, p.n}, Format::f32, device);
  return w->x.bytes() + (p.quantize_out ? w->results.bytes() : 0);
}

std::shared_ptr<void> workspace(const MatmulProblem& p, const Device& device, int64_t* bytes) {
  auto w = std::make_shared<GpuWorkspace>(make_workspace(p, device.arch()));
  *bytes = allocate(p, device, w.get());
  return w;
}

// Halftone's own as well, for what does not lie as cuBLASLt is told.
struct CublasLtWorkspace : GpuWorkspace {
  std::unique_ptr<CublasLtGemm> product;
};

std::shared_ptr<void> workspace_cublaslt(const MatmulProblem& p, const Device& device,
                                         int64_t* bytes) {
  auto product = p.m > 0 ? cublaslt_gemm(p, device) : nullptr;
  if (product == nullptr) return nullptr;
  auto w = std::make_shared<CublasLtWorkspace>();
  static_cast<GpuWorkspace&>(*w) = make_workspace(p, device.arch());
  *bytes = product->bytes() + allocate(p, device, w.get());
  w->product = std::move(product);
  return std::shared_ptr<GpuWorkspace>(std::move(w));
}

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

void run_gpu(const MatmulPlan& plan, const MatmulTensors& given, Stream& stream) {
  const auto& w = *static_cast<const GpuWorkspace*>(plan.workspace.get());
  const MatmulTensors t = turned(plan, given, stream);
  gemm::GpuGemm g = product_of(plan.problem, w, t);
  w.x.enter(t.x, plan.problem.m, &g, stream);
  const int64_t m = plan.problem.m, rows = chunk_rows(plan.problem, w);
  if (rows == m) {
    launch_gemm(w.weight, g, many_rows(plan.problem, w.x), 0, stream);
  } else {
    for (int64_t first = 0; first < m; first += rows) {
      launch_gemm(w.weight, rows_of(g, first, std::min(rows, m - first)), false, 0, stream);
    }
  }
  if (plan.problem.quantize_out) quantise_results(plan.problem, w.results, t.out, stream);
}

std::string describe_gpu(const MatmulProblem& p, const Device& device) {
  const GpuWorkspace w = make_workspace(p, device.arch());
  const bool half = w.weight.code == gemm::GpuCode::f16_sums;
  const int64_t rows = chunk_rows(p, w);
  if (rows < p.m) return concat("16 rows of W a block, ", rows, " rows of x at a time");
  return concat(many_rows(p, w.x) ? "tiles of 128 x 128" : "16 rows of W a block",
                half ? ", sums of 64 products in f16" : "");
}

gemm::Sm90Problem sm90_problem(const MatmulProblem& p) {
  gemm::Sm90Problem s{p.m, p.n, p.k, 0, p.gated.has_value(), p.weight, p.scaled, p.scaling};
  // The rows of a gate and of its other half would have to alternate within a row of [K, N].
  s.transposed = p.weight_transposed && !s.gate && p.n % 8 == 0;
  return s;
}

void run_sm90(const MatmulPlan& plan, const MatmulTensors& given, Stream& stream) {
  const auto& w = *static_cast<const GpuWorkspace*>(plan.workspace.get());
  const gemm::Sm90Problem problem = sm90_problem(plan.problem);
  const MatmulTensors t = problem.transposed ? given : turned(plan, given, stream);
  gemm::GpuGemm g = product_of(plan.problem, w, t);
  const gemm::Sm90Matrices matrices = gemm::sm90_matrices(g.weight, g.source, 2);
  if (!fits_sm90(problem, w.weight, w.x, g.weight, matrices, t.x))
    return run_gpu(plan, given, stream);
  w.x.enter(t.x, plan.problem.m, &g, stream, takes_codes_sm90(problem, w.weight, w.x));
  launch_sm90(problem, w.weight, w.x, g, matrices, 0, stream);
  if (plan.problem.quantize_out) quantise_results(plan.problem, w.results, t.out, stream);
}

bool norms_row(const MatmulProblem& p) {
  return p.norm && gemm::norms_sm90_gemv(p.x, p.norm->weight, p.k);
}
gemm::Sm90GemvNorm norm_of(const MatmulProblem& p, const MatmulTensors& t) {
  if (!norms_row(p)) return {};
  return {t.norm.data<uint8_t>(), p.norm->eps, p.norm->weight_offset};
}

void run_row(const MatmulPlan& plan, const MatmulTensors& given, Stream& stream) {
  const auto& w = *static_cast<const GpuWorkspace*>(plan.workspace.get());
  const MatmulTensors t = turned(plan, given, stream);
  gemm::GpuGemm g = product_of(plan.problem, w, t);
  w.x.enter(t.x, 1, &g, stream);
  const gemm::Sm90GemvNorm norm = norm_of(plan.problem, t);
  if (!fits_sm90_gemv(w.weight, g) || !fits_sm90_gemv(norm)) {
    return run_gpu(plan, norm.weight != nullptr ? normalised(plan, given, stream) : given, stream);
  }
  launch_sm90_gemv(w.weight, {&g, 1}, stream, 0, norm);
  if (plan.problem.quantize_out) quantise_results(plan.problem, w.results, t.out, stream);
}

void run_small_m(const MatmulPlan& plan, const MatmulTensors& given, Stream& stream) {
  const auto& w = *static_cast<const GpuWorkspace*>(plan.workspace.get());
  const MatmulTensors t = turned(plan, given, stream);
  gemm::GpuGemm g = product_of(plan.problem, w, t);
  w.x.enter(t.x, plan.problem.m, &g, stream);
  if (!fits_sm90_small_m(w.weight, g)) {
    return accepts_sm90(plan.problem).empty() ? run_sm90(plan, given, stream)
                                              : run_gpu(plan, given, stream);
  }
  launch_sm90_small_m(w.weight, {&g, 1}, stream);
  if (plan.problem.quantize_out) quantise_results(plan.problem, w.results, t.out, stream);
}

void run_cublaslt(const MatmulPlan& plan, const MatmulTensors& t, Stream& stream) {
  const auto& w = static_cast<const CublasLtWorkspace&>(
      *static_cast<const GpuWorkspace*>(plan.workspace.get()));
  if (!w.product->fits(t)) return run_gpu(plan, t, stream);
  CublasLtGemm::Codes codes;
  if (plan.problem.quantize_x) {
    gemm::GpuGemm g;
    w.x.enter(t.x, plan.problem.m, &g, stream, true);
    codes = {g.x, scaled_by_blocks(plan.problem) ? g.x_scales : g.epilogue.row_scales};
  }
  w.product->run(t, codes, stream);
}

std::string describe_cublaslt(const MatmulProblem& p, const Device&) {
  return concat("cuBLASLt", p.tf32 ? ", operands rounded to TF32" : "");
}

std::string describe_row(const MatmulProblem& p, const Device&) {
  return concat("one row, 16 rows of W a tile", norms_row(p) ? ", which normalises x" : "");
}

std::string describe_small_m(const MatmulProblem& p, const Device& device) {
  return gemm::describe_sm90_small_m(p.m, p.n, p.k, p.gated.has_value(),
                                     properties(device).sm_count);
}

std::string describe_sm90(const MatmulProblem& p, const Device& device) {
  const GpuWorkspace w = make_workspace(p, device.arch());
  return gemm::describe_sm90(sm90_problem(p), w.weight, w.x, properties(device).sm_count);
}

std::string accepts_dense(const MatmulProblem& p) {
  if (p.library == MatmulLibrary::halftone) return "library is halftone";
  if (p.library == MatmulLibrary::automatic && gemm::fits_gemv(p.m)) {
    return concat("m is ", p.m, "; cuBLASLt is asked for more than 16 rows");
  }
  if (p.library == MatmulLibrary::automatic && p.weight == Format::f32 && !p.tf32) {
    return "x is f32; cuBLASLt is asked for TF32 where tf32 is set";
  }
  std::string reason = refuse_cublaslt(p);
  return reason.empty() ? accepts_gpu(p) : reason;
}

}  // namespace

std::string accepts_gpu(const MatmulProblem& p) {
  // A grid has 65535 blocks along y, of at least 42 rows.
  constexpr int64_t kRows = int64_t{1} << 21, kExtent = int64_t{1} << 30;
  if (p.m > kRows) return concat("m is ", p.m, "; matmul_gpu takes up to ", kRows);
  if (p.n > kExtent || p.k > kExtent) {
    return concat("N is ", p.n, " and K ", p.k, "; matmul_gpu takes up to ", kExtent);
  }
  return gemm::refuse_gpu_x(x_spec(p));
}

std::string accepts_sm90(const MatmulProblem& p) {
  std::string reason = accepts_gpu(p);
  if (!reason.empty()) return reason;
  const GpuWorkspace w = make_workspace(p, Arch::sm_90a);
  return gemm::refuse_sm90(sm90_problem(p), w.weight, w.x);
}

std::string accepts_sm90_gemv(const MatmulProblem& p) {
  std::string reason = accepts_gpu(p);
  if (!reason.empty()) return reason;
  const GpuWorkspace w = make_workspace(p, Arch::sm_90a);
  return gemm::refuse_sm90_gemv(w.weight, w.x, p.weight, p.scaling, p.m, p.n, p.k);
}

std::string accepts_sm90_small_m(const MatmulProblem& p) {
  std::string reason = accepts_gpu(p);
  if (!reason.empty()) return reason;
  const GpuWorkspace w = make_workspace(p, Arch::sm_90a);
  return gemm::refuse_sm90_small_m(sm90_problem(p), w.weight, w.x);
}

std::string accepts_cublaslt(const MatmulProblem& p) {
  std::string reason = accepts_dense(p);
  if (reason.empty() && scaled_by_blocks(p)) {
    reason = "scales of 1x128 and 128x128; cuBLASLt takes them on Hopper alone";
  }
  return reason;
}

std::string accepts_cublaslt_blocks(const MatmulProblem& p) {
  if (!scaled_by_blocks(p)) return "x and weight are not E4M3 with scales of 1x128 and 128x128";
  if (p.library == MatmulLibrary::automatic && p.m <= kOwnBlockRows) {
    return concat("m is ", p.m, "; with scales of blocks cuBLASLt is asked for more than ",
                  kOwnBlockRows, " rows");
  }
  return accepts_dense(p);
}

bool run_fused_gpu(std::span<const MatmulCall> calls, const MatmulGpu* kernel, Stream& stream) {
  constexpr size_t kMost = gemm::kSm90MaxFused + 1;
  const bool row = kernel == &matmul_sm90_gemv, dozens = kernel == &matmul_sm90_small_m;
  const bool many = kernel == &matmul_sm90;
  if ((!row && !dozens && !many) || calls.size() > kMost) return false;
  const MatmulProblem& p = calls[0].plan->problem;
  gemm::Sm90Problem all_rows = sm90_problem(p);
  all_rows.n = 0;
  gemm::GpuGemm products[kMost];
  const gemm::Sm90GemvNorm norm = row ? norm_of(p, *calls[0].tensors) : gemm::Sm90GemvNorm{};
  if (p.norm && (norm.weight == nullptr || !fits_sm90_gemv(norm))) return false;
  for (size_t i = 0; i < calls.size(); ++i) {
    const MatmulProblem& own = calls[i].plan->problem;
    const auto& w = *static_cast<const GpuWorkspace*>(calls[i].plan->workspace.get());
    gemm::GpuGemm& g = products[i];
    if (own.x != p.x || own.m != p.m || own.weight != p.weight || own.scaled != p.scaled ||
        own.scaling != p.scaling || own.weight_transposed || own.quantize_out ||
        own.norm.has_value() != p.norm.has_value()) {
      return false;
    }
    if (p.norm && norm_of(own, *calls[i].tensors) != norm) return false;
    if (many && !w.x.direct()) return false;
    g = product_of(own, w, *calls[i].tensors);
    w.x.enter(calls[i].tensors->x, own.m, &g, stream);
    if (row && !fits_sm90_gemv(w.weight, g)) return false;
    if (dozens && !fits_sm90_small_m(w.weight, g)) return false;
    all_rows.n += own.n;
    // Each with each: the first may have no bias where two others have them in two formats.
    for (size_t j = 0; j < i; ++j) {
      if (!can_fuse_sm90(products[j], g)) return false;
    }
  }
  const auto& w = *static_cast<const GpuWorkspace*>(calls[0].plan->workspace.get());
  const std::span<const gemm::GpuGemm> all(products, calls.size());
  if (many) {
    return launch_fused_sm90(all_rows, w.weight, w.x, all, calls[0].tensors->x, stream);
  }
  row ? launch_sm90_gemv(w.weight, all, stream, 0, norm)
      : launch_sm90_small_m(w.weight, all, stream);
  return true;
}

const MatmulGpu matmul_gpu = {workspace, run_gpu, describe_gpu};
const MatmulGpu matmul_sm90 = {workspace, run_sm90, describe_sm90};
const MatmulGpu matmul_cublaslt = {workspace_cublaslt, run_cublaslt, describe_cublaslt};
const MatmulGpu matmul_sm90_gemv = {workspace, run_row, describe_row, norms_row};
const MatmulGpu matmul_sm90_small_m = {workspace, run_small_m, describe_small_m};

}  // namespace halftone::dense
