// In a .cu: the entries of norms whose rows become codes.
#pragma once
#include "hw/image.h"
#include "ops/norm/gpu.cuh"

#define HT_NORM_CODES_OF(format, convert, layer, sums, ...)                            \
  HT_GPU_ENTRY(                                                                        \
      halftone::NormWholeGpu<halftone::pipe::Access::format, layer, sums, __VA_ARGS__, \
                             halftone::RowCodes<halftone::pipe::Access::format, convert>>)
#define HT_NORM_CODES_BY_KIND(format, convert, ...)            \
  HT_NORM_CODES_OF(format, convert, false, false, __VA_ARGS__) \
  HT_NORM_CODES_OF(format, convert, false, true, __VA_ARGS__)  \
  HT_NORM_CODES_OF(format, convert, true, false, __VA_ARGS__)  \
  HT_NORM_CODES_OF(format, convert, true, true, __VA_ARGS__)
#define HT_NORM_CODES(format, convert)             \
  HT_NORM_CODES_BY_KIND(format, convert, 2, false) \
  HT_NORM_CODES_BY_KIND(format, convert, 4, true)  \
  HT_NORM_CODES_BY_KIND(format, convert, 8, false)
