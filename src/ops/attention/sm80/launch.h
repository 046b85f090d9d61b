// Attention for all GPUs, seen by the dispatch.
#pragma once
#include <string>

#include "ops/attention/kernels.h"

namespace halftone {

// "" or what the kernel does not take.
std::string attention_sm80_error(const AttentionProblem&);
extern const AttentionGpu attention_sm80_gpu;

}  // namespace halftone
