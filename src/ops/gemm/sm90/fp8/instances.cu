#include "ops/gemm/sm90/fp8/gemm.cuh"
#include "ops/gemm/sm90/fp8/small_m.cuh"
#include "ops/gemm/sm90/mixed/instances.h"

HT_SM90_GEMMS_TO_128(e4m3, fp8_promotion)
HT_GPU_ENTRY(halftone::gemm::Sm90Fp8Gemm)
HT_GPU_ENTRY(halftone::gemm::Sm90Fp8SmallM64x64)
HT_GPU_ENTRY(halftone::gemm::Sm90Fp8SmallM64x128)
HT_GPU_ENTRY(halftone::gemm::Sm90Fp8SmallM128x64)
HT_GPU_ENTRY(halftone::gemm::Sm90Fp8SmallM128x192)
