// GPU entries of embedding lookup.
#include "ops/embedding/gpu.cuh"

HT_GPU_ENTRY(halftone::EmbeddingGpu)
HT_GPU_ENTRY(halftone::EmbeddingCopyGpu)
