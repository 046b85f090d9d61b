// The products of groups: what plans own and run.
#pragma once
#include "base/thread_pool.h"
#include "halftone/grouped_matmul.h"
#include "ops/gemm/dispatch.h"

namespace halftone {

struct GroupedKernel {
  gemm::GemmChoice choice;
};

namespace grouped {

inline gemm::XSpec x_spec(const GroupedProblem& p) {
  return {p.x, p.x_scaled, p.x_scaling, p.quantize_x};
}

gemm::GemmProblem gemm_problem(const GroupedProblem&);
std::shared_ptr<void> workspace_gpu(const GroupedProblem&, const gemm::GemmChoice&, const Device&,
                                    int64_t* bytes);
void run_gpu(const GroupedPlan&, const GroupedTensors&, Stream&);
std::string accepts_gpu(const GroupedProblem&);

}  // namespace grouped
}  // namespace halftone
