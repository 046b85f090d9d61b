// Choosing tokens on a GPU.
#pragma once
#include <span>

#include "ops/sampling/draw.h"

namespace halftone {

// The token of each row and its log probability; waits for them.
void sample_rows_gpu(const Tensor& logits, std::span<const DrawRow>,
                     std::span<const TokenAdjustment>, std::span<SampledToken>, Stream&);

}  // namespace halftone
