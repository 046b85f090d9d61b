#include "ops/product/gpu_instances.h"

namespace halftone::product {

GpuInstance gpu_bytes(GpuCode code, uint32_t columns) {
  return gpu_instance<GpuCode::e4m3, GpuCode::e5m2, GpuCode::int8>(code, columns);
}

KernelImage gpu_int8_stay() { return stay_image<GpuCode::int8>(); }

}  // namespace halftone::product
