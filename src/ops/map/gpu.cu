#include "hw/image.h"
#include "ops/map/gpu.cuh"

HT_GPU_ENTRIES_BY_ACCESS(halftone::MapGpu)
