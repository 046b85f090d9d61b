#include "ops/gemm/sm90/mixed/instances.h"

HT_SM90_ENTRIES(e2m1, pairs)
HT_SM90_ENTRIES(e2m1, powers)
HT_SM90_SUMS(int4, sums)
