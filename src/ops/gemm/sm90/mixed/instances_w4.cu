#include "ops/gemm/sm90/mixed/instances.h"

HT_SM90_GEMMS(e2m1, pairs)
HT_SM90_GEMMS(e2m1, powers)
HT_SM90_GEMMS_TO_128(int4, sums)
