// `halftone check attention`.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "check/accuracy_row.h"
#include "halftone/attention.h"
#include "halftone/stream.h"

namespace halftone {

// Q, K and V in f32, [1, length, heads, head_dim], of one or more calls that are judged together.
struct AttentionData {
  std::string name;
  std::vector<AttentionTensors> parts;
  bool causal = true;
};

struct CheckAttentionOptions {
  int64_t batch = 1, queries = 128, keys = 384, heads = 4, kv_heads = 2, head_dim = 128;
  bool causal = true;
  std::optional<AttentionMode> mode;  // default: every mode
  uint64_t seed = 1;
};

// N(0, 1); N(0, 1) + N(0, 100) * Bernoulli(0.001); and "one heavy key": the first key of each row
// has about half the weight and the others share the rest, V is 1 + N(0, 1). A P that is too small
// for its format shows there, as a result that lacks the others' half.
std::vector<AttentionData> random_attention_data(const CheckAttentionOptions&);
// A row a mode and data, by the kernels of the stream's device; of fp8 and int8 also with scales of
// blocks of 128 tokens and with one scale a tensor, and of all that quantise Q and K with both
// transformed (hadamard.h). Without a mode, those that the device refuses have rows that say why; a
// mode asked for is an Error then. Each kernel runs `runs` times, into memory of other contents.
std::vector<AccuracyRow> check_attention(Stream&, const std::vector<AttentionData>&,
                                         std::optional<AttentionMode> = {}, int64_t runs = 1);
// On random data.
std::vector<AccuracyRow> check_attention(Stream&, const CheckAttentionOptions& = {});

// Q, K and V of each layer of a model that reads the beginning of a text, at most `tokens`; with
// the engine only.
std::vector<AttentionData> model_attention_data(const std::string& model, const std::string& text,
                                                int64_t tokens, int threads);

}  // namespace halftone
