// Scales of E4M3 operands of attention on Hopper, on the host.
#pragma once
#include "halftone/tensor.h"
#include "ops/attention/sm90/fp8/source.cuh"

namespace halftone::attention_sm90 {

// Rows that share a scale; 0: those of a head, or all.
int64_t rows_of_scale(const Tensor&);

// What a kernel is told of [batch, length, heads, dim] or [length, heads, dim].
OperandScales scales_of(const Tensor&);

}  // namespace halftone::attention_sm90
