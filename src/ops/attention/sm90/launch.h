// Attention kernels of sm_90a as the dispatch sees them: BF16/FP16, FP8, and quantised operands
// that are dequantised to BF16 first.
#pragma once
#include <string>

#include "ops/attention/kernels.h"

namespace halftone {

// "", or which argument of the problem the kernel does not take and why.
std::string attention_sm90_error(const AttentionProblem&);
extern const AttentionGpu attention_sm90_gpu;

std::string attention_sm90_fp8_error(const AttentionProblem&);
extern const AttentionGpu attention_sm90_fp8_gpu;

std::string attention_sm90_dequant_error(const AttentionProblem&);
extern const AttentionGpu attention_sm90_dequant_gpu;

}  // namespace halftone
