// Host side of the operands of attention_sm80, which other kernels that dequantise share.
#pragma once
#include "halftone/attention.h"
#include "ops/attention/sm80/epilogue.cuh"

namespace halftone::attention_sm80 {

// [batch or pages, length, heads, dim], or [length, heads, dim].
Operand operand_of(const Tensor&, bool paged);

// Sets all parameters except tiles, splits and the rounding of P.
void set_problem(const AttentionProblem&, const AttentionTensors&, Params&);

}  // namespace halftone::attention_sm80
