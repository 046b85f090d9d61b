#include "ops/gemm/sm80/instances.h"

namespace halftone::product {

GpuInstance gpu_bytes(GpuCode code, uint32_t columns) {
  return gpu_instance<GpuCode::e4m3, GpuCode::e5m2, GpuCode::int8>(code, columns);
}

KernelImage gpu_bytes_stay(GpuCode code, GpuLoop loop) {
  return code == GpuCode::e4m3   ? stay_image<GpuCode::e4m3>(loop)
         : code == GpuCode::e5m2 ? stay_image<GpuCode::e5m2>(loop)
                                 : stay_image<GpuCode::int8>();
}

}  // namespace halftone::product
