// Experts on a GPU.
#pragma once
#include "ops/gemm/dispatch.h"
#include "ops/gemm/sm90/mixed/launch.h"
#include "ops/moe/experts.h"

namespace halftone {

struct MoeKernels {
  // Into the intermediate rows and out of them. On CPUs all are of one kernel.
  gemm::GemmChoice up, down, shared_up, shared_down;
  const gemm::Kernels* cpu() const { return up.cpu; }
};

namespace experts {

// The GEMMs of the routed experts and of the shared one, as dispatch sees them.
gemm::GemmProblem up_problem(const MoeProblem&);
gemm::GemmProblem down_problem(const MoeProblem&);
gemm::GemmProblem shared_up_problem(const MoeProblem&);
gemm::GemmProblem shared_down_problem(const MoeProblem&);

// What BoundExperts holds of experts in device memory.
struct GpuExperts {
  Tensor sources;  // of gate, up and down of each expert
  gemm::GpuLayout up, down, shared_up, shared_down;
  gemm::GpuSource shared[3];
  gemm::Sm90Matrices up_matrices, down_matrices;  // of gate and up, and of down
  Tensor gate_up_bias, down_bias;
  bool interleaved = false;
  MoeAlignment alignment;  // of the weights
};
std::shared_ptr<BoundExperts> bind_gpu(const MoeProblem&, const ExpertTensors&, const Device&);

// "" or why the kernels do not take the problem.
std::string accepts_gpu(const MoeProblem&);

std::shared_ptr<void> workspace_gpu(const MoeProblem&, const MoeKernels&, const Device&,
                                    int64_t* bytes);
void run_gpu(const MoePlan&, const MoeTensors&, Stream&);

// The router; `t` has been checked, and `out`.
void route_gpu(const RoutingTensors& t, const RoutingOptions&, const Routing& out, Stream&);

}  // namespace experts
}  // namespace halftone
