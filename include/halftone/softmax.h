// Softmax over the last dimension.
#pragma once
#include "halftone/error.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

struct SoftmaxProblem {
  int64_t rows = 0, columns = 0;
  Format x = Format::f32, out = Format::f32;  // f32, f16, bf16
};
struct SoftmaxTensors {
  Tensor x, out;  // [rows, columns]; out may be x
};
struct SoftmaxKernel;
struct SoftmaxPlan {
  SoftmaxProblem problem;
  Device device;
  const SoftmaxKernel* kernel = nullptr;
};
std::string describe(const SoftmaxPlan&);
Support can_run(const SoftmaxProblem&, const Device&);
SoftmaxPlan plan(const SoftmaxProblem&, const Device&);
// Safe: the row maximum is subtracted. A row of -inf alone gives zeros.
void run(const SoftmaxPlan&, const SoftmaxTensors&, Stream&);
Tensor softmax(const Tensor& x, Stream& = Stream::default_stream());
Tensor softmax_reference(const Tensor& x);  // FP64 -> f32

}  // namespace halftone
