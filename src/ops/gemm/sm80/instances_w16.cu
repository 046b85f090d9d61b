#include "ops/gemm/sm80/instances.h"

HT_GEMM_ENTRIES(f32)
HT_GEMM_ENTRIES(f16)
HT_GEMM_ENTRIES(f16_terms)
HT_GEMM_ENTRIES(bf16)
HT_GPU_ENTRY(halftone::gemm::GpuLargeTile<halftone::gemm::GpuCode::f16_sums>)
HT_PERSISTENT_ENTRY(f16, wide)
HT_PERSISTENT_ENTRY(bf16, wide)
