#include "ops/gemm/sm80/instances.h"

#define HT_X(code, bits) HT_GEMM_ENTRIES(code)
HALFTONE_GPU_CODES_W8(HT_X)
HT_PERSISTENT_ENTRY(e4m3, wide)
HT_PERSISTENT_ENTRY(e4m3, ue8m0)
HT_PERSISTENT_ENTRY(e5m2, wide)
HT_PERSISTENT_ENTRY(e5m2, ue8m0)
HT_PERSISTENT_ENTRY(int8, wide)
