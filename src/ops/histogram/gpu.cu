// GPU entry of histograms.
#include "hw/image.h"
#include "ops/histogram/gpu.cuh"

HT_GPU_ENTRY(halftone::HistogramGpu)
