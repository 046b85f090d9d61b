// GPU entries of RoPE.
#include "hw/image.h"
#include "ops/rope/gpu.cuh"

HT_GPU_ENTRY(halftone::RopeGpu)
HT_GPU_ENTRIES_OF_WHOLE_ROWS(halftone::RopeHalvesGpu)
