#include "ops/gemm/sm80/instances.h"

namespace halftone::gemm {

GpuInstance gpu_w16(GpuCode code, uint32_t columns) {
  if (code == GpuCode::f16_sums) {
    using Many = GpuLargeTile<GpuCode::f16_sums>;
    return {hw::image_of<Many>("matmul_gpu_many"), Many::shape};
  }
  switch (code) {
#define HALFTONE_X(name, bits) \
  case GpuCode::name:          \
    return gpu_instance<GpuCode::name>(columns);
    HALFTONE_GPU_CODES_W16(HALFTONE_X)
#undef HALFTONE_X
    default:
      return {};
  }
}

KernelImage gpu_w16_persistent(GpuCode code) {
  return code == GpuCode::f16 ? persistent_image<GpuCode::f16>()
                              : persistent_image<GpuCode::bf16>();
}

}  // namespace halftone::gemm
