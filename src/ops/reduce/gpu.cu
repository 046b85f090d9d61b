// GPU entries of the reductions.
#include "ops/reduce/gpu.cuh"

HT_GPU_ENTRIES_BY_ACCESS(halftone::ReduceRowsGpu)
HT_GPU_ENTRIES_BY_ACCESS(halftone::ReduceColumnsGpu)
HT_GPU_ENTRY(halftone::ReduceChunksGpu)
