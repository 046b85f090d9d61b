#include "ops/product/sm90_instances.h"

namespace halftone::product {

Sm90Instance sm90_plain(const Sm90Choice& c) {
  return c.code == GpuCode::f16 ? sm90_instance<GpuCode::f16, Sm90Scales::none>(c.columns)
                                : sm90_instance<GpuCode::bf16, Sm90Scales::none>(c.columns);
}

}  // namespace halftone::product
