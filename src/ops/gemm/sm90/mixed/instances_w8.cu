#include "ops/gemm/sm90/mixed/instances.h"

HT_SM90_GEMMS(e4m3, none)
HT_SM90_GEMMS(e4m3, ue8m0)
HT_SM90_GEMMS_TO_128(e4m3, group_sums)
HT_SM90_GEMMS(int8, none)
HT_SM90_GEMMS_TO_128(int8, group_sums)
