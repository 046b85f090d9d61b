// What the driver and the reference of sparse attention share.
#pragma once
#include <vector>

#include "base/kernel_table.h"
#include "ops/attention/sparse/latent.h"

namespace halftone {

struct AttentionCpu;
struct SparseAttentionKernel : KernelRow<SparseAttentionProblem, const AttentionCpu*> {};

inline float softmax_scale(const SparseAttentionProblem& p) {
  return p.softmax_scale.value_or(1.0f / __builtin_sqrtf(static_cast<float>(p.cache.dim)));
}

std::string sparse_problem_error(const SparseAttentionProblem&);

// The caches of a call, checked with every tensor and index; Error names the tensor.
struct SparseCaches {
  LatentView main, extra;  // extra.data is null where there is none
};
SparseCaches check_sparse_tensors(const SparseAttentionProblem&, const SparseAttentionTensors&);

// Calls f(slot, whether it is in the extra cache) for the selected tokens of query i of sequence b
// in order.
template <class F>
void for_selected_tokens(const SparseAttentionProblem& p, const SparseAttentionTensors& t,
                         int64_t b, int64_t i, const F& f) {
  const auto list = [&](const Tensor& indices, const Tensor& lengths, int64_t entries, bool extra) {
    if (entries == 0) return;
    const int32_t* slot = indices.data<int32_t>() + b * indices.stride(0) + i * indices.stride(1);
    if (lengths.defined()) {
      entries = lengths.data<int32_t>()[b * lengths.stride(0) +
                                        (lengths.rank() == 2 ? i * lengths.stride(1) : 0)];
    }
    for (int64_t j = 0; j < entries; ++j) {
      if (slot[j] >= 0) f(slot[j], extra);
    }
  };
  list(t.indices, t.lengths, p.indices, false);
  if (p.extra) list(t.extra_indices, t.extra_lengths, p.extra_indices, true);
}

}  // namespace halftone
