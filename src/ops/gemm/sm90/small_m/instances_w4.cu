#include "hw/image.h"
#include "ops/gemm/sm90/small_m/w4.cuh"

#define HT_SM90_SMALL_M_W4(code, scales, columns)                          \
  HT_GPU_ENTRY(halftone::gemm::Sm90SmallMW4<halftone::gemm::GpuCode::code, \
                                            halftone::gemm::ScaleMode::scales, columns>)
HT_SM90_SMALL_M_W4(e2m1, e4m3_block, 16)
HT_SM90_SMALL_M_W4(e2m1, e4m3_block, 32)
HT_SM90_SMALL_M_W4(e2m1, e4m3_block, 64)
HT_SM90_SMALL_M_W4(e2m1, ue8m0, 16)
HT_SM90_SMALL_M_W4(e2m1, ue8m0, 32)
HT_SM90_SMALL_M_W4(int4, group_sums, 16)
HT_SM90_SMALL_M_W4(int4, group_sums, 32)
HT_SM90_SMALL_M_W4(int4, group32_sums, 16)
HT_SM90_SMALL_M_W4(int4, group32_sums, 32)
