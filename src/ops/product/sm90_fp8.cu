#include "ops/product/sm90_instances.h"

HT_SM90_SUMS(e4m3, fp8)
HT_GPU_ENTRY(halftone::product::Sm90Fp8Multiply)
