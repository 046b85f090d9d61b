// GPU entries of fused activation or gate and quantisation, before sm_89: FP8 conversion in
// software.
#include "hw/image.h"
#include "ops/map/fused_quantize.cuh"

#define HT_MAP_QUANTIZE(format)                                                    \
  HT_GPU_ENTRY(halftone::MapQuantizeGpu<halftone::pipe::Access::format, 1, false>) \
  HT_GPU_ENTRY(halftone::MapQuantizeGpu<halftone::pipe::Access::format, 2, false>)

HT_MAP_QUANTIZE(f16)
HT_MAP_QUANTIZE(bf16)
