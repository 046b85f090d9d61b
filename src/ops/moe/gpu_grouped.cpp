#include "ops/moe/gpu_grouped.h"

#include "ops/gemm/sm90/gemv/grouped_launch.h"
#include "ops/gemm/sm90/small_m/grouped_launch.h"
#include "ops/gemm/sm90/small_m/launch.h"

namespace halftone::experts {

GroupedGemm::GroupedGemm(const gemm::GemmProblem& p, const gemm::GemmChoice& c)
    : problem(p), choice(c), x(p.x, c.weight, p.k) {}

void GroupedGemm::launch(const gemm::GpuGemm& g, const gemm::Sm90Matrices& matrices,
                         Stream& stream) const {
  using Kernel = gemm::GemmKernel;
  const gemm::GpuWeight& weight = choice.weight;
  const auto chunks = static_cast<uint32_t>(max_chunks());
  switch (choice.kernel) {
    case Kernel::gemv_sm90_grouped:
      return launch_sm90_grouped_gemv(problem, weight, g, matrices, chunks, stream);
    case Kernel::gemm_sm90_small_m_grouped:
      return launch_sm90_grouped_small_m(problem, weight, g, matrices, chunks, stream);
    case Kernel::gemm_sm90_small_m:
      return launch_sm90_small_m(weight, {&g, 1}, stream);
    case Kernel::gemm_sm90:
      return launch_sm90(problem, weight, choice.sm90, g, matrices, chunks, stream);
    case Kernel::gemv_sm80:
      return launch_gemv(weight, g, choice.loop, chunks, stream);
    default:
      return launch_gemm(weight, g, chunks, stream);
  }
}

}  // namespace halftone::experts
