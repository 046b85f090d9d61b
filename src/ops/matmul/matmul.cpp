#include "halftone/matmul.h"

#include <algorithm>

#include "base/kernel_table.h"
#include "base/message.h"
#include "ops/product/kernel_sets.h"
#include "ops/product/run.h"
#include "ops/product/weights.h"

namespace halftone {

struct MatmulKernel : KernelRow<MatmulProblem, const product::Kernels*> {};

namespace {

std::string accepts_any(const MatmulProblem&) { return ""; }

[[maybe_unused]] std::string accepts_bf16(const MatmulProblem& p) {
  return product::refuse_bf16(p.x, p.weight, p.scaled, p.scaling);
}

constexpr MatmulKernel kTable[] = {
#if defined(__x86_64__)
    {{"matmul_avx512_bf16_dot", Device::Kind::cpu, CpuLevel::avx512_bf16, accepts_bf16,
      &cpu_avx512_bf16::bf16_kernels}},
    {{"matmul_avx512_bf16_f32", Device::Kind::cpu, CpuLevel::avx512_bf16, accepts_any,
      &cpu_avx512_bf16::f32_kernels}},
    {{"matmul_avx512_f32", Device::Kind::cpu, CpuLevel::avx512, accepts_any,
      &cpu_avx512::f32_kernels}},
    {{"matmul_avx2_f32", Device::Kind::cpu, CpuLevel::avx2, accepts_any, &cpu_avx2::f32_kernels}},
#endif
    {{"matmul_baseline_f32", Device::Kind::cpu, CpuLevel::baseline, accepts_any,
      &cpu_baseline::f32_kernels}},
};

std::string refuse(const MatmulProblem& p) {
  if (p.m < 0) return concat("m is ", p.m, "; it must not be negative");
  if (!is_plain_float(p.x)) return concat("x is ", name(p.x), "; it must be f32, f16 or bf16");
  if (!is_plain_float(p.out))
    return concat("out is ", name(p.out), "; it must be f32, f16 or bf16");
  return product::refuse_weight(p.weight, p.scaled, p.scaling, p.n, p.k);
}

MatmulProblem problem_of(const Tensor& x, const Tensor& weight, Format out) {
  require(x.defined() && x.rank() >= 1, "x is undefined or has no dimension; it must be [..., K]");
  require(weight.defined() && weight.rank() == 2, "weight ", shown(weight.shape()),
          " must have two dimensions, [N, K]");
  MatmulProblem p;
  p.k = x.size(-1);
  require(weight.size(1) == p.k, "x ", shown(x.shape()), " and weight ", shown(weight.shape()),
          " differ in their last dimension, K");
  p.m = p.k > 0 ? x.numel() / p.k : 0;
  p.n = weight.size(0);
  p.x = x.format();
  p.weight = weight.format();
  p.scaled = weight.has_scales();
  if (p.scaled) p.scaling = weight.scaling();
  p.out = out;
  return p;
}

void check_matrix(const Tensor& t, const char* what, int64_t rows, int64_t columns, Format format) {
  require(t.defined(), what, " is undefined");
  require(t.device().is_cpu(), what, " is on ", t.device().name(), "; the plan runs on cpu");
  require(t.rank() == 2 && t.size(0) == rows && t.size(1) == columns, what, " is ",
          shown(t.shape()), "; the plan needs [", rows, ", ", columns, "]");
  require(t.format() == format, what, " is ", name(t.format()), "; the plan needs ", name(format));
  require(t.stride(1) == 1 || columns == 1 || rows == 0, what, " has strides ", shown(t.strides()),
          "; its last dimension must be contiguous");
}

void check(const MatmulProblem& p, const MatmulTensors& t) {
  check_matrix(t.x, "x", p.m, p.k, p.x);
  check_matrix(t.weight, "weight", p.n, p.k, p.weight);
  check_matrix(t.out, "out", p.m, p.n, p.out);
  require(t.weight.has_scales() == p.scaled && (!p.scaled || t.weight.scaling() == p.scaling),
          "weight is ", shown(t.weight), "; the plan was made for other scales");
  require(p.m == 0 || t.out.data() != t.x.data(), "out is x itself; give it storage of its own");
  if (p.bias) {
    require(t.bias.defined() && t.bias.numel() == p.n && t.bias.rank() == 1, "bias is ",
            shown(t.bias.shape()), "; the plan needs [", p.n, "]");
    require(t.bias.format() == Format::f32 || t.bias.format() == p.out, "bias is ",
            name(t.bias.format()), "; it must be f32 or the format of out, ", name(p.out));
    require(t.bias.stride(0) == 1 || p.n == 1, "bias has stride ", t.bias.stride(0),
            "; it must be contiguous");
  } else {
    require(!t.bias.defined(), "bias is given; the plan was made without one");
  }
  if (p.residual) {
    check_matrix(t.residual, "residual", p.m, p.n, p.out);
  } else {
    require(!t.residual.defined(), "residual is given; the plan was made without one");
  }
}

}  // namespace

std::string describe(const MatmulPlan& plan) {
  const MatmulProblem& p = plan.problem;
  const product::Kernels& k = *plan.kernel->function;
  return concat(plan.kernel->name, ": [", p.m, ", ", p.k, "] ", name(p.x), " x [", p.n, ", ", p.k,
                "] ", name(p.weight), p.scaled ? " (" + to_string(p.scaling) + " scales)" : "",
                " -> ", name(p.out), p.bias ? " + bias" : "", p.residual ? " + residual" : "",
                p.m == 1 ? ", streams W" : concat(", tiles of 3x", k.tile_columns), ", blocks of ",
                k.chunk * k.block_chunks, " of K, workspace ", plan.workspace_bytes, " bytes");
}

Support can_run(const MatmulProblem& problem, const Device& device) {
  std::string reason = refuse(problem);
  if (reason.empty()) {
    if (choose<MatmulKernel>(kTable, problem, device, &reason) != nullptr) reason.clear();
  }
  return {reason.empty(), reason};
}

MatmulPlan plan(const MatmulProblem& problem, const Device& device) {
  std::string reason = refuse(problem);
  if (!reason.empty()) throw Error(ErrorCode::unsupported, reason);
  MatmulPlan plan;
  plan.problem = problem;
  plan.device = device;
  plan.kernel = choose<MatmulKernel>(kTable, problem, device, &reason);
  if (plan.kernel == nullptr) throw Error(ErrorCode::unsupported, reason);
  plan.workspace_bytes = product::panel_bytes(*plan.kernel->function,
                                              std::min(problem.m, product::kPanelRows), problem.k);
  if (plan.workspace_bytes > 0) {
    const Tensor bytes = Tensor::empty({plan.workspace_bytes}, Format::u8);
    plan.workspace = std::shared_ptr<void>(std::make_shared<Tensor>(bytes), bytes.data());
  }
  return plan;
}

void run(const MatmulPlan& plan, const MatmulTensors& t, Stream& stream) {
  require(plan.kernel != nullptr, "the plan is empty; make it with plan()");
  const MatmulProblem& p = plan.problem;
  check(p, t);
  if (p.m == 0) return;
  const product::Kernels& kernels = *plan.kernel->function;
  const product::Weights weights = product::view_of(t.weight, "weight");
  const bool octets = product::octet_order(weights.code);
  const int64_t x_size = bits(p.x) / 8, out_size = bits(p.out) / 8;
  const int64_t x_row = t.x.stride(0) * x_size;
  for (int64_t m0 = 0; m0 < p.m; m0 += product::kPanelRows) {
    product::Job job;
    job.weights = &weights;
    job.m = std::min(product::kPanelRows, p.m - m0);
    job.x = plan.workspace.get();
    const char* x = t.x.data<char>() + m0 * x_row;
    product::parallel(stream.pool(), job.m, 4, job.m * p.k * 4, [&](int64_t begin, int64_t end) {
      for (int64_t m = begin; m < end; ++m) {
        product::pack_panel_row(kernels, x + m * x_row, p.x, octets, p.k, m, job.m,
                                plan.workspace.get());
      }
    });
    job.out_format = p.out;
    job.out_row = t.out.stride(0) * out_size;
    job.out = t.out.data<char>() + m0 * job.out_row;
    if (p.residual) {
      job.residual_row = t.residual.stride(0) * out_size;
      job.residual = t.residual.data<char>() + m0 * job.residual_row;
    }
    if (p.bias) {
      job.bias = t.bias.data();
      job.bias_format = t.bias.format();
    }
    product::run_jobs(kernels, {&job, 1}, stream.pool());
  }
}

Tensor matmul(const Tensor& x, const Tensor& weight, Stream& stream) {
  return matmul(x, weight, x.format(), stream);
}

Tensor matmul(const Tensor& x, const Tensor& weight, Format out, Stream& stream) {
  const MatmulProblem problem = problem_of(x, weight, out);
  Shape shape = x.shape();
  shape[x.rank() - 1] = problem.n;
  const Tensor result = Tensor::empty(shape, out);
  MatmulTensors tensors;
  tensors.x = x.rank() == 2 ? x : x.contiguous_copy().reshape({problem.m, problem.k});
  if (tensors.x.stride(1) != 1) tensors.x = tensors.x.contiguous_copy();
  tensors.weight = weight;
  tensors.out = result.reshape({problem.m, problem.n});
  run(plan(problem, Device::cpu()), tensors, stream);
  return result;
}

}  // namespace halftone
