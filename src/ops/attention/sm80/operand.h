// What kernels that expand codes are told of a problem (host code).
#pragma once
#include "halftone/attention.h"
#include "ops/attention/sm80/epilogue.cuh"

namespace halftone::attention_sm80 {

// [batch or pages, length, heads, dim], or [length, heads, dim].
Operand operand_of(const Tensor&, bool paged);

// Everything but tiles, splits and the rounding of P.
void set_problem(const AttentionProblem&, const AttentionTensors&, Params&);

}  // namespace halftone::attention_sm80
