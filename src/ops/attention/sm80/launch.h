// attention_sm80, the attention kernel for every mask, layout and mode on every GPU, as the
// dispatch sees it.
#pragma once
#include <string>

#include "ops/attention/kernels.h"

namespace halftone {

// "", or which argument of the problem the kernel does not take and why.
std::string attention_sm80_error(const AttentionProblem&);
extern const AttentionGpu attention_sm80_gpu;

}  // namespace halftone
