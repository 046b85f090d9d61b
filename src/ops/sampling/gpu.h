// Choosing tokens on a GPU.
#pragma once
#include <span>

#include "halftone/sampling.h"

namespace halftone {

// The largest logit of each row, ties to the lower index, and its log probability; waits for them.
void largest_logits_gpu(const Tensor& logits, std::span<SampledToken> tokens, Stream&);

}  // namespace halftone
