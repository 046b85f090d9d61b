#include "hw/image.h"
#include "ops/sampling/draw.cuh"

HT_GPU_ENTRY(halftone::WeighTokensGpu)
HT_GPU_ENTRY(halftone::SearchTokensGpu)
HT_GPU_ENTRY(halftone::ShareTokensGpu)
HT_GPU_ENTRY(halftone::DrawTokenGpu)
