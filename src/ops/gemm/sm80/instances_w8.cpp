#include "ops/gemm/sm80/instances.h"

namespace halftone::gemm {

GpuInstance gpu_w8(GpuCode code, uint32_t columns) {
  switch (code) {
#define HALFTONE_X(name, bits) \
  case GpuCode::name:          \
    return gpu_instance<GpuCode::name>(columns);
    HALFTONE_GPU_CODES_W8(HALFTONE_X)
#undef HALFTONE_X
    default:
      return {};
  }
}

KernelImage gpu_w8_persistent(GpuCode code, GpuLoop loop) {
  return code == GpuCode::e4m3   ? persistent_image<GpuCode::e4m3>(loop)
         : code == GpuCode::e5m2 ? persistent_image<GpuCode::e5m2>(loop)
                                 : persistent_image<GpuCode::int8>();
}

}  // namespace halftone::gemm
