#include "halftone/matmul.h"

#include <algorithm>

#include "base/format_traits.h"
#include "base/message.h"
#include "formats/gpu/kernels.h"
#include "halftone/activation.h"
#include "ops/gemm/cpu/weights.h"
#include "ops/matmul/cublaslt.h"
#include "ops/matmul/matmul_gpu.h"
#include "ops/matmul/matmul_run.h"

namespace halftone {

namespace {

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

// The kernel of a plan; without a name, and with the reason, where there is none. `without`: why
// cuBLASLt cannot be it, where that is known already.
gemm::GemmChoice find(const MatmulProblem& p, const Device& device,
                      const std::string& without = {}) {
  gemm::GemmChoice choice;
  choice.reason = refuse(p);
  if (!choice.reason.empty()) return choice;
  if (p.library == MatmulLibrary::cublaslt && device.kind() != Device::Kind::cuda) {
    choice.reason =
        concat("library is cublaslt, device ", device.name(), "; it needs a CUDA device");
    return choice;
  }
  const gemm::GemmProblem problem = dense::gemm_problem(p);
  gemm::GemmDevice d = gemm::gemm_device(device);
  d.cublaslt_available = without.empty(), d.cublaslt_missing = without;
  choice = dispatch(problem, d, kernel_trace != nullptr);
  // The library is looked for where it is asked for.
  if (choice.kernel == gemm::GemmKernel::gemm_cublaslt && !dense::cublaslt_missing().empty()) {
    d.cublaslt_available = false, d.cublaslt_missing = dense::cublaslt_missing();
    choice = dispatch(problem, d, kernel_trace != nullptr);
  }
  if (kernel_trace != nullptr) {
    kernel_trace->insert(kernel_trace->end(), choice.trace.begin(), choice.trace.end());
  }
  return choice;
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
  p.batch_invariant = o.batch_invariant;
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
  require(plan.kernel != nullptr, "the plan is empty; make it with plan()");
  const MatmulProblem& p = plan.problem;
  const gemm::GemmChoice& choice = plan.kernel->choice;
  const gemm::Kernels* cpu = choice.cpu;
  const auto scales = [](bool scaled, const Scaling& scaling) {
    return scaled ? " (" + to_string(scaling) + " scales)" : "";
  };
  return concat(
      choice.name, ": [", p.m, ", ", p.k, "] ", name(p.x), scales(p.x_scaled, p.x_scaling),
      p.norm ? " normalised" : "", p.quantize_x ? " as " + to_string(*p.quantize_x) : "", " x [",
      dense::weight_rows(p), ", ", p.k, "] ", name(p.weight), scales(p.scaled, p.scaling),
      p.weight_transposed ? " transposed" : "", " -> ",
      p.quantize_out ? to_string(*p.quantize_out) : name(p.out), p.bias ? " + bias" : "",
      p.activation.kind != Activation::identity ? concat(", ", name(p.activation.kind)) : "",
      p.gated ? concat(", gated by ", name(p.gated->function.kind),
                       p.separate_up ? ", separate up" : "")
              : "",
      p.residual ? " + residual" : "",
      cpu == nullptr ? ", " + choice.tile
                     : concat(p.m == 1 ? ", streams W" : concat(", tiles of 3x", cpu->tile_columns),
                              ", blocks of ", cpu->chunk * cpu->block_chunks, " of K"),
      ", workspace ", plan.workspace_bytes, " bytes");
}

OperandAlignment alignment_of(const MatmulTensors& t) {
  OperandAlignment a;
  if (!t.x.defined() || !t.weight.defined() || t.x.device().is_cpu()) return a;
  a.x = gemm::rows_alignment(t.x);
  const Tensor matrices[] = {t.weight, t.up};
  gemm::set_weight_alignment(std::span(matrices, t.up.defined() ? 2 : 1), &a);
  if (t.out.defined()) a.out = gemm::rows_alignment(t.out);
  a.residual = gemm::rows_alignment(t.residual);
  a.norm = gemm::storage_alignment(t.norm);
  const auto disjoint = [](const Tensor& m) {
    return !m.defined() || m.size(0) <= 1 || m.stride(0) >= m.size(1);
  };
  // Scales of blocks may lie anyhow: what does not lie right is copied.
  const auto scaled = [](const Tensor& m, const Scaling& blocks) {
    return !m.has_scales() ||
           (!m.tensor_scale().defined() &&
            (m.scaling() == blocks ||
             (m.scales().contiguous() && gemm::storage_alignment(m.scales()) == 16)));
  };
  a.cublaslt = disjoint(t.x) && disjoint(t.weight) && disjoint(t.out) &&
               scaled(t.x, {Format::f32, 1, 128}) && scaled(t.weight, {Format::f32, 128, 128}) &&
               (!t.residual.defined() || !t.out.defined() ||
                (t.residual.format() == t.out.format() && t.residual.stride(0) == t.out.stride(0)));
  return a;
}

Support can_run(const MatmulProblem& problem, const Device& device) {
  const gemm::GemmChoice choice = find(problem, device);
  return {choice.name != nullptr, choice.reason};
}

MatmulPlan plan(const MatmulProblem& problem, const Device& device) {
  MatmulPlan plan;
  plan.problem = problem;
  plan.device = device;
  auto kernel = std::make_shared<MatmulKernel>();
  kernel->choice = find(problem, device);
  if (kernel->choice.kernel == gemm::GemmKernel::gemm_cublaslt) {
    plan.workspace =
        dense::workspace_cublaslt(problem, device, kernel->choice, &plan.workspace_bytes);
    if (plan.workspace == nullptr) {
      kernel->choice =
          find(problem, device,
               concat("cuBLASLt has no algorithm for [", problem.m, ", ", problem.k, "] ",
                      name(problem.x), " x [", problem.n, ", ", problem.k, "] on ", device.name()));
    }
  }
  if (kernel->choice.name == nullptr) throw Error(ErrorCode::unsupported, kernel->choice.reason);
  if (problem.weight_transposed && !kernel->choice.transposed) {
    plan.turned = Tensor::empty({dense::weight_rows(problem), problem.k}, problem.weight, device);
  }
  if (problem.norm) {
    plan.norm = halftone::plan(norm_problem(problem), device);
    plan.normed = Tensor::empty({problem.m, problem.k}, problem.x, device);
  }
  for (const Tensor* t : {&plan.turned, &plan.normed}) {
    plan.workspace_bytes += t->defined() ? t->bytes() : 0;
  }
  if (kernel->choice.cpu == nullptr && plan.workspace == nullptr) {
    int64_t bytes = 0;
    plan.workspace = dense::workspace_gpu(problem, device, kernel->choice, &bytes);
    plan.workspace_bytes += bytes;
  } else if (kernel->choice.cpu != nullptr) {
    auto w = std::make_shared<dense::Workspace>();
    dense::prepare(problem, *kernel->choice.cpu, w.get());
    plan.workspace_bytes += dense::bytes(*w);
    plan.workspace = std::move(w);
  }
  plan.kernel = std::move(kernel);
  return plan;
}

namespace {

void check_run(const MatmulPlan& plan, const MatmulTensors& t, const Stream& stream) {
  require(plan.kernel != nullptr, "the plan is empty; make it with plan()");
  require(stream.device() == plan.device, "stream is on ", stream.device().name(),
          "; the plan runs on ", plan.device.name());
  check(plan.problem, t, plan.device);
  if (plan.device.is_cpu() || plan.problem.m == 0) return;
  check_alignment(plan.kernel->choice, dense::gemm_problem(plan.problem),
                  dense::alignment_at_kernel(plan, t), "MatmulProblem::alignment");
}

}  // namespace

bool run_fused(std::span<const MatmulCall> calls, Stream& stream) {
  for (const MatmulCall& call : calls) check_run(*call.plan, *call.tensors, stream);
  if (calls.empty()) return false;
  const gemm::GemmChoice& first = calls[0].plan->kernel->choice;
  const bool one = std::all_of(calls.begin(), calls.end(), [&](const MatmulCall& call) {
    return call.plan->kernel->choice.kernel == first.kernel;
  });
  return first.cpu == nullptr && one && dense::run_fused_gpu(calls, stream);
}

bool normalises(const MatmulProblem& p, const Device& device) {
  const gemm::GemmChoice choice = find(p, device);
  return choice.name != nullptr && choice.normalises && p.norm;
}

void run(const MatmulPlan& plan, const MatmulTensors& given, Stream& stream) {
  const MatmulProblem& p = plan.problem;
  check_run(plan, given, stream);
  if (p.m == 0) return;
  const gemm::GemmChoice& choice = plan.kernel->choice;
  MatmulTensors t = p.norm && !choice.normalises ? dense::normalised(plan, given, stream) : given;
  if (plan.turned.defined()) t = dense::turned(plan, t, stream);
  if (choice.cpu == nullptr) return dense::run_gpu(plan, t, stream);
  dense::run_panels(p, *choice.cpu, t, static_cast<dense::Workspace*>(plan.workspace.get()),
                    stream.pool());
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
  MatmulProblem problem = problem_of(x, weight, options);
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
    problem.alignment = alignment_of(tensors);
    run(plan(problem, x.device()), tensors, stream);
    return tensors.out;
  }
  const Tensor result = Tensor::empty(shape, problem.out, x.device());
  tensors.out = result.reshape({problem.m, problem.n});
  problem.alignment = alignment_of(tensors);
  run(plan(problem, x.device()), tensors, stream);
  return result;
}

}  // namespace halftone
