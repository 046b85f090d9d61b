#include "ops/product/sm90_instances.h"

namespace halftone::product {

Sm90Instance sm90_fp8(const Sm90Choice& c) {
  return sm90_instance<GpuCode::e4m3, Sm90Scales::fp8>(c.columns);
}

}  // namespace halftone::product
