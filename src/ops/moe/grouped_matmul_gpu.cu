#include "hw/image.h"
#include "ops/moe/gpu_groups.cuh"

HT_GPU_ENTRY(halftone::GpuGroups)
