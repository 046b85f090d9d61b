// FP32 scales of E4M3 operands of attention on sm_90a, host side.
#pragma once
#include "halftone/tensor.h"
#include "ops/attention/sm90/fp8/source.cuh"

namespace halftone::attention_sm90 {

// Rows that share a scale; 0: one for a head, or for all.
int64_t rows_of_scale(const Tensor&);

// Kernel parameters for the scales of [batch, length, heads, dim] or [length, heads, dim].
TensorScales scales_of(const Tensor&);

}  // namespace halftone::attention_sm90
