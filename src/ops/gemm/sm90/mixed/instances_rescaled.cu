// Tiles of 256 columns with group scales: rescaled accumulator.
#include "ops/gemm/sm90/mixed/instances.h"

HT_SM90_GEMM(e4m3, group_sums, 256)
HT_SM90_GEMM(int8, group_sums, 256)
HT_SM90_GEMM(int4, group_sums, 256)
