// What a matmul plan owns on CPUs, and the passes over it.
#pragma once
#include "base/thread_pool.h"
#include "formats/quantize_rows.h"
#include "halftone/matmul.h"
#include "ops/gemm/cpu/activations.h"
#include "ops/gemm/cpu/run.h"

namespace halftone::dense {

struct Workspace {
  gemm::XRows rows;
  Tensor panel, x_scales, row_scales, row_offsets;  // packed rows of x
  Tensor tiled, up_tiled;                           // linear copies of tiled weight scales
  Tensor bias;                                      // FP32 [2, n], of interleaved gates
  Tensor results;                                   // FP32, before they are quantised
};

gemm::XSpec x_spec(const MatmulProblem&);
// The rows of W: 2 N for a gate whose halves are one tensor.
int64_t weight_rows(const MatmulProblem&);
// The tensors with the weight as [N, K]: of a transposed one the plan's copy, transposed by every
// run.
MatmulTensors turned(const MatmulPlan&, const MatmulTensors&, Stream&);
// The tensors with x normalised, in memory of the plan.
MatmulTensors normalised(const MatmulPlan&, const MatmulTensors&, Stream&);
// Whether a quantised output has one scale.
bool per_tensor(const QuantizeOptions&);
// Whether the quantised output needs all results before the first value is known.
bool needs_all(const MatmulProblem&);

// Empty, or why quantised outputs or gates of this problem have no kernel.
std::string refuse_output(const MatmulProblem&);
std::string refuse_gated(const MatmulProblem&);

void prepare(const MatmulProblem&, const gemm::Kernels&, Workspace*);
int64_t bytes(const Workspace&);
void run_panels(const MatmulProblem&, const gemm::Kernels&, const MatmulTensors&, Workspace*,
                ThreadPool&);

}  // namespace halftone::dense
