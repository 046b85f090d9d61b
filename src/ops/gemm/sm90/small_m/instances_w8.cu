#include "hw/image.h"
#include "ops/gemm/sm90/small_m/w8.cuh"

#define HT_SM90_DOZENS_OF(code, scales, tiles)                                 \
  HT_GPU_ENTRY(halftone::product::Sm90Dozens<halftone::product::GpuCode::code, \
                                             halftone::product::Sm90Scales::scales, tiles>)
#define HT_SM90_DOZENS(code, scales) \
  HT_SM90_DOZENS_OF(code, scales, 2) HT_SM90_DOZENS_OF(code, scales, 4)
HT_SM90_DOZENS(e4m3, none)
HT_SM90_DOZENS(e4m3, sums)
HT_SM90_DOZENS(e4m3, powers)
HT_SM90_DOZENS(e5m2, none)
HT_SM90_DOZENS(e5m2, sums)
HT_SM90_DOZENS(int8, none)
HT_SM90_DOZENS(int8, sums)
