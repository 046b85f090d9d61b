#include "ops/gemm/sm80/instances.h"

namespace halftone::gemm {

GpuInstance gpu_w4(GpuCode code, uint32_t columns) {
  switch (code) {
#define HALFTONE_X(name, bits) \
  case GpuCode::name:          \
    return gpu_instance<GpuCode::name>(columns);
    HALFTONE_GPU_CODES_W4(HALFTONE_X)
#undef HALFTONE_X
    default:
      return {};
  }
}

KernelImage gpu_w4_persistent(GpuCode code, GpuLoop loop) {
  return code == GpuCode::e2m1 ? persistent_image<GpuCode::e2m1>(loop)
                               : persistent_image<GpuCode::int4>();
}

}  // namespace halftone::gemm
