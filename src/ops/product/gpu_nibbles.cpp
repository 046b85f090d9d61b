#include "ops/product/gpu_instances.h"

namespace halftone::product {

GpuInstance gpu_nibbles(GpuCode code, bool many) {
  return gpu_instance<GpuCode::e2m1, GpuCode::int4>(code, many);
}

}  // namespace halftone::product
