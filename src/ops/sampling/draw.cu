// GPU entries of sampling.
#include "hw/image.h"
#include "ops/sampling/draw.cuh"

HT_GPU_ENTRY(halftone::ScoreTokensGpu)
HT_GPU_ENTRY(halftone::SearchTokensGpu)
HT_GPU_ENTRY(halftone::CutTiesGpu)
HT_GPU_ENTRY(halftone::MeanDistanceGpu)
HT_GPU_ENTRY(halftone::DrawTokenGpu)
HT_GPU_ENTRY(halftone::AdjustTokensGpu)
