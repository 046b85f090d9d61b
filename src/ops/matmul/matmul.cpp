#include "halftone/matmul.h"

#include <algorithm>

#include "base/format_traits.h"
#include "base/kernel_table.h"
#include "base/message.h"
#include "formats/gpu/kernels.h"
#include "halftone/activation.h"
#include "ops/gemm/cpu/kernel_sets.h"
#include "ops/gemm/cpu/weights.h"
#include "ops/matmul/matmul_gpu.h"
#include "ops/matmul/matmul_run.h"

namespace halftone {

struct MatmulKernel
    : KernelRow<MatmulProblem, CpuOrGpu<const gemm::Kernels*, const dense::MatmulGpu*>> {};

namespace {

gemm::XRows x_rows(const MatmulProblem& p) {
  const bool octets = gemm::octet_order(gemm::code_of(p.weight, p.scaled, p.scaling));
  return {dense::x_spec(p), octets, p.k};
}

std::string accepts_any(const MatmulProblem&) { return ""; }

[[maybe_unused]] std::string accepts_bf16(const MatmulProblem& p) {
  return gemm::refuse_bf16(x_rows(p).packed(), p.weight, p.scaled, p.scaling);
}

std::string accepts_int8(const MatmulProblem& p) {
  if (!x_rows(p).can_use_integers()) return "x is not int8 codes with one scale a row";
  return gemm::refuse_int8(p.weight, p.scaled, p.scaling, p.k);
}

constexpr MatmulKernel kTable[] = {
#if defined(__x86_64__)
    {{"matmul_avx512_bf16_int8", Device::Kind::cpu, CpuLevel::avx512_bf16, accepts_int8,
      &cpu_avx512_bf16::int8_kernels}},
    {{"matmul_avx512_bf16_dot", Device::Kind::cpu, CpuLevel::avx512_bf16, accepts_bf16,
      &cpu_avx512_bf16::bf16_kernels}},
    {{"matmul_avx512_bf16_f32", Device::Kind::cpu, CpuLevel::avx512_bf16, accepts_any,
      &cpu_avx512_bf16::f32_kernels}},
    {{"matmul_avx512_int8", Device::Kind::cpu, CpuLevel::avx512, accepts_int8,
      &cpu_avx512::int8_kernels}},
    {{"matmul_avx512_f32", Device::Kind::cpu, CpuLevel::avx512, accepts_any,
      &cpu_avx512::f32_kernels}},
    {{"matmul_avx2_int8", Device::Kind::cpu, CpuLevel::avx2, accepts_int8,
      &cpu_avx2::int8_kernels}},
    {{"matmul_avx2_f32", Device::Kind::cpu, CpuLevel::avx2, accepts_any, &cpu_avx2::f32_kernels}},
#endif
    {{"matmul_baseline_int8", Device::Kind::cpu, CpuLevel::baseline, accepts_int8,
      &cpu_baseline::int8_kernels}},
    {{"matmul_baseline_f32", Device::Kind::cpu, CpuLevel::baseline, accepts_any,
      &cpu_baseline::f32_kernels}},
    {{"matmul_sm90_gemv", Device::Kind::cuda, CpuLevel::baseline, dense::accepts_sm90_gemv,
      &dense::matmul_sm90_gemv, Arch::sm_90a}},
    {{"matmul_sm90_small_m", Device::Kind::cuda, CpuLevel::baseline, dense::accepts_sm90_small_m,
      &dense::matmul_sm90_small_m, Arch::sm_90a}},
    {{"matmul_cublaslt_blocks", Device::Kind::cuda, CpuLevel::baseline,
      dense::accepts_cublaslt_blocks, &dense::matmul_cublaslt, Arch::sm_90a, false, true}},
    {{"matmul_sm90", Device::Kind::cuda, CpuLevel::baseline, dense::accepts_sm90,
      &dense::matmul_sm90, Arch::sm_90a}},
    {{"matmul_cublaslt", Device::Kind::cuda, CpuLevel::baseline, dense::accepts_cublaslt,
      &dense::matmul_cublaslt, Arch::sm_80, true, true}},
    HALFTONE_GPU_ROW("matmul", dense::accepts_gpu, &dense::matmul_gpu),
};

NormProblem norm_problem(const MatmulProblem& p) {
  NormProblem n;
  n.rows = p.m, n.columns = p.k;
  n.x = p.x, n.weight = p.norm->weight;
  n.eps = p.norm->eps, n.weight_offset = p.norm->weight_offset;
  return n;
}

std::string refuse(const MatmulProblem& p) {
  if (p.m < 0) return concat("m is ", p.m, "; it must not be negative");
  if (p.accumulate != Format::f32 &&
      (p.accumulate != Format::f16 || p.x != Format::f16 || p.weight != Format::f16)) {
    return concat("accumulate is ", name(p.accumulate), ", x ", name(p.x), " and weight ",
                  name(p.weight), "; it must be f32, or f16 for products of f16 by f16");
  }
  if (p.tf32 && (p.x != Format::f32 || p.weight != Format::f32)) {
    return concat("tf32 is set, x is ", name(p.x), " and weight ", name(p.weight),
                  "; it is a way to multiply f32 by f32");
  }
  if (p.weight_transposed && (!is_plain_float(p.weight) || p.scaled)) {
    return concat("weight is ", name(p.weight), p.scaled ? " with scales" : "",
                  " and transposed; that must be f32, f16 or bf16");
  }
  std::string reason = dense::refuse_output(p);
  if (reason.empty()) {
    reason = gemm::refuse_weight(p.weight, p.scaled, p.scaling, dense::weight_rows(p), p.k);
  }
  if (reason.empty()) reason = gemm::refuse_x(dense::x_spec(p), p.k);
  if (reason.empty() && p.norm) reason = can_run(norm_problem(p), Device::cpu()).reason;
  if (reason.empty()) reason = dense::refuse_gated(p);
  if (reason.empty()) {  // the parameters of the functions
    ActivationProblem function;
    function.shape = {1};
    function.function = p.activation;
    reason = can_run(function, Device::cpu()).reason;
    if (p.gated) reason = can_run(GatedProblem{1, 1, Format::f32, *p.gated}, Device::cpu()).reason;
  }
  return reason;
}

// The kernel of a plan, or why there is none.
const MatmulKernel* find(const MatmulProblem& p, const Device& device, std::string* reason) {
  *reason = refuse(p);
  if (!reason->empty()) return nullptr;
  if (p.library != MatmulLibrary::cublaslt) {
    return choose<MatmulKernel>(kTable, p, device, reason);
  }
  if (device.kind() != Device::Kind::cuda) {
    *reason = concat("library is cublaslt, device ", device.name(), "; it needs a CUDA device");
    return nullptr;
  }
  for (const MatmulKernel& k : kTable) {
    if (k.function.gpu != &dense::matmul_cublaslt) continue;
    if (k.later ? k.arch > device.arch() : k.arch != device.arch()) continue;
    *reason = k.accepts(p);
    if (reason->empty()) return &k;
  }
  if (reason->empty()) *reason = concat("library is cublaslt, ", device.name(), " before sm_80");
  return nullptr;
}

MatmulProblem problem_of(const Tensor& x, const Tensor& weight, const MatmulOptions& o) {
  require(x.defined() && x.rank() >= 1, "x is undefined or has no dimension; it must be [..., K]");
  require(weight.defined() && weight.rank() == 2, "weight ", shown(weight.shape()),
          " must have two dimensions, [N, K]");
  MatmulProblem p;
  p.k = x.size(-1);
  p.weight_transposed = o.weight_transposed;
  require(weight.size(p.weight_transposed ? 0 : 1) == p.k, "x ", shown(x.shape()), " and weight ",
          shown(weight.shape()), " differ in K, the last dimension of x and the ",
          p.weight_transposed ? "first of a transposed weight" : "last of weight");
  p.m = p.k > 0 ? x.numel() / p.k : 0;
  p.n = weight.size(p.weight_transposed ? 1 : 0);
  p.separate_up = o.up.defined();
  if (o.gated && !p.separate_up) {
    require(p.n % 2 == 0, "weight ", shown(weight.shape()), " has an odd number of rows; a gated ",
            "product has as many of the gate as of the other half");
    p.n /= 2;
  }
  p.x = x.format();
  p.x_scaled = x.has_scales();
  if (p.x_scaled) p.x_scaling = x.scaling();
  p.weight = weight.format();
  p.scaled = weight.has_scales();
  if (p.scaled) p.scaling = weight.scaling();
  const Format plain = is_plain_float(p.x) ? p.x : Format::bf16;
  p.out = o.quantize_out ? o.quantize_out->format : o.out.value_or(plain);
  p.bias = o.bias.defined();
  p.residual = o.residual.defined();
  if (o.norm.defined()) p.norm = MatmulNorm{o.norm_eps, o.norm.format()};
  p.quantize_x = o.quantize_x, p.quantize_out = o.quantize_out;
  p.accumulate = o.accumulate, p.tf32 = o.tf32, p.library = o.library;
  p.activation = o.activation, p.gated = o.gated, p.interleaved = o.interleaved;
  return p;
}

void check_device(const Tensor& t, const char* what, const Device& device) {
  if (!t.defined() || t.device() == device) return;
  fail(ErrorCode::invalid_argument, what, " is on ", t.device().name(), "; the plan runs on ",
       device.name());
}

void check_matrix(const Tensor& t, const char* what, int64_t rows, int64_t columns, Format format,
                  const Device& device) {
  require(t.defined(), what, " is undefined");
  check_device(t, what, device);
  if (t.has_scales()) {
    check_device(t.scales(), what, device);
    check_device(t.zero_points(), what, device);
    check_device(t.tensor_scale(), what, device);
  }
  require(t.rank() == 2 && t.size(0) == rows && t.size(1) == columns, what, " is ",
          shown(t.shape()), "; the plan needs [", rows, ", ", columns, "]");
  require(t.format() == format, what, " is ", name(t.format()), "; the plan needs ", name(format));
  require(t.stride(1) == 1 || columns == 1 || rows == 0, what, " has strides ", shown(t.strides()),
          "; its last dimension must be contiguous");
}

// Of tensors with the same kind of scales, or without.
bool lies_alike(const Tensor& a, const Tensor& b) {
  const auto same = [](const Tensor& left, const Tensor& right) {
    return left.defined() == right.defined() &&
           (!left.defined() || left.strides() == right.strides());
  };
  return same(a, b) && (!a.has_scales() ||
                        (same(a.scales(), b.scales()) && same(a.zero_points(), b.zero_points())));
}

void check(const MatmulProblem& p, const MatmulTensors& t, const Device& device) {
  check_matrix(t.x, "x", p.m, p.k, p.x, device);
  const int64_t weight_rows = dense::weight_rows(p);
  check_matrix(t.weight, "weight", p.weight_transposed ? p.k : weight_rows,
               p.weight_transposed ? weight_rows : p.k, p.weight, device);
  if (p.separate_up) check_matrix(t.up, "up", p.n, p.k, p.weight, device);
  check_matrix(t.out, "out", p.m, p.n, p.out, device);
  require(t.x.has_scales() == p.x_scaled && (!p.x_scaled || t.x.scaling() == p.x_scaling), "x is ",
          shown(t.x), "; the plan was made for other scales");
  require(t.x.stride(0) % elements_of_unit(p.x) == 0 || p.m <= 1, "x has strides ",
          shown(t.x.strides()), "; rows must start at whole bytes");
  require(t.weight.has_scales() == p.scaled && (!p.scaled || t.weight.scaling() == p.scaling),
          "weight is ", shown(t.weight), "; the plan was made for other scales");
  require(p.separate_up == t.up.defined(), "up is ", shown(t.up), "; the plan was made ",
          p.separate_up ? "for one" : "without one");
  require(!p.separate_up ||
              (t.up.has_scales() == p.scaled && (!p.scaled || t.up.scaling() == p.scaling)),
          "up is ", shown(t.up), "; the plan was made for other scales");
  require(!p.separate_up || lies_alike(t.up, t.weight), "up has strides ", shown(t.up.strides()),
          " or those of its scales, weight ", shown(t.weight.strides()),
          "; the halves of a gate must lie alike");
  require(p.m == 0 || t.out.data() != t.x.data(), "out is x itself; give it storage of its own");
  require(p.norm.has_value() == t.norm.defined(), "norm is ", shown(t.norm), "; the plan was made ",
          p.norm ? "for one" : "without one");
  if (p.norm) {
    require(t.norm.rank() == 1 && t.norm.size(0) == p.k && t.norm.format() == p.norm->weight &&
                (t.norm.stride(0) == 1 || p.k == 1),
            "norm is ", shown(t.norm), "; the plan needs ", name(p.norm->weight), " [", p.k,
            "], contiguous");
    check_device(t.norm, "norm", device);
  }
  if (p.quantize_out) {
    const QuantizeOptions& q = *p.quantize_out;
    require(t.out.has_scales() && t.out.scaling() == q.scaling && t.out.contiguous() &&
                t.out.scales().contiguous(),
            "out is ", shown(t.out), "; the plan needs ", name(q.format), " with ",
            to_string(q.scaling), " scales, row-major: see empty_quantized");
    require(!has_tensor_scale(q.format) || t.out.tensor_scale().defined(),
            "out has no tensor scale; nvfp4 needs one, see empty_quantized");
  }
  if (p.bias) {
    const int64_t rows = p.gated ? 2 * p.n : p.n;
    require(t.bias.defined() && t.bias.numel() == rows && t.bias.rank() == 1, "bias is ",
            shown(t.bias.shape()), "; the plan needs [", rows, "]");
    require(t.bias.format() == Format::f32 || t.bias.format() == p.out ||
                (p.quantize_out && is_plain_float(t.bias.format())),
            "bias is ", name(t.bias.format()), "; it must be f32 or the format of out, ",
            name(p.out));
    check_device(t.bias, "bias", device);
    require(t.bias.stride(0) == 1 || rows == 1, "bias has stride ", t.bias.stride(0),
            "; it must be contiguous");
  } else {
    require(!t.bias.defined(), "bias is given; the plan was made without one");
  }
  if (p.residual) {
    const Format format = t.residual.defined() ? t.residual.format() : p.out;
    const bool any = p.quantize_out && is_plain_float(format);
    check_matrix(t.residual, "residual", p.m, p.n, any ? format : p.out, device);
  } else {
    require(!t.residual.defined(), "residual is given; the plan was made without one");
  }
}

}  // namespace

std::string describe(const MatmulPlan& plan) {
  const MatmulProblem& p = plan.problem;
  const auto* cpu = plan.kernel->function.cpu;
  const auto scales = [](bool scaled, const Scaling& scaling) {
    return scaled ? " (" + to_string(scaling) + " scales)" : "";
  };
  return concat(
      plan.kernel->name, ": [", p.m, ", ", p.k, "] ", name(p.x), scales(p.x_scaled, p.x_scaling),
      p.norm ? " normalised" : "", p.quantize_x ? " as " + to_string(*p.quantize_x) : "", " x [",
      dense::weight_rows(p), ", ", p.k, "] ", name(p.weight), scales(p.scaled, p.scaling),
      p.weight_transposed ? " transposed" : "", " -> ",
      p.quantize_out ? to_string(*p.quantize_out) : name(p.out), p.bias ? " + bias" : "",
      p.activation.kind != Activation::identity ? concat(", ", name(p.activation.kind)) : "",
      p.gated ? concat(", gated by ", name(p.gated->function.kind),
                       p.separate_up ? ", separate up" : "")
              : "",
      p.residual ? " + residual" : "",
      cpu == nullptr ? ", " + plan.kernel->function.gpu->describe(p, plan.device)
                     : concat(p.m == 1 ? ", streams W" : concat(", tiles of 3x", cpu->tile_columns),
                              ", blocks of ", cpu->chunk * cpu->block_chunks, " of K"),
      ", workspace ", plan.workspace_bytes, " bytes");
}

Support can_run(const MatmulProblem& problem, const Device& device) {
  std::string reason;
  const bool ok = find(problem, device, &reason) != nullptr;
  return {ok, ok ? "" : reason};
}

namespace {

MatmulPlan plan_without_cublaslt(const MatmulProblem& problem, const Device& device) {
  if (problem.library == MatmulLibrary::cublaslt) {
    fail(ErrorCode::unsupported, "library is cublaslt, which has no algorithm for [", problem.m,
         ", ", problem.k, "] ", name(problem.x), " x [", problem.n, ", ", problem.k, "] on ",
         device.name());
  }
  MatmulProblem own = problem;
  own.library = MatmulLibrary::halftone;
  return plan(own, device);
}

}  // namespace

MatmulPlan plan(const MatmulProblem& problem, const Device& device) {
  std::string reason;
  MatmulPlan plan;
  plan.problem = problem;
  plan.device = device;
  plan.kernel = find(problem, device, &reason);
  if (plan.kernel == nullptr) throw Error(ErrorCode::unsupported, reason);
  if (problem.weight_transposed) {
    plan.turned = Tensor::empty({dense::weight_rows(problem), problem.k}, problem.weight, device);
  }
  if (problem.norm) {
    plan.norm = halftone::plan(norm_problem(problem), device);
    plan.normed = Tensor::empty({problem.m, problem.k}, problem.x, device);
  }
  int64_t own = 0;
  for (const Tensor* t : {&plan.turned, &plan.normed}) own += t->defined() ? t->bytes() : 0;
  if (const dense::MatmulGpu* gpu = plan.kernel->function.gpu) {
    plan.workspace = gpu->workspace(problem, device, &plan.workspace_bytes);
    if (plan.workspace == nullptr) return plan_without_cublaslt(problem, device);
    plan.workspace_bytes += own;
    return plan;
  }
  auto w = std::make_shared<dense::Workspace>();
  dense::prepare(problem, *plan.kernel->function.cpu, w.get());
  plan.workspace_bytes = dense::bytes(*w) + own;
  plan.workspace = std::move(w);
  return plan;
}

namespace {

void check_run(const MatmulPlan& plan, const MatmulTensors& t, const Stream& stream) {
  require(plan.kernel != nullptr, "the plan is empty; make it with plan()");
  require(stream.device() == plan.device, "stream is on ", stream.device().name(),
          "; the plan runs on ", plan.device.name());
  check(plan.problem, t, plan.device);
}

}  // namespace

bool run_fused(std::span<const MatmulCall> calls, Stream& stream) {
  for (const MatmulCall& call : calls) check_run(*call.plan, *call.tensors, stream);
  if (calls.empty()) return false;
  const dense::MatmulGpu* kernel = calls[0].plan->kernel->function.gpu;
  const bool one = std::all_of(calls.begin(), calls.end(), [&](const MatmulCall& call) {
    return call.plan->kernel->function.gpu == kernel;
  });
  return kernel != nullptr && one && dense::run_fused_gpu(calls, kernel, stream);
}

namespace {

bool normalises(const MatmulKernel& kernel, const MatmulProblem& p) {
  const dense::MatmulGpu* gpu = kernel.function.gpu;
  return gpu != nullptr && gpu->norms != nullptr && gpu->norms(p);
}

}  // namespace

bool normalises(const MatmulProblem& p, const Device& device) {
  std::string reason;
  const MatmulKernel* kernel = find(p, device, &reason);
  return kernel != nullptr && normalises(*kernel, p);
}

void run(const MatmulPlan& plan, const MatmulTensors& given, Stream& stream) {
  const MatmulProblem& p = plan.problem;
  check_run(plan, given, stream);
  if (p.m == 0) return;
  const dense::MatmulGpu* gpu = plan.kernel->function.gpu;
  const MatmulTensors t =
      p.norm && !normalises(*plan.kernel, p) ? dense::normalised(plan, given, stream) : given;
  if (gpu != nullptr) return gpu->run(plan, t, stream);
  const auto multiply = [&](const MatmulTensors& as_rows) {
    dense::run_panels(p, *plan.kernel->function.cpu, as_rows,
                      static_cast<dense::Workspace*>(plan.workspace.get()), stream.pool());
  };
  p.weight_transposed ? multiply(dense::turned(plan, t, stream)) : multiply(t);
}

Tensor matmul(const Tensor& x, const Tensor& weight, Stream& stream) {
  return matmul(x, weight, MatmulOptions{}, stream);
}

Tensor matmul(const Tensor& x, const Tensor& weight, Format out, Stream& stream) {
  MatmulOptions options;
  options.out = out;
  return matmul(x, weight, options, stream);
}

Tensor matmul(const Tensor& x, const Tensor& weight, const MatmulOptions& options, Stream& stream) {
  const MatmulProblem problem = problem_of(x, weight, options);
  const MatmulPlan made = plan(problem, x.device());
  Shape shape = x.shape();
  shape[x.rank() - 1] = problem.n;
  MatmulTensors tensors;
  tensors.up = options.up, tensors.norm = options.norm;
  if (x.rank() == 2 && x.stride(1) == 1) {
    tensors.x = x;
  } else if (x.has_scales()) {
    require(x.rank() == 2, "x ", shown(x.shape()),
            " is quantised; it must have two dimensions, [M, K]");
    tensors.x = x;
  } else {
    tensors.x = x.contiguous_copy().reshape({problem.m, problem.k});
  }
  tensors.weight = weight;
  tensors.bias = options.bias;
  if (options.residual.defined()) {
    tensors.residual = options.residual.rank() == 2
                           ? options.residual
                           : options.residual.reshape({problem.m, problem.n});
  }
  if (problem.quantize_out) {
    require(x.rank() == 2, "x ", shown(x.shape()),
            " must have two dimensions, [M, K], when the output is quantised");
    QuantizeOptions room = *problem.quantize_out;
    if (!has_tensor_scale(room.format)) room.tensor_scale.reset();
    tensors.out = empty_quantized({problem.m, problem.n}, room, x.device());
    run(made, tensors, stream);
    return tensors.out;
  }
  const Tensor result = Tensor::empty(shape, problem.out, x.device());
  tensors.out = result.reshape({problem.m, problem.n});
  run(made, tensors, stream);
  return result;
}

}  // namespace halftone
