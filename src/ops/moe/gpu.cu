#include "hw/image.h"
#include "ops/moe/gpu_combine.cuh"
#include "ops/moe/gpu_route.cuh"
#include "ops/moe/gpu_sort.cuh"

HT_GPU_ENTRY(halftone::GpuRoute<false>)
HT_GPU_ENTRY(halftone::GpuRoute<true>)
HT_GPU_ENTRY(halftone::GpuSort)
HT_GPU_ENTRY(halftone::GpuCombine)
