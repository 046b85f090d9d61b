#include "hw/image.h"
#include "ops/embedding/gpu.cuh"

HT_GPU_ENTRY(halftone::EmbeddingGpu)
