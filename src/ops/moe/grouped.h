// The grouped GEMMs of a panel of tokens on CPUs: what MoE plans own and run.
#pragma once
#include <vector>

#include "base/thread_pool.h"
#include "ops/gemm/cpu/activations.h"
#include "ops/gemm/cpu/run.h"
#include "ops/moe/experts.h"

namespace halftone::experts {

// Tokens that go through the buffers at a time: enough to amortise reading a weight, few enough
// that the buffers stay small; a panel of one expert never has more rows.
inline constexpr int64_t kTokens = gemm::kPanelRows;

// A row of the grouped GEMM: one token at one of its experts. Rows of the shared expert, one a
// token, follow those of the routed ones.
struct Row {
  int32_t token, slot;
};

struct Workspace {
  std::vector<Row> rows;             // by expert, then token
  std::vector<int32_t> first_row;    // of each expert, and the end
  std::vector<int32_t> row_of;       // [token, slot]
  std::vector<gemm::Weights> views;  // gate, up and down of separate experts, once in use
  std::vector<gemm::Job> jobs;
  std::vector<float> scores;                // of rows whose input is scaled
  gemm::XRows x, h, shared_x, shared_h;     // inputs of gate and up, and of down
  Tensor packed_x, packed_h, h_rows, down;  // packed panels, one after the other
  Tensor x_scales, h_scales, x_row_scales, h_row_scales, x_offsets, h_offsets;
};

void prepare(const MoeProblem&, const gemm::Kernels&, Workspace*);
int64_t bytes(const Workspace&);
void run_tokens(const MoeProblem&, const gemm::Kernels&, const MoeTensors&, int64_t t0,
                int64_t tokens, Workspace*, ThreadPool&);

}  // namespace halftone::experts
