#include "hw/image.h"
#include "ops/gemm/sm90/small_m/grouped_w8.cuh"

#define HT_SM90_GROUPED_SMALL_M_OF(code, scales, tiles)                           \
  HT_GPU_ENTRY(halftone::gemm::Sm90GroupedSmallMW8<halftone::gemm::GpuCode::code, \
                                                   halftone::gemm::ScaleMode::scales, tiles>)
#define HT_SM90_GROUPED_SMALL_M(code, scales) \
  HT_SM90_GROUPED_SMALL_M_OF(code, scales, 1) \
  HT_SM90_GROUPED_SMALL_M_OF(code, scales, 2) \
  HT_SM90_GROUPED_SMALL_M_OF(code, scales, 3)
HT_SM90_GROUPED_SMALL_M(e4m3, none)
HT_SM90_GROUPED_SMALL_M(e4m3, group_sums)
HT_SM90_GROUPED_SMALL_M(e4m3, ue8m0)
HT_SM90_GROUPED_SMALL_M(e5m2, none)
HT_SM90_GROUPED_SMALL_M(e5m2, group_sums)
HT_SM90_GROUPED_SMALL_M(int8, none)
HT_SM90_GROUPED_SMALL_M(int8, group_sums)
