// A GEMM as dispatch sees it: no data, and nothing but what a choice of kernel may depend on.
#pragma once
#include <optional>
#include <string>

#include "halftone/matmul.h"
#include "ops/gemm/cpu/activations.h"

namespace halftone::gemm {

struct GemmProblem {
  int64_t m = 0, n = 0, k = 0;
  int64_t experts = 0;  // rows of x lie by expert, in chunks; 0: one weight for all of them
  bool gate = false;
  Format weight = Format::bf16;
  bool scaled = false;
  Scaling scaling;
  bool transposed = false;  // W is [K, N]
  XSpec x = {};
  bool shared_expert = false;  // one weight for all rows, of a layer of experts
  bool gathered = false;       // by experts: kernels whose chunks are rows of x get a copy of it
  bool interleaved = false, separate_up = false;  // of a gate
  std::optional<Format> norm = {};                // weight of the RMS norm ahead of it
  bool f16_sums = false;                          // sums may be in f16
  // The epilogue and what else cuBLASLt asks.
  Format out = Format::bf16;
  bool bias = false, residual = false, activation = false, quantize_out = false, tf32 = false;
  MatmulLibrary library = MatmulLibrary::halftone;
  // The kernel and the order of its sums depend on neither m nor the rows of experts.
  bool batch_invariant = false;
  OperandAlignment alignment = {};
};

// What a kernel needs of its operands, as OperandAlignment gives it; 0 and false: nothing.
struct OperandNeeds {
  int x = 0, weight = 0, weight_scales = 0, scale_storage = 0, out = 0, residual = 0, norm = 0;
  bool packed_scales = false, one_tensor_map = false, whole_scale_blocks = false, cublaslt = false;
};
// "" or the first need that operands do not meet, by name and value.
std::string refuse_alignment(const OperandAlignment&, const OperandNeeds&);
// The alignment of the problem with the bytes of contiguous tensors in place of 0.
OperandAlignment resolved(const GemmProblem&);

}  // namespace halftone::gemm
