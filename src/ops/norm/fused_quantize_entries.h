// In a .cu: the GPU entries of fused norm and quantisation.
#pragma once
#include "hw/image.h"
#include "ops/norm/gpu.cuh"

#define HT_NORM_CODES_OF(format, convert, ...)                                        \
  HT_GPU_ENTRY(                                                                       \
      halftone::NormWholeGpu<halftone::pipe::Access::format, true, true, __VA_ARGS__, \
                             halftone::RowCodes<halftone::pipe::Access::format, convert>>)
#define HT_NORM_QUANTIZE(format, convert)     \
  HT_NORM_CODES_OF(format, convert, 2, false) \
  HT_NORM_CODES_OF(format, convert, 4, true)  \
  HT_NORM_CODES_OF(format, convert, 8, false)
