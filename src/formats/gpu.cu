#include "formats/gpu.cuh"
#include "hw/image.h"

HT_GPU_ENTRY(halftone::QuantizeGpu<false>)
HT_GPU_ENTRY(halftone::AmaxGpu)
HT_GPU_ENTRY(halftone::DequantizeGpu)
