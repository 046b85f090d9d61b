// GPU entries of the elementwise kernels.
#include "hw/image.h"
#include "ops/map/gpu.cuh"

#define HT_WHOLE(format)                                                 \
  HT_GPU_ENTRY(halftone::MapWholeGpu<halftone::pipe::Access::format, 1>) \
  HT_GPU_ENTRY(halftone::MapWholeGpu<halftone::pipe::Access::format, 2>) \
  HT_GPU_ENTRY(halftone::MapWholeGpu<halftone::pipe::Access::format, 3>)
HT_GPU_ENTRY(halftone::MapGpu)
HT_WHOLE(f32)
HT_WHOLE(f16)
HT_WHOLE(bf16)
