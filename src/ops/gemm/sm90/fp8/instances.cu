#include "ops/gemm/sm90/fp8/gemm.cuh"
#include "ops/gemm/sm90/fp8/small_m.cuh"
#include "ops/gemm/sm90/mixed/instances.h"

HT_SM90_SUMS(e4m3, fp8)
HT_GPU_ENTRY(halftone::gemm::Sm90Fp8Multiply)
HT_GPU_ENTRY(halftone::gemm::Sm90Fp8Few64x64)
HT_GPU_ENTRY(halftone::gemm::Sm90Fp8Few64x128)
HT_GPU_ENTRY(halftone::gemm::Sm90Fp8Few128x64)
HT_GPU_ENTRY(halftone::gemm::Sm90Fp8Few128x192)
