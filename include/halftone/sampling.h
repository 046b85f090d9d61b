// Choosing the next token from logits.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "halftone/error.h"

namespace halftone {

// Applied in this order: repetition penalty -> temperature -> top-k -> top-p -> min-p -> draw.
// Greedy (temperature 0) takes the largest logit after the penalty, ties to the lower index.
struct SamplingOptions {
  float temperature = 0;  // 0: greedy
  int top_k = 0;          // 0: off
  float top_p = 1;        // 1: off
  float min_p = 0;        // 0: off
  float repetition_penalty = 1;
  uint64_t seed = 0;
};

// Error that names the field, its value and the rule.
void validate(const SamplingOptions&);

// Probability of every token after all filters; tokens filtered out have 0. `history` holds the
// tokens that the repetition penalty applies to (positive logits divided, negative multiplied).
std::vector<float> sampling_distribution(std::span<const float> logits,
                                         std::span<const int32_t> history, const SamplingOptions&);

// A reproducible stream of draws: the same seed gives the same tokens on every machine.
class Sampler {
 public:
  explicit Sampler(const SamplingOptions&);
  int32_t sample(std::span<const float> logits, std::span<const int32_t> history);
  const SamplingOptions& options() const { return options_; }

 private:
  double uniform();  // [0, 1)
  SamplingOptions options_;
  uint64_t state_;
};

}  // namespace halftone
