#include "ops/gemm/sm80/instances.h"

HT_PRODUCT_ENTRIES(e2m1)
HT_PRODUCT_ENTRIES(int4)
HT_STAY_ENTRY(e2m1, wide)
HT_STAY_ENTRY(e2m1, lanes)
HT_STAY_ENTRY(int4, wide)
