#include "ops/gemm/sm80/instances.h"

HT_GEMM_ENTRIES(e2m1)
HT_GEMM_ENTRIES(int4)
HT_PERSISTENT_ENTRY(e2m1, wide)
HT_PERSISTENT_ENTRY(e2m1, lanes)
HT_PERSISTENT_ENTRY(int4, wide)
