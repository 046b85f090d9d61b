#include "ops/gemm/sm80/instances.h"

HT_PRODUCT_ENTRIES(e4m3)
HT_PRODUCT_ENTRIES(e5m2)
HT_PRODUCT_ENTRIES(int8)
HT_STAY_ENTRY(e4m3, wide)
HT_STAY_ENTRY(e4m3, lanes)
HT_STAY_ENTRY(e5m2, wide)
HT_STAY_ENTRY(e5m2, lanes)
HT_STAY_ENTRY(int8, wide)
