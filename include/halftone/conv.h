// 1D convolution, as audio encoders begin with.
#pragma once
#include <memory>

#include "halftone/activation_function.h"
#include "halftone/error.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

struct Conv1dProblem {
  int64_t batch = 1, in_channels = 0, length = 0, out_channels = 0, kernel = 1;
  int64_t stride = 1, padding = 0, dilation = 1;  // padding with zeros, on both sides
  int64_t groups = 1;                             // divides both numbers of channels
  Format x = Format::bf16, weight = Format::bf16, out = Format::bf16;  // f32, f16, bf16
  bool bias = false;                                               // f32 or the format of weight
  ActivationFunction activation = {.kind = Activation::identity};  // of the result
};
struct Conv1dTensors {
  Tensor x;          // [batch, in_channels, length], any strides
  Tensor weight;     // [out_channels, in_channels / groups, kernel], row-major
  Tensor out;        // [batch, out_channels, conv1d_length(problem)], any strides
  Tensor bias = {};  // [out_channels]
};
// (length + 2 padding - dilation (kernel - 1) - 1) / stride + 1, at least 0.
int64_t conv1d_length(const Conv1dProblem&);

struct Conv1dKernel;
struct Conv1dPlan {
  Conv1dProblem problem;
  Device device;
  const Conv1dKernel* kernel = nullptr;
  int64_t workspace_bytes = 0;         // x of one batch and the weights, converted to f32
  std::shared_ptr<float[]> workspace;  // a plan serves one run at a time
};
std::string describe(const Conv1dPlan&);
Support can_run(const Conv1dProblem&, const Device&);
Conv1dPlan plan(const Conv1dProblem&, const Device&);
// out[b, o, t] = f(bias[o] + sum over c, k of weight[o, c, k] x[b, c', t stride + k dilation -
// padding]) with c' the c-th channel of o's group. Products and sums in f32 (fused multiply-adds;
// the baseline level rounds both), rounded once. Sums of 64 terms join the sum before them, so with
// K = in_channels / groups * kernel the error is at most (66 + K / 64) u sum|w x|, u = 2^-24. The
// order depends on K alone: the same bits for any batch, length and number of threads.
void run(const Conv1dPlan&, const Conv1dTensors&, Stream&);

struct Conv1dOptions {
  int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
  ActivationFunction activation = {.kind = Activation::identity};
};
// bias may be undefined; the result has the format of x.
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv1dOptions& = {}, Stream& = Stream::default_stream());
Tensor conv1d_reference(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const Conv1dOptions& = {});  // FP64 -> f32

}  // namespace halftone
