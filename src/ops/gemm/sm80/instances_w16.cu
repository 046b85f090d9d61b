#include "ops/gemm/sm80/instances.h"

HT_PRODUCT_ENTRIES(f32)
HT_PRODUCT_ENTRIES(f16)
HT_PRODUCT_ENTRIES(f16_terms)
HT_PRODUCT_ENTRIES(bf16)
HT_GPU_ENTRY(halftone::product::GpuMany<halftone::product::GpuCode::f16_sums>)
HT_STAY_ENTRY(f16, wide)
HT_STAY_ENTRY(bf16, wide)
