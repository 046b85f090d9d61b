// Which formats the small-M GEMMs on sm_90a take, and the instance of each, host side.
#pragma once
#include <string>

#include "ops/gemm/sm80/launch.h"
#include "ops/gemm/sm90/small_m/params.h"
#include "pipe/tensor_map.h"

namespace halftone::gemm {

// Empty, or the rule that formats and scales break.
std::string refuse_sm90_small_m_formats(const GpuWeight&, const GpuX&, Format weight,
                                        const Scaling&);

// INT4 with group scales of fewer than 128 elements promotes every 32.
inline bool has_group32_sums(const GpuWeight& w, int64_t group) {
  return w.code == GpuCode::int4 && (group == 32 || group == 64);
}
bool takes_group32_sums(const GpuWeight&, const GpuX&, const Scaling&);

inline bool has_powers(const GpuWeight& w, Format scale) {
  return w.scaled && scale == Format::ue8m0;
}
// Whether scales are staged in shared memory beside the weights that they multiply.
inline bool copies_scales(const GpuWeight& w, Format scale) {
  return w.pairs || has_powers(w, scale);
}

// The TMA box of a stage of `columns` rows of x.
pipe::TensorBox x_box_sm90_small_m(const GpuGemm&, uint32_t columns);

// Calls f.operator()<type, scale mode>() for the instance of a weight that is not refused.
template <class F>
auto with_sm90_small_m(const GpuWeight& w, Format scale, F f) {
  switch (w.code) {
    case GpuCode::e4m3:
      if (has_powers(w, scale)) return f.template operator()<GpuCode::e4m3, ScaleMode::ue8m0>();
      return w.scaled ? f.template operator()<GpuCode::e4m3, ScaleMode::group_sums>()
                      : f.template operator()<GpuCode::e4m3, ScaleMode::none>();
    case GpuCode::e5m2:
      return w.scaled ? f.template operator()<GpuCode::e5m2, ScaleMode::group_sums>()
                      : f.template operator()<GpuCode::e5m2, ScaleMode::none>();
    case GpuCode::int8:
      return w.scaled ? f.template operator()<GpuCode::int8, ScaleMode::group_sums>()
                      : f.template operator()<GpuCode::int8, ScaleMode::none>();
    case GpuCode::int4:
      return f.template operator()<GpuCode::int4, ScaleMode::group_sums>();
    default:
      return w.pairs ? f.template operator()<GpuCode::e2m1, ScaleMode::e4m3_block>()
                     : f.template operator()<GpuCode::e2m1, ScaleMode::ue8m0>();
  }
}

}  // namespace halftone::gemm
