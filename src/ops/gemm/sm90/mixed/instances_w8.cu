#include "ops/gemm/sm90/mixed/instances.h"

HT_SM90_ENTRIES(e4m3, none)
HT_SM90_ENTRIES(e4m3, powers)
HT_SM90_SUMS(e4m3, sums)
HT_SM90_ENTRIES(int8, none)
HT_SM90_SUMS(int8, sums)
