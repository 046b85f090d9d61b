#include "hw/image.h"
#include "ops/gemm/sm80/activations.cuh"
#include "ops/gemm/sm80/gather.cuh"

HT_GPU_ENTRY(halftone::gemm::GpuRows)
HT_GPU_ENTRY(halftone::gemm::GpuGather)
