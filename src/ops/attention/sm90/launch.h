// Attention on Hopper, seen by the dispatch.
#pragma once
#include <string>

#include "ops/attention/kernels.h"

namespace halftone {

// "" or what the kernel for bf16 and f16 does not take, the one for fp8, and the one that expands
// quantised keys.
std::string attention_sm90_error(const AttentionProblem&);
extern const AttentionGpu attention_sm90_gpu;

std::string attention_sm90_fp8_error(const AttentionProblem&);
extern const AttentionGpu attention_sm90_fp8_gpu;

std::string attention_sm90_dequant_error(const AttentionProblem&);
extern const AttentionGpu attention_sm90_dequant_gpu;

}  // namespace halftone
