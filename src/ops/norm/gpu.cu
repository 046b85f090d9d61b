#include "hw/image.h"
#include "ops/norm/gpu.cuh"

HT_GPU_ENTRY(halftone::NormGpu)
