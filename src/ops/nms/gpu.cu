// GPU entries of non-maximum suppression.
#include "hw/image.h"
#include "ops/nms/gpu.cuh"

HT_GPU_ENTRY(halftone::NmsSortGpu)
HT_GPU_ENTRY(halftone::NmsWalkGpu)
