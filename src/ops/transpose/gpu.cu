#include "hw/image.h"
#include "ops/transpose/gpu.cuh"

HT_GPU_ENTRY(halftone::PermuteGpu)
