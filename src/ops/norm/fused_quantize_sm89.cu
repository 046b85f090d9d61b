// GPU entries of fused norm and quantisation from sm_89 on, which convert to FP8 by instructions.
#include "ops/norm/fused_quantize_entries.h"

HT_NORM_QUANTIZE(f16, true)
HT_NORM_QUANTIZE(bf16, true)
