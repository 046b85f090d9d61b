// Matrix product with weights in any format: y = x W^T (+ bias) (+ residual).
#pragma once
#include <memory>

#include "halftone/error.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

struct MatmulProblem {
  int64_t m = 0, n = 0, k = 0;
  Format x = Format::bf16;       // activations [M, K]: f32, f16, bf16
  Format weight = Format::bf16;  // [N, K]; any format but i32, i64, u8, ue8m0
  Scaling scaling;               // of the weight, when it has scales
  bool scaled = false;           // whether the weight has scales
  Format out = Format::bf16;     // [M, N]: f32, f16, bf16
  bool bias = false;             // f32 or the format of out, [N]
  bool residual = false;         // the format of out, [M, N]; may be the output itself
};

struct MatmulTensors {
  Tensor x, weight, out, bias, residual;
};

// What runs, chosen by a pure function of the problem, the device and the CPU level; `describe`
// prints it. A plan may hold a packed copy of nothing: weights stay in checkpoint layout.
struct MatmulKernel;
struct MatmulPlan {
  MatmulProblem problem;
  Device device;
  const MatmulKernel* kernel = nullptr;
  int64_t workspace_bytes = 0;  // per stream, owned by the plan
  std::shared_ptr<void> workspace;
};
std::string describe(const MatmulPlan&);

Support can_run(const MatmulProblem&, const Device&);
MatmulPlan plan(const MatmulProblem&, const Device&);
// The result of a row does not depend on M or on the number of threads.
void run(const MatmulPlan&, const MatmulTensors&, Stream&);

// x [..., K] row-major, weight [N, K] -> [..., N] in `out` format (default: that of x).
Tensor matmul(const Tensor& x, const Tensor& weight, Stream& = Stream::default_stream());
Tensor matmul(const Tensor& x, const Tensor& weight, Format out,
              Stream& = Stream::default_stream());

// FP64 product of the operands as quantised, rounded to f32. For tests and `halftone check`.
Tensor matmul_reference(const Tensor& x, const Tensor& weight);

}  // namespace halftone
