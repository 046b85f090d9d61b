#include "hw/image.h"
#include "ops/gemm/sm90/small_m/w4.cuh"

#define HT_SM90_SMALL_M_W4(code, scales, columns)                          \
  HT_GPU_ENTRY(halftone::gemm::Sm90SmallMW4<halftone::gemm::GpuCode::code, \
                                            halftone::gemm::Sm90Scales::scales, columns>)
HT_SM90_SMALL_M_W4(e2m1, pairs, 16)
HT_SM90_SMALL_M_W4(e2m1, pairs, 32)
HT_SM90_SMALL_M_W4(e2m1, pairs, 64)
HT_SM90_SMALL_M_W4(e2m1, powers, 16)
HT_SM90_SMALL_M_W4(e2m1, powers, 32)
HT_SM90_SMALL_M_W4(int4, sums, 16)
HT_SM90_SMALL_M_W4(int4, sums, 32)
HT_SM90_SMALL_M_W4(int4, short_sums, 16)
HT_SM90_SMALL_M_W4(int4, short_sums, 32)
