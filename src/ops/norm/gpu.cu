#include "hw/image.h"
#include "ops/norm/gpu.cuh"

HT_GPU_ENTRIES_BY_ACCESS(halftone::NormGpu)
