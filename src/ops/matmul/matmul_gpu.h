// Dense GEMMs on a GPU.
#pragma once
#include "ops/gemm/dispatch.h"
#include "ops/matmul/matmul_run.h"
#include "ops/matmul/together.h"

namespace halftone {

struct MatmulKernel {
  gemm::GemmChoice choice;
};

namespace dense {

// The problem as dispatch sees it.
gemm::GemmProblem gemm_problem(const MatmulProblem&);
// How tensors lie that a run is given, where these enter the kernel of its plan as they are.
OperandAlignment alignment_at_kernel(const MatmulPlan&, const MatmulTensors&);

std::shared_ptr<void> workspace_gpu(const MatmulProblem&, const Device&, const gemm::GemmChoice&,
                                    int64_t* bytes);
// Null where cuBLASLt has no algorithm.
std::shared_ptr<void> workspace_cublaslt(const MatmulProblem&, const Device&,
                                         const gemm::GemmChoice&, int64_t* bytes);
void run_gpu(const MatmulPlan&, const MatmulTensors&, Stream&);
// run_fused of plans of one kernel, at least one.
bool run_fused_gpu(std::span<const MatmulCall>, Stream&);

}  // namespace dense
}  // namespace halftone
