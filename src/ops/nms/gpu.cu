#include "hw/image.h"
#include "ops/nms/gpu.cuh"

HT_GPU_ENTRY(halftone::NmsSortGpu)
HT_GPU_ENTRY(halftone::NmsWalkGpu)
