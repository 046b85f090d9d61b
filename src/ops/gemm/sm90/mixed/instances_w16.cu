#include "ops/gemm/sm90/mixed/instances.h"

HT_SM90_ENTRIES(bf16, none)
HT_SM90_ENTRIES(f16, none)
