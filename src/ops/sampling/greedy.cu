// GPU entry of greedy decoding.
#include "hw/image.h"
#include "ops/sampling/greedy.cuh"

HT_GPU_ENTRY(halftone::NextTokenGpu)
