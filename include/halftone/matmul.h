// GEMM with weights and activations in any format and an epilogue of bias, activation or gate,
// residual and quantised output: y = f(x W^T + bias) + residual.
#pragma once
#include <memory>
#include <optional>

#include "halftone/activation_function.h"
#include "halftone/error.h"
#include "halftone/norm.h"
#include "halftone/operand_alignment.h"
#include "halftone/quantize.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

// Whose kernels run. `automatic`: Halftone's, except for dense GEMMs of more than 16 rows for which
// cuBLASLt is installed and has an algorithm: f32 as TF32, and on GPUs other than Hopper f16 and
// bf16, and E4M3 by E4M3 with one f32 scale each or one a row; on Hopper E4M3 by E4M3 with f32
// scales of 1x128 of x and of 128x128 of the weight, where M is above 256 and a multiple of 4.
// `cublaslt`: all these, and f32 in f32, whatever the GPU and the rows (block scales: on Hopper, M
// a multiple of 4), or can_run says why not. `halftone`: never cuBLASLt.
enum class MatmulLibrary : uint8_t { automatic, halftone, cublaslt };

// A fused RMS norm of x in front of the GEMM (halftone/norm.h).
struct MatmulNorm {
  float eps = 1e-5f;
  Format weight = Format::bf16;  // f32, f16, bf16 [K]
  float weight_offset = 0;       // added to weight
};

struct MatmulProblem {
  int64_t m = 0, n = 0, k = 0;  // m may be 0
  Format x = Format::bf16;  // activations [M, K]: f32, f16, bf16, fp8, mxfp8, mxfp4, nvfp4, int8
  Format weight = Format::bf16;  // [N, K]; any format but i32, i64, u8, ue8m0
  // The weight is [K, N], of f32, f16 or bf16. Hopper reads 16-bit ones in place (more than 8 rows,
  // N a multiple of 8, no gate); elsewhere every run transposes the weight into memory of the plan
  // first, and a static one is better transposed once, by transpose().
  bool weight_transposed = false;
  Scaling scaling;      // of the weight, when it has scales: any block, any layout
  bool scaled = false;  // whether the weight has scales
  // A promise: whatever writes the weight or its scales has ended before `run` is called or, in a
  // graph, before that is launched. GEMMs on Hopper, except FP8 by FP8, and on later GPUs those of
  // up to 16 rows then prefetch the weight before the previous kernels have ended (programmatic
  // dependent launch).
  bool static_weights = false;
  Format out = Format::bf16;  // [M, N]: f32, f16, bf16, or that of quantize_out
  bool bias = false;          // f32 or the format of out (f32, f16, bf16 if quantised), [N]
  bool residual = false;      // the format of out (f32, f16, bf16 if quantised), [M, N]; may be
                              // the output itself
  bool x_scaled = false;      // x is given with scales: any block, any layout
  Scaling x_scaling;
  // x is f32, f16 or bf16, and the GEMM takes rms_norm(x), rounded to that format. Hopper's GEMV
  // (`describe`: "one row") fuses the norm, in bf16 with a norm's weight in bf16 and K up to 16384;
  // elsewhere a kernel in front of it writes it into memory of the plan.
  std::optional<MatmulNorm> norm = {};
  // An unquantised x is quantised to this format first, row by row: one scale of a row ("fp8_row",
  // "int8"), scales within it ("fp8_1x128", block formats; nvfp4 without tensor_scale: one for each
  // row), or one static scale for all, which tensor_scale gives.
  std::optional<QuantizeOptions> quantize_x;
  // f16: f16 by f16 may accumulate in f16, up to 64 products (a sum beyond 65504 is infinite),
  // where the tensor cores are twice as fast for it: sm_89 and sm_120a, more than 16 rows.
  // `describe` says so. Elsewhere, and as f32, accumulation is in f32.
  Format accumulate = Format::f32;
  // f32 by f32: operands may lose all but 10 bits of their fractions (TF32), where cuBLASLt runs.
  // Elsewhere products stay those of f32.
  bool tf32 = false;
  MatmulLibrary library = MatmulLibrary::automatic;
  ActivationFunction activation{Activation::identity};
  // Gated: weight and bias have 2 N rows, those of the gate first, or in the even rows if
  // `interleaved`. Or gate and up are separate tensors (`separate_up`) of the same formats: weight
  // is the gate's, `up` the other's, [N, K] each; bias has those of the gate first.
  std::optional<GatedActivation> gated;
  bool interleaved = false, separate_up = false;
  // Out is of this format and its tensor carries scales, which the product writes: within rows or
  // of rows; per tensor, or nvfp4's tensor scale, is tensor_scale if given and else follows from
  // all results (a row then depends on the others). On a GPU the plan holds the results in f32,
  // and a kernel after the GEMM quantises them: the bits of quantize().
  std::optional<QuantizeOptions> quantize_out;
  // On GPUs the kernel and the order of its sums depend on how many rows there are, unless this is
  // set: then one kernel with one order takes every M, which of N, K, the formats, the alignment
  // and the device alone decide, and never cuBLASLt. A row has the same bits alone and among any
  // others, unless quantize_out finds one scale for all. On CPUs it has them anyway.
  bool batch_invariant = false;
  // How the operands lie, which the choice of kernel depends on. `run` takes operands that are
  // aligned less than the plan's kernel needs for an error.
  OperandAlignment alignment = {};
};

// Rows of x, weight, out and residual may lie any stride apart; their elements are contiguous. A
// quantised out is row-major with linear scales: see empty_quantized.
struct MatmulTensors {
  Tensor x, weight, out, bias, residual;
  Tensor up = {};    // the up half of a gate, with separate_up
  Tensor norm = {};  // [K], weight of the norm; static_weights promises as much of this one
};

// That of these tensors, for a problem whose run they are given to.
OperandAlignment alignment_of(const MatmulTensors&);

// What runs, chosen by a pure function of the problem, the device, the CPU level and whether
// cuBLASLt is installed (ops/gemm/dispatch.h); `describe` prints it. Weights stay in checkpoint
// layout: a plan holds no copy of them, only packed rows of x (and, of tiled scales, a linear copy
// made anew by every run). A plan is used by one run at a time; threads that run at the same time
// have a plan each.
struct MatmulKernel;
struct MatmulPlan {
  MatmulProblem problem;
  Device device;
  std::shared_ptr<const MatmulKernel> kernel;
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
// the activation or the gate, then + residual; each step in FP32, rounded or quantised once.
// Precision, error bounds and what the bits of a row depend on: docs/numerics.md, "GEMM". On CPUs a
// row has the same bits for any M, any other rows and any number of threads.
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
  Tensor up = {};    // the up half of a gate, where weight is the gate alone
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
  bool batch_invariant = false;
};
Tensor matmul(const Tensor& x, const Tensor& weight, const MatmulOptions&,
              Stream& = Stream::default_stream());

// FP64 GEMM of the operands as quantised, rounded to f32; then the epilogue, without the
// quantisation of the output. For tests and `halftone check`.
Tensor matmul_reference(const Tensor& x, const Tensor& weight);
Tensor matmul_reference(const Tensor& x, const Tensor& weight, const MatmulOptions&);

}  // namespace halftone
