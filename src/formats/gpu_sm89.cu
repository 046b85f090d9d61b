#include "formats/gpu.cuh"
#include "hw/image.h"

HT_GPU_ENTRY(halftone::QuantizeGpu<true>)
