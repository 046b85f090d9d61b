#include "hw/image.h"
#include "ops/reduce/gpu.cuh"

HT_GPU_ENTRY(halftone::ReduceRowsGpu)
HT_GPU_ENTRY(halftone::ReduceColumnsGpu)
