#include "ops/gemm/sm90/mixed/instances.h"

namespace halftone::gemm {

Sm90Instance sm90_w4(const Sm90Choice& c) {
  using S = Sm90Scales;
  if (c.scales == S::short_sums) return sm90_instance<GpuCode::int4, S::short_sums>(c.columns);
  if (c.code == GpuCode::int4) return sm90_instance<GpuCode::int4, S::sums>(c.columns);
  return c.scales == S::pairs ? sm90_instance<GpuCode::e2m1, S::pairs>(c.columns)
                              : sm90_instance<GpuCode::e2m1, S::powers>(c.columns);
}

}  // namespace halftone::gemm
