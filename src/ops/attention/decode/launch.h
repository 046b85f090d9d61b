// Decode attention (one query token) as the dispatch sees it.
#pragma once
#include <string>

#include "ops/attention/kernels.h"

namespace halftone {

// "", or which argument of the problem the kernel does not take and why: 16-bit caches on every
// GPU, quantised ones on sm_90 and later, which convert them by one instruction.
std::string attention_decode_error(const AttentionProblem&);
std::string attention_decode_quantised_error(const AttentionProblem&);
extern const AttentionGpu attention_decode_gpu;

}  // namespace halftone
