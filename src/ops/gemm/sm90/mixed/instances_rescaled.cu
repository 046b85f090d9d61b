// Tiles of 256 columns with group scales: rescaled accumulator.
#include "ops/gemm/sm90/mixed/instances.h"

HT_SM90_GEMM(e4m3, sums, 256)
HT_SM90_GEMM(int8, sums, 256)
HT_SM90_GEMM(int4, sums, 256)
