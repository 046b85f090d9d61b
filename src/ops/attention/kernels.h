// The attention kernels as the dispatch chooses among them, and the rules they share.
#pragma once
#include <span>

#include "base/format_traits.h"
#include "base/kernel_table.h"
#include "halftone/attention.h"
#include "ops/attention/cpu/kernel.h"

namespace halftone {

// A GPU kernel, run on a real or simulated GPU.
struct AttentionGpu {
  void (*prepare)(AttentionPlan&);  // allocates what runs need: the workspace, and its bytes
  void (*run)(const AttentionPlan&, const AttentionTensors&, Stream&);
  std::string (*describe)(const AttentionPlan&);
};

using AttentionFunction = CpuOrGpu<const AttentionCpu*, const AttentionGpu*>;
struct AttentionKernel : KernelRow<AttentionProblem, AttentionFunction> {};

// In the order of preference.
std::span<const AttentionKernel> attention_kernels();

bool is_attention_mode(const AttentionMode&);

// "", or which rule the problem breaks.
std::string attention_problem_error(const AttentionProblem&);

inline int64_t value_dim(const AttentionProblem& p) {
  return p.value_dim != 0 ? p.value_dim : p.head_dim;
}
inline float softmax_scale(const AttentionProblem& p) {
  return p.softmax_scale.value_or(1.0f / __builtin_sqrtf(static_cast<float>(p.head_dim)));
}
// Elements that share a scale in a block format, 1 for the others.
inline int64_t group_of(Format f) { return has_group_scales(f) ? scale_group_of(f) : 1; }

// Lengths and offsets of one sequence of the batch.
struct AttentionSequence {
  int64_t query_begin = 0, queries = 0;  // row offset into q when cu_seqlens_q is given
  int64_t key_begin = 0, keys = 0;
};
AttentionSequence attention_sequence(const AttentionProblem&, const AttentionTensors&, int64_t b);

// Keys [begin, end) visible to query i of a sequence before the mask tensor; end <= begin: none.
struct AttentionKeys {
  int64_t begin = 0, end = 0;
};
AttentionKeys attention_keys(const AttentionProblem&, const AttentionSequence&, int64_t i);

// Checks every tensor against the problem; Error names the tensor.
void check_attention_tensors(const AttentionProblem&, const AttentionTensors&, const Device&);

}  // namespace halftone
