#include "hw/image.h"
#include "ops/map/gpu.cuh"

HT_GPU_ENTRY(halftone::MapGpu)
