// GPU entry of convolution.
#include "hw/image.h"
#include "ops/conv/gpu.cuh"

HT_GPU_ENTRY(halftone::Conv1dGpu)
