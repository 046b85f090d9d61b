#include "ops/norm/codes_entries.h"

HT_NORM_CODES(f16, false)
HT_NORM_CODES(bf16, false)
