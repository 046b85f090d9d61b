// GPU entries of fused activation or gate and quantisation from sm_89 on, which convert to FP8 by
// instructions.
#include "hw/image.h"
#include "ops/map/fused_quantize.cuh"

#define HT_MAP_QUANTIZE(format)                                                   \
  HT_GPU_ENTRY(halftone::MapQuantizeGpu<halftone::pipe::Access::format, 1, true>) \
  HT_GPU_ENTRY(halftone::MapQuantizeGpu<halftone::pipe::Access::format, 2, true>)

HT_MAP_QUANTIZE(f16)
HT_MAP_QUANTIZE(bf16)
