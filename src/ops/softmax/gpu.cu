#include "hw/image.h"
#include "ops/softmax/gpu.cuh"

HT_GPU_ENTRIES_BY_ACCESS(halftone::SoftmaxGpu)
