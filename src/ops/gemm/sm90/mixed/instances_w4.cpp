#include "ops/gemm/sm90/mixed/instances.h"

namespace halftone::gemm {

Sm90Instance sm90_w4(const Sm90Choice& c) {
  using S = ScaleMode;
  if (c.scales == S::group32_sums) return sm90_instance<GpuCode::int4, S::group32_sums>(c.columns);
  if (c.code == GpuCode::int4) return sm90_instance<GpuCode::int4, S::group_sums>(c.columns);
  return c.scales == S::e4m3_block ? sm90_instance<GpuCode::e2m1, S::e4m3_block>(c.columns)
                                   : sm90_instance<GpuCode::e2m1, S::ue8m0>(c.columns);
}

}  // namespace halftone::gemm
