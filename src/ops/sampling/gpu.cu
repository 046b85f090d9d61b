// GPU entries of largest logit and log-sum-exp.
#include "hw/image.h"
#include "ops/sampling/gpu.cuh"

HT_GPU_ENTRY(halftone::LargestLogitGpu)
HT_GPU_ENTRY(halftone::LogitSumGpu)
