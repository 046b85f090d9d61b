#include "ops/gemm/sm80/instances.h"

namespace halftone::gemm {

GpuInstance gpu_w16(GpuCode code, uint32_t columns) {
  if (code == GpuCode::f16_sums) {
    using Many = GpuLargeTile<GpuCode::f16_sums>;
    return {hw::image_of<Many>("matmul_gpu_many"), Many::shape};
  }
  return gpu_instance<GpuCode::f32, GpuCode::f16, GpuCode::f16_terms, GpuCode::bf16>(code, columns);
}

KernelImage gpu_w16_persistent(GpuCode code) {
  return code == GpuCode::f16 ? persistent_image<GpuCode::f16>()
                              : persistent_image<GpuCode::bf16>();
}

}  // namespace halftone::gemm
