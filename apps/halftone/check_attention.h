// `halftone check attention`.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "accuracy_row.h"
#include "halftone/attention.h"
#include "halftone/stream.h"

namespace halftone {

struct CheckAttentionOptions {
  int64_t batch = 1, queries = 128, keys = 384, heads = 4, kv_heads = 2, head_dim = 128;
  bool causal = true;
  std::optional<AttentionMode> mode;  // default: every mode
  uint64_t seed = 1;
};

// Two rows a mode: N(0, 1), and N(0, 1) + N(0, 100) * Bernoulli(0.001).
std::vector<AccuracyRow> check_attention(Stream&, const CheckAttentionOptions& = {});

}  // namespace halftone
