// An operand of attention for the kernels that expand codes (host code).
#pragma once
#include "halftone/tensor.h"
#include "ops/attention/sm80_operand.cuh"

namespace halftone::attention_sm80 {

// [batch or pages, length, heads, dim], or [length, heads, dim].
Operand operand_of(const Tensor&, bool paged);

}  // namespace halftone::attention_sm80
