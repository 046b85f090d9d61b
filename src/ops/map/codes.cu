#include "hw/image.h"
#include "ops/map/gpu_codes.cuh"

#define HT_MAP_CODES(format)                                                    \
  HT_GPU_ENTRY(halftone::MapCodesGpu<halftone::pipe::Access::format, 1, false>) \
  HT_GPU_ENTRY(halftone::MapCodesGpu<halftone::pipe::Access::format, 2, false>)

HT_MAP_CODES(f16)
HT_MAP_CODES(bf16)
