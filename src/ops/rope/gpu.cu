#include "hw/image.h"
#include "ops/rope/gpu.cuh"

HT_GPU_ENTRY(halftone::RopeGpu)
