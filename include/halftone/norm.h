// RMS norm, y = weight x / sqrt(mean(x^2) + eps), and layer norm, y = weight (x - mean(x)) /
// sqrt(var(x) + eps) + bias, with the variance over the row's length; statistics in f32.
#pragma once
#include "halftone/error.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

enum class NormKind : uint8_t { rms, layer };

struct NormProblem {
  int64_t rows = 0, columns = 0;
  Format x = Format::bf16;       // of x, residual and output: f32, f16, bf16
  Format weight = Format::bf16;  // f32, f16, bf16 [columns]
  float eps = 1e-5f;
  bool residual = false;
  NormKind kind = NormKind::rms;
  bool weighted = true;     // false: weight is 1 and not given
  bool bias = false;        // in the format of weight
  float weight_offset = 0;  // added to weight: 1 for checkpoints that store weight - 1 (Gemma)
};
// Matrices are [rows, columns] or [a, b, columns] with a * b rows, any strides but the last.
struct NormTensors {
  Tensor x;
  Tensor weight;             // [columns]
  Tensor out;                // may be x
  Tensor residual;           // when given: x + residual, as rounded, is normalised
  Tensor bias = {};          // [columns]
  Tensor residual_out = {};  // receives x + residual; residual does when this is not given
};
struct NormKernel;
struct NormPlan {
  NormProblem problem;
  Device device;
  const NormKernel* kernel = nullptr;
};
std::string describe(const NormPlan&);
Support can_run(const NormProblem&, const Device&);
NormPlan plan(const NormProblem&, const Device&);
// A row's result depends neither on the other rows nor on the number of threads.
void run(const NormPlan&, const NormTensors&, Stream&);

// x [..., columns] row-major.
Tensor rms_norm(const Tensor& x, const Tensor& weight, float eps,
                Stream& = Stream::default_stream());
// residual += x in place, then the norm of the sum.
Tensor rms_norm_residual(const Tensor& x, Tensor& residual, const Tensor& weight, float eps,
                         Stream& = Stream::default_stream());
// Norm over head_dim of x [..., heads, head_dim] with one weight [head_dim] (QK norm), in place;
// x may be a strided slice of rank 2 or 3, such as the queries of a fused projection.
void qk_norm(Tensor& x, const Tensor& weight, float eps, Stream& = Stream::default_stream());

// weight and bias may be undefined.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                  Stream& = Stream::default_stream());
// residual += x in place, then the norm of the sum.
Tensor layer_norm_residual(const Tensor& x, Tensor& residual, const Tensor& weight,
                           const Tensor& bias, float eps, Stream& = Stream::default_stream());

// FP64 -> f32 of any problem without residual; weight and bias as the problem has them.
Tensor norm_reference(const NormProblem&, const Tensor& x, const Tensor& weight,
                      const Tensor& bias = {});
Tensor rms_norm_reference(const Tensor& x, const Tensor& weight, float eps);  // FP64 -> f32

}  // namespace halftone
