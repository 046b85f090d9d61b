#include "ops/gemm/sm80/instances.h"

namespace halftone::gemm {

GpuInstance gpu_w4(GpuCode code, uint32_t columns) {
  return gpu_instance<GpuCode::e2m1, GpuCode::int4>(code, columns);
}

KernelImage gpu_w4_persistent(GpuCode code, GpuLoop loop) {
  return code == GpuCode::e2m1 ? persistent_image<GpuCode::e2m1>(loop)
                               : persistent_image<GpuCode::int4>();
}

}  // namespace halftone::gemm
