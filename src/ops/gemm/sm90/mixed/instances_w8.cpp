#include "ops/gemm/sm90/mixed/instances.h"

namespace halftone::gemm {

Sm90Instance sm90_w8(const Sm90Choice& c) {
  using S = ScaleMode;
  const auto of = [&]<GpuCode kCode>() {
    return c.scales == S::group_sums ? sm90_instance<kCode, S::group_sums>(c.columns)
                                     : sm90_instance<kCode, S::none>(c.columns);
  };
  if (c.scales == S::group32_sums) return sm90_instance<GpuCode::int8, S::group32_sums>(c.columns);
  if (c.code == GpuCode::int8) return of.template operator()<GpuCode::int8>();
  if (c.code == GpuCode::e5m2) return of.template operator()<GpuCode::e5m2>();
  return c.scales == S::ue8m0 ? sm90_instance<GpuCode::e4m3, S::ue8m0>(c.columns)
                              : of.template operator()<GpuCode::e4m3>();
}

}  // namespace halftone::gemm
