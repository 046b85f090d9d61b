#include "ops/gemm/sm90/mixed/instances.h"

HT_SM90_GEMMS(bf16, none)
HT_SM90_GEMMS(f16, none)
