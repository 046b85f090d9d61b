// The products of groups: what plans own and run.
#pragma once
#include "base/thread_pool.h"
#include "halftone/grouped_matmul.h"
#include "ops/gemm/cpu/activations.h"

namespace halftone::grouped {

inline gemm::XSpec x_spec(const GroupedProblem& p) {
  return {p.x, p.x_scaled, p.x_scaling, p.quantize_x};
}

struct Gpu {
  std::shared_ptr<void> (*workspace)(const GroupedProblem&, const Device&, int64_t* bytes);
  void (*run)(const GroupedPlan&, const GroupedTensors&, Stream&);
  std::string (*describe)(const GroupedProblem&, const Device&);
};
extern const Gpu gpu;
std::string accepts_gpu(const GroupedProblem&);

}  // namespace halftone::grouped
