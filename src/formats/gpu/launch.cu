#include "formats/gpu/adaptive.cuh"
#include "formats/gpu/adaptive_groups.cuh"
#include "formats/gpu/amax.cuh"
#include "formats/gpu/dequantize.cuh"
#include "hw/image.h"

HT_GPU_ENTRY(halftone::QuantizeAdaptiveGpu)
HT_GPU_ENTRIES_OF_WHOLE_ROWS(halftone::QuantizeAdaptiveGroupsGpu)
HT_GPU_ENTRIES_BY_ACCESS(halftone::AmaxGpu)
HT_GPU_ENTRY(halftone::TensorScaleGpu)
HT_GPU_ENTRY(halftone::DequantizeGpu)
