#include "hw/image.h"
#include "ops/gemm/sm90/gemv/gemv.cuh"

#define HT_SM90_GEMV(code, scales)                                     \
  HT_GPU_ENTRY(halftone::gemm::Sm90Gemv<halftone::gemm::GpuCode::code, \
                                        halftone::gemm::Sm90GemvScales::scales>)
#define HT_SM90_GEMV_TMA_SCALES(code, scales)                          \
  HT_GPU_ENTRY(halftone::gemm::Sm90Gemv<halftone::gemm::GpuCode::code, \
                                        halftone::gemm::Sm90GemvScales::scales, true>)
// Scales by TMA with the weights, or loaded by lanes where TMA cannot.
#define HT_SM90_GEMV_BOTH(code, scales) \
  HT_SM90_GEMV(code, scales) HT_SM90_GEMV_TMA_SCALES(code, scales)
HT_SM90_GEMV(bf16, none)
HT_SM90_GEMV(f16, none)
HT_SM90_GEMV(f16_terms, none)
HT_SM90_GEMV(e4m3, none)
HT_SM90_GEMV_BOTH(e4m3, words)
HT_SM90_GEMV_BOTH(e4m3, halves)
HT_SM90_GEMV_BOTH(e4m3, powers)
HT_SM90_GEMV(e5m2, none)
HT_SM90_GEMV_BOTH(e5m2, words)
HT_SM90_GEMV_BOTH(e5m2, halves)
HT_SM90_GEMV(int8, none)
HT_SM90_GEMV_BOTH(int8, words)
HT_SM90_GEMV_BOTH(int8, halves)
HT_SM90_GEMV_TMA_SCALES(e2m1, pairs)
HT_SM90_GEMV_BOTH(e2m1, powers)
HT_SM90_GEMV_BOTH(int4, words)
HT_SM90_GEMV_BOTH(int4, halves)
