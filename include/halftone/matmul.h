// Matrix product with weights and activations in any format, with bias, activation, residual and
// quantised output: y = f(x W^T + bias) + residual.
#pragma once
#include <memory>
#include <optional>

#include "halftone/activation_function.h"
#include "halftone/error.h"
#include "halftone/norm.h"
#include "halftone/quantize.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

// Who multiplies. By itself Halftone, but for dense products of more than 16 rows that cuBLASLt is
// installed and has an algorithm for: f32 as TF32, and on chips other than Hopper f16 and bf16, and
// E4M3 by E4M3 with one f32 scale each or one a row; on Hopper E4M3 by E4M3 with f32 scales of
// 1x128 of x and of 128x128 of the weight, where M is above 256 and a multiple of 4. As `cublaslt`
// it multiplies all these, and f32 in f32, whatever the chip and the rows (scales of blocks: on
// Hopper, of multiples of 4), or can_run says why not; as `halftone` none.
enum class MatmulLibrary : uint8_t { automatic, halftone, cublaslt };

// RMS norm of x ahead of its product (halftone/norm.h).
struct MatmulNorm {
  float eps = 1e-5f;
  Format weight = Format::bf16;  // f32, f16, bf16 [K]
  float weight_offset = 0;       // added to weight
};

struct MatmulProblem {
  int64_t m = 0, n = 0, k = 0;  // m may be 0
  Format x = Format::bf16;  // activations [M, K]: f32, f16, bf16, fp8, mxfp8, mxfp4, nvfp4, int8
  Format weight = Format::bf16;  // [N, K]; any format but i32, i64, u8, ue8m0
  // The weight is [K, N], of f32, f16 or bf16. Hopper multiplies 16-bit ones as they lie (more than
  // 8 rows, N a multiple of 8, no gate); elsewhere every run copies the weight the other way round
  // into memory of the plan first, and one that stays is better turned once, by transpose().
  bool weight_transposed = false;
  Scaling scaling;      // of the weight, when it has scales: any block, any layout
  bool scaled = false;  // whether the weight has scales
  // A promise: whatever writes the weight or its scales has ended before `run` is called or, of a
  // graph, before that is launched. Products on Hopper, but for FP8 by FP8, and later ones of up to
  // 16 rows then begin to copy the weight before the kernels ahead have ended.
  bool static_weights = false;
  Format out = Format::bf16;  // [M, N]: f32, f16, bf16, or that of quantize_out
  bool bias = false;          // f32 or the format of out (f32, f16, bf16 if quantised), [N]
  bool residual = false;      // the format of out (f32, f16, bf16 if quantised), [M, N]; may be
                              // the output itself
  bool x_scaled = false;      // x is given with scales: any block, any layout
  Scaling x_scaling;
  // x is f32, f16 or bf16, and the product takes rms_norm(x), rounded to that format. Hopper's
  // product of one row (`describe`: "one row") normalises it itself, in bf16 with a norm's weight
  // in bf16 and K up to 16384; elsewhere a kernel ahead of it does so, into memory of the plan.
  std::optional<MatmulNorm> norm = {};
  // A plain x is rounded to this format first, row by row: one scale of a row ("fp8_row", "int8"),
  // scales within it ("fp8_1x128", block formats; nvfp4 without tensor_scale: one for each row), or
  // one scale for all, which tensor_scale gives.
  std::optional<QuantizeOptions> quantize_x;
  // f16: products of f16 by f16 may be summed in f16, up to 64 of them (a sum beyond 65504 is
  // infinite), where the tensor cores are twice as fast for it: sm_89 and sm_120a, more than 16
  // rows. `describe` says so. Elsewhere, and as f32, sums are in f32.
  Format accumulate = Format::f32;
  // Of f32 by f32: operands may lose all but 10 bits of their fractions (TF32), where cuBLASLt
  // multiplies. Elsewhere products stay those of f32.
  bool tf32 = false;
  MatmulLibrary library = MatmulLibrary::automatic;
  ActivationFunction activation{Activation::identity};
  // Gated: weight and bias have 2 N rows, those of the gate first, or in the even rows. Or the
  // halves are tensors `apart`, of the same formats: weight is the gate's, `up` the other's, [N, K]
  // each; bias has those of the gate first.
  std::optional<GatedActivation> gated;
  bool interleaved = false, apart = false;
  // Out is of this format and its tensor carries scales, which the product writes: within rows or
  // of rows; per tensor, or nvfp4's tensor scale, is tensor_scale if given and else follows from
  // all results (a row then depends on the others). On a GPU the plan holds the results in f32,
  // and a kernel after the product makes codes and scales of them: the bits of quantize().
  std::optional<QuantizeOptions> quantize_out;
};

// Rows of x, weight, out and residual may lie any stride apart; their elements are contiguous. A
// quantised out is row-major with linear scales: see empty_quantized.
struct MatmulTensors {
  Tensor x, weight, out, bias, residual;
  Tensor up = {};    // the other half of a gate, where the halves are apart
  Tensor norm = {};  // [K], weight of the norm; a constant weight promises as much of this one
};

// What runs, chosen by a pure function of the problem, the device and the CPU level; `describe`
// prints it. Weights stay in checkpoint layout: a plan holds no copy of them, only packed rows of
// x (and, of tiled scales, a linear copy made anew by every run). A plan is used by one run at a
// time; threads that run at the same time have a plan each.
struct MatmulKernel;
struct MatmulPlan {
  MatmulProblem problem;
  Device device;
  const MatmulKernel* kernel = nullptr;
  int64_t workspace_bytes = 0;  // owned by the plan
  std::shared_ptr<void> workspace;
  Tensor turned;  // [N, K], of a transposed weight
  NormPlan norm;  // and where its result goes, [M, K]
  Tensor normed;
};
std::string describe(const MatmulPlan&);

Support can_run(const MatmulProblem&, const Device&);
MatmulPlan plan(const MatmulProblem&, const Device&);
// y = (x W^T) * scale of the row and tensor of W * scale of the row and tensor of x + bias, then
// the activation or the gated unit, then + residual; each step in f32, rounded or quantised once.
//
// Precision. Weights of 8 bits or fewer are expanded exactly; scales within a row multiply the f32
// sum of their group, never the code. f32 and f16 activations, and f32 and f16 weights, use f32
// fused multiply-adds (the baseline level rounds product and sum). bf16 activations with weights
// that are exact in bf16 use the bf16 dot product where the processor has it: the products are
// exact too, but operands and sums below 2^-126 count as 0. Scale blocks whose width is not a
// multiple of 8 multiply the expanded weight in f32. Quantised activations are expanded exactly in
// the same way: block formats and power-of-two scales to the bf16 number that they stand for, other
// codes as they are, f32 scales within a row multiplying the f32 sum of their group together with
// those of the weight (where both groups are multiples of 16; else x is rounded to f32). int8 by
// int8 with one scale a row each sums exactly in 32-bit integers. With u = 2^-24 the error is at
// most (145 + K/256) u sum |x_k w_k| before the rounding to `out`, and typically a few u.
//
// Order of sums: a function of K and the formats alone. The result of a row has the same bits for
// any M, any other rows and any number of threads; it may differ between CPU levels. On a GPU that
// holds for few rows and for many by itself, and of few for operands on 16 bytes by itself. On
// Hopper one row of bf16 has a kernel of its own (`describe`: "one row"), and for more than 8 rows
// it holds while K is cut into the same number of parts, which `describe` says (one, unless there
// are fewer tiles than multiprocessors).
//
// GPU. Operands enter the tensor cores as bf16 numbers, or exact sums of two or three of them, so
// that the products are exact too; sums lose at most (280 + K/15) u sum |x_k w_k|; those in f16
// lose 2^-8 sum |x_k w_k| more. An infinite
// weight against a finite f32 or f16 activation gives NaN, as terms of it may be 0.
//
// Hopper, one row of bf16: beside codes of 8 bits and f16, x is taken in two parts of f16, whose 66
// binades end in multiples of 2^-72 of its largest element; what is smaller is rounded to these.
//
// cuBLASLt: the algorithm that its heuristic names first for the problem, asked when the plan is
// made; bits are a function of the problem, the device and the version of the library. Rows of x,
// weight, residual and out on 16 bytes, else Halftone multiplies. Scales of blocks are read from a
// copy in memory of the plan, made anew by every run, unless those of x lie [K/128, M] (a tensor
// with strides 1 and M) and those of the weight have rows of whole 16 bytes: K a multiple of 512.
//
// Hopper, more than 8 rows: sums lose at most (15 + 0.8 K) u sum |x_k w_k|, a chain of MMAs over K
// being cut off 16 elements at a time; typically a few u. Scales of mxfp8 and mxfp4 multiply the
// codes: numbers from 2^128 on are infinite. E4M3 by E4M3 with scales that multiply sums runs on
// the FP8 tensor cores, which add 128 products with 13 bits before they join an f32 sum.
void run(const MatmulPlan&, const MatmulTensors&, Stream&);

// x [..., K] row-major, weight [N, K], or [K, N] if transposed -> [..., N] in `out` format
// (default: that of x, bf16 when x is quantised).
Tensor matmul(const Tensor& x, const Tensor& weight, Stream& = Stream::default_stream());
Tensor matmul(const Tensor& x, const Tensor& weight, Format out,
              Stream& = Stream::default_stream());

// The fields of the problem that are not those of the tensors.
struct MatmulOptions {
  std::optional<Format> out;
  Tensor bias = {}, residual = {};
  Tensor up = {};    // the other half of a gate, where weight is the gate alone
  Tensor norm = {};  // [K]: x is normalised first
  float norm_eps = 1e-5f;
  std::optional<QuantizeOptions> quantize_x = {}, quantize_out = {};
  ActivationFunction activation{Activation::identity};
  std::optional<GatedActivation> gated = {};
  bool interleaved = false;
  bool weight_transposed = false;
  Format accumulate = Format::f32;
  bool tf32 = false;
  MatmulLibrary library = MatmulLibrary::automatic;
};
Tensor matmul(const Tensor& x, const Tensor& weight, const MatmulOptions&,
              Stream& = Stream::default_stream());

// FP64 product of the operands as quantised, rounded to f32; then the epilogue, without the
// quantisation of the output. For tests and `halftone check`.
Tensor matmul_reference(const Tensor& x, const Tensor& weight);
Tensor matmul_reference(const Tensor& x, const Tensor& weight, const MatmulOptions&);

}  // namespace halftone
