#include "ops/gemm/sm90/mixed/instances.h"

HT_SM90_GEMMS(e2m1, e4m3_block)
HT_SM90_GEMMS(e2m1, ue8m0)
HT_SM90_GEMMS_TO_128(int4, group_sums)
