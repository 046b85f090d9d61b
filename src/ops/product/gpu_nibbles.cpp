#include "ops/product/gpu_instances.h"

namespace halftone::product {

GpuInstance gpu_nibbles(GpuCode code, uint32_t columns) {
  return gpu_instance<GpuCode::e2m1, GpuCode::int4>(code, columns);
}

KernelImage gpu_int4_stay() { return stay_image<GpuCode::int4>(); }

}  // namespace halftone::product
