#include "ops/gemm/sm80/instances.h"

namespace halftone::gemm {

GpuInstance gpu_w8(GpuCode code, uint32_t columns) {
  return gpu_instance<GpuCode::e4m3, GpuCode::e5m2, GpuCode::int8>(code, columns);
}

KernelImage gpu_w8_persistent(GpuCode code, GpuLoop loop) {
  return code == GpuCode::e4m3   ? persistent_image<GpuCode::e4m3>(loop)
         : code == GpuCode::e5m2 ? persistent_image<GpuCode::e5m2>(loop)
                                 : persistent_image<GpuCode::int8>();
}

}  // namespace halftone::gemm
