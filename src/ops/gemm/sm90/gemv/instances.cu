#include "hw/image.h"
#include "ops/gemm/sm90/gemv/gemv.cuh"

#define HT_SM90_ROW(code, scales)                                           \
  HT_GPU_ENTRY(halftone::product::Sm90Row<halftone::product::GpuCode::code, \
                                          halftone::product::Sm90RowScales::scales>)
#define HT_SM90_ROW_COPIED(code, scales)                                    \
  HT_GPU_ENTRY(halftone::product::Sm90Row<halftone::product::GpuCode::code, \
                                          halftone::product::Sm90RowScales::scales, true>)
// Whose scales come with the codes, or by lanes where they cannot.
#define HT_SM90_ROW_SCALES(code, scales) HT_SM90_ROW(code, scales) HT_SM90_ROW_COPIED(code, scales)
HT_SM90_ROW(bf16, none)
HT_SM90_ROW(f16, none)
HT_SM90_ROW(f16_terms, none)
HT_SM90_ROW(e4m3, none)
HT_SM90_ROW_SCALES(e4m3, words)
HT_SM90_ROW_SCALES(e4m3, halves)
HT_SM90_ROW_SCALES(e4m3, powers)
HT_SM90_ROW(e5m2, none)
HT_SM90_ROW_SCALES(e5m2, words)
HT_SM90_ROW_SCALES(e5m2, halves)
HT_SM90_ROW(int8, none)
HT_SM90_ROW_SCALES(int8, words)
HT_SM90_ROW_SCALES(int8, halves)
HT_SM90_ROW_COPIED(e2m1, pairs)
HT_SM90_ROW_SCALES(e2m1, powers)
HT_SM90_ROW_SCALES(int4, words)
HT_SM90_ROW_SCALES(int4, halves)
