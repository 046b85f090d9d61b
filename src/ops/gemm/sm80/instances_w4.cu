#include "ops/gemm/sm80/instances.h"

#define HT_X(code, bits) HT_GEMM_ENTRIES(code)
HALFTONE_GPU_CODES_W4(HT_X)
HT_PERSISTENT_ENTRY(e2m1, wide)
HT_PERSISTENT_ENTRY(e2m1, ue8m0)
HT_PERSISTENT_ENTRY(int4, wide)
