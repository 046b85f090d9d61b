// GPU entry of KV cache append.
#include "hw/image.h"
#include "ops/kv_cache/gpu.cuh"

HT_GPU_ENTRY(halftone::AppendGpu)
