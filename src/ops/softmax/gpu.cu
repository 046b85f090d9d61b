#include "hw/image.h"
#include "ops/softmax/gpu.cuh"

HT_GPU_ENTRY(halftone::SoftmaxGpu)
