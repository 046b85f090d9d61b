// INT8 and INT4 with group scales of 32 elements: rescaled accumulator at every tile size.
#include "ops/gemm/sm90/mixed/instances.h"

HT_SM90_GEMMS(int8, group32_sums)
HT_SM90_GEMMS(int4, group32_sums)
