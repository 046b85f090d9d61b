#include "ops/product/gpu_instances.h"

HT_PRODUCT_ENTRIES(e4m3)
HT_PRODUCT_ENTRIES(e5m2)
HT_PRODUCT_ENTRIES(int8)
HT_STAY_ENTRY(int8)
