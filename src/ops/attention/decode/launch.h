// Attention of one query token over a cache, seen by the dispatch.
#pragma once
#include <string>

#include "ops/attention/kernels.h"

namespace halftone {

// "" or what the kernels of decode do not take: caches in 16 bits on every GPU, and codes that
// sm_90 and later convert by one instruction.
std::string attention_decode_error(const AttentionProblem&);
std::string attention_decode_codes_error(const AttentionProblem&);
extern const AttentionGpu attention_decode_gpu;

}  // namespace halftone
