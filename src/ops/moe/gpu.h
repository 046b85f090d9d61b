// Experts on a GPU.
#pragma once
#include "ops/gemm/sm80/launch.h"
#include "ops/gemm/sm90/mixed/launch.h"
#include "ops/moe/experts.h"

namespace halftone::experts {

// What BoundExperts holds of experts in device memory.
struct GpuExperts {
  Tensor sources;  // of gate, up and down of each expert
  gemm::GpuLayout up, down, shared_up, shared_down;
  gemm::GpuSource shared[3];
  gemm::Sm90Matrices up_matrices, down_matrices;  // of gate and up, and of down
  Tensor gate_up_bias, down_bias;
  bool interleaved = false;
  bool plain = true;  // see GpuGemm::aligned_experts
};
std::shared_ptr<BoundExperts> bind_gpu(const MoeProblem&, const ExpertTensors&, const Device&);

// "" or why the kernels do not take the problem.
std::string accepts_gpu(const MoeProblem&);

struct MoeGpu {
  std::shared_ptr<void> (*workspace)(const MoeProblem&, const Device&, int64_t* bytes);
  void (*run)(const MoePlan&, const MoeTensors&, Stream&);
  std::string (*describe)(const MoeProblem&, const Device&);
};
extern const MoeGpu moe_gpu;

// The router; `t` has been checked, and `out`.
void route_gpu(const RoutingTensors& t, const RoutingOptions&, const Routing& out, Stream&);

}  // namespace halftone::experts
