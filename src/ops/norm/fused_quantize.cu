// GPU entries of fused norm and quantisation, before sm_89: FP8 conversion in software.
#include "ops/norm/fused_quantize_entries.h"

HT_NORM_QUANTIZE(f16, false)
HT_NORM_QUANTIZE(bf16, false)
