#include "ops/gemm/sm80/instances.h"

namespace halftone::product {

GpuInstance gpu_nibbles(GpuCode code, uint32_t columns) {
  return gpu_instance<GpuCode::e2m1, GpuCode::int4>(code, columns);
}

KernelImage gpu_nibbles_stay(GpuCode code, GpuLoop loop) {
  return code == GpuCode::e2m1 ? stay_image<GpuCode::e2m1>(loop) : stay_image<GpuCode::int4>();
}

}  // namespace halftone::product
