#include "hw/image.h"
#include "ops/gemm/sm90/gemv/gemv.cuh"

#define HT_SM90_GEMV(code, scales) \
  HT_GPU_ENTRY(                    \
      halftone::gemm::Sm90Gemv<halftone::gemm::GpuCode::code, halftone::gemm::ScaleMode::scales>)
#define HT_SM90_GEMV_TMA_SCALES(code, scales)                          \
  HT_GPU_ENTRY(halftone::gemm::Sm90Gemv<halftone::gemm::GpuCode::code, \
                                        halftone::gemm::ScaleMode::scales, true>)
// Scales by TMA with the weights, or loaded by lanes where TMA cannot.
#define HT_SM90_GEMV_BOTH(code, scales) \
  HT_SM90_GEMV(code, scales) HT_SM90_GEMV_TMA_SCALES(code, scales)
HT_SM90_GEMV(bf16, none)
HT_SM90_GEMV(f16, none)
HT_SM90_GEMV(f16_terms, none)
HT_SM90_GEMV(e4m3, none)
HT_SM90_GEMV_BOTH(e4m3, f32_group_sums)
HT_SM90_GEMV_BOTH(e4m3, f16_group_sums)
HT_SM90_GEMV_BOTH(e4m3, ue8m0)
HT_SM90_GEMV(e5m2, none)
HT_SM90_GEMV_BOTH(e5m2, f32_group_sums)
HT_SM90_GEMV_BOTH(e5m2, f16_group_sums)
HT_SM90_GEMV(int8, none)
HT_SM90_GEMV_BOTH(int8, f32_group_sums)
HT_SM90_GEMV_BOTH(int8, f16_group_sums)
HT_SM90_GEMV_TMA_SCALES(e2m1, e4m3_block)
HT_SM90_GEMV_BOTH(e2m1, ue8m0)
HT_SM90_GEMV_BOTH(int4, f32_group_sums)
HT_SM90_GEMV_BOTH(int4, f16_group_sums)
