// Attention on Hopper, seen by the dispatch.
#pragma once
#include <string>

#include "ops/attention/kernels.h"

namespace halftone {

// "" or what the kernel does not take.
std::string attention_sm90_error(const AttentionProblem&);
extern const AttentionGpu attention_sm90_gpu;

}  // namespace halftone
