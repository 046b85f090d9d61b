// GPU entries of transposition.
#include "hw/image.h"
#include "ops/transpose/gpu.cuh"

HT_GPU_ENTRY(halftone::PermuteGpu)
HT_GPU_ENTRY(halftone::TransposeGpu<uint8_t>)
HT_GPU_ENTRY(halftone::TransposeGpu<uint16_t>)
HT_GPU_ENTRY(halftone::TransposeGpu<uint32_t>)
HT_GPU_ENTRY(halftone::TransposeGpu<uint64_t>)
