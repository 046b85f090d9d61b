// Matrix product with weights in any format: y = x W^T (+ bias) (+ residual).
#pragma once
#include <memory>

#include "halftone/error.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

struct MatmulProblem {
  int64_t m = 0, n = 0, k = 0;   // m may be 0
  Format x = Format::bf16;       // activations [M, K]: f32, f16, bf16
  Format weight = Format::bf16;  // [N, K]; any format but i32, i64, u8, ue8m0
  Scaling scaling;               // of the weight, when it has scales: linear layout, any block
  bool scaled = false;           // whether the weight has scales
  Format out = Format::bf16;     // [M, N]: f32, f16, bf16
  bool bias = false;             // f32 or the format of out, [N]
  bool residual = false;         // the format of out, [M, N]; may be the output itself
};

// Rows of x, weight, out and residual may lie any stride apart; their elements are contiguous.
struct MatmulTensors {
  Tensor x, weight, out, bias, residual;
};

// What runs, chosen by a pure function of the problem, the device and the CPU level; `describe`
// prints it. Weights stay in checkpoint layout: a plan holds no copy of them, only packed rows of
// x. A plan is used by one run at a time; threads that run at the same time have a plan each.
struct MatmulKernel;
struct MatmulPlan {
  MatmulProblem problem;
  Device device;
  const MatmulKernel* kernel = nullptr;
  int64_t workspace_bytes = 0;  // owned by the plan
  std::shared_ptr<void> workspace;
};
std::string describe(const MatmulPlan&);

Support can_run(const MatmulProblem&, const Device&);
MatmulPlan plan(const MatmulProblem&, const Device&);
// out = ((x W^T) * scale of the row and tensor + bias) + residual, each step in f32, rounded once.
//
// Precision. Weights of 8 bits or fewer are expanded exactly; scales within a row multiply the f32
// sum of their group, never the code. f32 and f16 activations, and f32 and f16 weights, use f32
// fused multiply-adds (the baseline level rounds product and sum). bf16 activations with weights
// that are exact in bf16 use the bf16 dot product where the processor has it: the products are
// exact too, but operands and sums below 2^-126 count as 0. Scale blocks whose width is not a
// multiple of 8 multiply the expanded weight in f32. With u = 2^-24 the error is at most
// (81 + K/128) u sum |x_k w_k| before the rounding to `out`, and typically a few u.
//
// Order of sums: a function of K and the formats alone. The result of a row has the same bits for
// any M, any other rows and any number of threads; it may differ between CPU levels.
void run(const MatmulPlan&, const MatmulTensors&, Stream&);

// x [..., K] row-major, weight [N, K] -> [..., N] in `out` format (default: that of x).
Tensor matmul(const Tensor& x, const Tensor& weight, Stream& = Stream::default_stream());
Tensor matmul(const Tensor& x, const Tensor& weight, Format out,
              Stream& = Stream::default_stream());

// FP64 product of the operands as quantised, rounded to f32. For tests and `halftone check`.
Tensor matmul_reference(const Tensor& x, const Tensor& weight);

}  // namespace halftone
