#include "hw/image.h"
#include "ops/gemm/sm90/gemv/grouped.cuh"

#define HT_SM90_GROUPED_GEMV(code, scales)                                    \
  HT_GPU_ENTRY(halftone::gemm::Sm90GroupedGemv<halftone::gemm::GpuCode::code, \
                                               halftone::gemm::ScaleMode::scales>)
#define HT_SM90_GROUPED_GEMV_MODE(code, scales, mode)                             \
  HT_GPU_ENTRY(halftone::gemm::Sm90GroupedGemv<halftone::gemm::GpuCode::code,     \
                                               halftone::gemm::ScaleMode::scales, \
                                               halftone::gemm::ScaleCopy::mode>)
#define HT_SM90_GROUPED_GEMV_LINES(code, scales) \
  HT_SM90_GROUPED_GEMV(code, scales) HT_SM90_GROUPED_GEMV_MODE(code, scales, tensor_lines)
HT_SM90_GROUPED_GEMV(e4m3, none)
HT_SM90_GROUPED_GEMV(e4m3, f32_group_sums)
HT_SM90_GROUPED_GEMV(e4m3, f16_group_sums)
HT_SM90_GROUPED_GEMV(e4m3, ue8m0)
HT_SM90_GROUPED_GEMV(e5m2, none)
HT_SM90_GROUPED_GEMV(e5m2, f32_group_sums)
HT_SM90_GROUPED_GEMV(e5m2, f16_group_sums)
HT_SM90_GROUPED_GEMV(int8, none)
HT_SM90_GROUPED_GEMV(int8, f32_group_sums)
HT_SM90_GROUPED_GEMV(int8, f16_group_sums)
HT_SM90_GROUPED_GEMV_LINES(e2m1, e4m3_block)
HT_SM90_GROUPED_GEMV_LINES(e2m1, ue8m0)
HT_SM90_GROUPED_GEMV_MODE(e2m1, ue8m0, bulk_rows)
HT_SM90_GROUPED_GEMV_LINES(int4, f32_group_sums)
HT_SM90_GROUPED_GEMV_LINES(int4, f16_group_sums)
