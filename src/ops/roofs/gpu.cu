#include "hw/image.h"
#include "ops/roofs/gpu.cuh"

HT_GPU_ENTRY(halftone::MemoryRoof)
