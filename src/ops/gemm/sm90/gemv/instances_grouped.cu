#include "hw/image.h"
#include "ops/gemm/sm90/gemv/grouped.cuh"

#define HT_SM90_GROUPED_GEMV(code, scales)                                    \
  HT_GPU_ENTRY(halftone::gemm::Sm90GroupedGemv<halftone::gemm::GpuCode::code, \
                                               halftone::gemm::Sm90GemvScales::scales>)
#define HT_SM90_GROUPED_GEMV_MODE(code, scales, mode)                                  \
  HT_GPU_ENTRY(halftone::gemm::Sm90GroupedGemv<halftone::gemm::GpuCode::code,          \
                                               halftone::gemm::Sm90GemvScales::scales, \
                                               halftone::gemm::Sm90ExpertScales::mode>)
#define HT_SM90_GROUPED_GEMV_LINES(code, scales) \
  HT_SM90_GROUPED_GEMV(code, scales) HT_SM90_GROUPED_GEMV_MODE(code, scales, lines)
HT_SM90_GROUPED_GEMV(e4m3, none)
HT_SM90_GROUPED_GEMV(e4m3, words)
HT_SM90_GROUPED_GEMV(e4m3, halves)
HT_SM90_GROUPED_GEMV(e4m3, powers)
HT_SM90_GROUPED_GEMV(e5m2, none)
HT_SM90_GROUPED_GEMV(e5m2, words)
HT_SM90_GROUPED_GEMV(e5m2, halves)
HT_SM90_GROUPED_GEMV(int8, none)
HT_SM90_GROUPED_GEMV(int8, words)
HT_SM90_GROUPED_GEMV(int8, halves)
HT_SM90_GROUPED_GEMV_LINES(e2m1, pairs)
HT_SM90_GROUPED_GEMV_LINES(e2m1, powers)
HT_SM90_GROUPED_GEMV_MODE(e2m1, powers, rows)
HT_SM90_GROUPED_GEMV_LINES(int4, words)
HT_SM90_GROUPED_GEMV_LINES(int4, halves)
