#include "ops/product/sm90_fp8.cuh"
#include "ops/product/sm90_fp8_few.cuh"
#include "ops/product/sm90_instances.h"

HT_SM90_SUMS(e4m3, fp8)
HT_GPU_ENTRY(halftone::product::Sm90Fp8Multiply)
HT_GPU_ENTRY(halftone::product::Sm90Fp8Few64x64)
HT_GPU_ENTRY(halftone::product::Sm90Fp8Few64x128)
HT_GPU_ENTRY(halftone::product::Sm90Fp8Few128x64)
HT_GPU_ENTRY(halftone::product::Sm90Fp8Few128x192)
