#include "ops/product/sm90_instances.h"

namespace halftone::product {

Sm90Instance sm90_fp8(const Sm90Choice& c) {
  if (c.columns == Sm90Fp8Multiply::kXRows) {
    return {hw::image_of<Sm90Fp8Multiply>("matmul_sm90", Arch::sm_90a), Sm90Fp8Multiply::shape};
  }
  return sm90_instance<GpuCode::e4m3, Sm90Scales::fp8>(c.columns);
}

}  // namespace halftone::product
