#include "ops/gemm/sm80/instances.h"

#define HT_X(code, bits) HT_GEMM_ENTRIES(code)
HALFTONE_GPU_CODES_W16(HT_X)
HT_GPU_ENTRY(halftone::gemm::GpuLargeTile<halftone::gemm::GpuCode::f16_sums>)
HT_PERSISTENT_ENTRY(f16, wide)
HT_PERSISTENT_ENTRY(bf16, wide)
