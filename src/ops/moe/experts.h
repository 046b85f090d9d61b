// The experts of a layer as the kernels read them.
#pragma once
#include <vector>

#include "halftone/moe.h"
#include "ops/gemm/cpu/kernels.h"

namespace halftone {

namespace experts {
struct GpuExperts;
}

struct BoundExperts {
  int64_t hidden = 0, intermediate = 0, experts = 0, shared_intermediate = 0;
  Format weight = Format::bf16, shared_weight = Format::bf16;
  bool scaled = false, shared_scaled = false;
  Scaling scaling, shared_scaling;
  // Gate, up and down of each expert; the shared one is last.
  std::vector<gemm::Weights> weights;
  Tensor gate_bias, up_bias, down_bias;  // f32 [experts, ...], contiguous, or undefined
  std::vector<Tensor> kept;              // owns what the weights point into
  Device device;
  std::shared_ptr<const experts::GpuExperts> gpu;  // instead of weights and biases, on a GPU
};

namespace experts {

// Empty, or why no expert fits the problem's formats and extents.
std::string refuse_experts(const MoeProblem&);
// An input-major tensor of all experts with its last two dimensions transposed, scales included.
Tensor k_innermost(const Tensor&, const char* what);
// Throws unless `experts` has one tensor an expert.
void check_count(const MoeProblem&, const std::vector<Tensor>* experts, const char* what);
// One separate matrix, checked.
gemm::Weights expert_view(const MoeProblem&, const std::vector<Tensor>& experts, int64_t e,
                          const char* what, int64_t n, int64_t k);

}  // namespace experts
}  // namespace halftone
