// A GEMM on a GPU whose rows belong to experts, or that is one of a layer of experts: how operands
// enter, and how the kernel that dispatch chose is started.
#pragma once
#include <algorithm>

#include "ops/gemm/dispatch.h"
#include "ops/gemm/sm90/mixed/launch.h"

namespace halftone::experts {

struct GroupedGemm {
  gemm::GemmProblem problem;
  gemm::GemmChoice choice;
  gemm::GpuX x;

  GroupedGemm() = default;
  GroupedGemm(const gemm::GemmProblem&, const gemm::GemmChoice&);

  // Whether the kernel may read the list of chunks before the kernel ahead of it ends.
  bool reads_list_early() const {
    return choice.kernel == gemm::GemmKernel::gemv_sm90_grouped ||
           choice.kernel == gemm::GemmKernel::gemm_sm90_small_m_grouped;
  }
  bool is_gemv() const { return choice.kernel == gemm::GemmKernel::gemv_sm90_grouped; }
  bool as_codes() const {
    return choice.kernel == gemm::GemmKernel::gemm_sm90 &&
           takes_codes_sm90(problem, choice.weight, x);
  }
  // Every expert with rows has one chunk that may not be full.
  int64_t max_chunks() const {
    return problem.experts == 0
               ? 0
               : std::min(problem.experts, problem.m) + problem.m / choice.chunk_rows;
  }
  void launch(const gemm::GpuGemm&, const gemm::Sm90Matrices&, Stream&) const;
};

}  // namespace halftone::experts
