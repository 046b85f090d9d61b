#include "ops/product/sm90_instances.h"

namespace halftone::product {

Sm90Instance sm90_bytes(const Sm90Choice& c) {
  using S = Sm90Scales;
  if (c.code == GpuCode::int8) {
    return c.scales == S::sums ? sm90_instance<GpuCode::int8, S::sums>(c.columns)
                               : sm90_instance<GpuCode::int8, S::none>(c.columns);
  }
  return c.scales == S::sums     ? sm90_instance<GpuCode::e4m3, S::sums>(c.columns)
         : c.scales == S::powers ? sm90_instance<GpuCode::e4m3, S::powers>(c.columns)
                                 : sm90_instance<GpuCode::e4m3, S::none>(c.columns);
}

}  // namespace halftone::product
