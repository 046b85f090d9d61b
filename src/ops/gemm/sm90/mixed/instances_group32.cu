// Integers with a scale for 32 elements.
#include "ops/gemm/sm90/mixed/instances.h"

HT_SM90_ENTRIES(int8, short_sums)
HT_SM90_ENTRIES(int4, short_sums)
