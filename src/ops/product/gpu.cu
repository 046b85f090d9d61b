#include "hw/image.h"
#include "ops/product/gpu_gather.cuh"
#include "ops/product/gpu_rows.cuh"

HT_GPU_ENTRY(halftone::product::GpuRows)
HT_GPU_ENTRY(halftone::product::GpuGather)
