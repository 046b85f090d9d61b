#include "ops/gemm/sm90/mixed/instances.h"

HT_SM90_GEMMS(e5m2, none)
HT_SM90_GEMMS(e5m2, group_sums)
