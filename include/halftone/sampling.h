// Choosing the next token from logits.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "halftone/error.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

struct LogitBias {
  int32_t token;
  float bias;  // added to the logit; -inf bans the token
};

// Applied in this order: logit bias -> repetition, frequency and presence penalty -> temperature ->
// top-k -> top-p -> min-p -> typical-p -> draw. Each filter sees what the one before it left,
// renormalised; ties go to the lower index, except that equals of the k-th largest all stay.
// Weights exp((logit - largest) / temperature) are integers, of 52 bits or, from 2^10 tokens on,
// as many as leave the sum below 2^62: sums are exact in any order, and every device keeps and
// draws the same tokens. What is below one unit is never drawn. Greedy (temperature 0) takes the
// largest logit after the penalties and looks at no filter.
struct SamplingOptions {
  float temperature = 0;  // 0: greedy
  int top_k = 0;          // 0: off
  float top_p = 1;  // the fewest tokens, likeliest first, whose probabilities reach it; 1: off
  float min_p = 0;  // tokens below min_p times the largest probability go; 0: off
  float repetition_penalty = 1;  // of tokens in the history: positive logits / it, negative * it
  uint64_t seed = 0;
  // The fewest tokens whose probabilities reach it, those whose surprisal -ln p is nearest to the
  // entropy first (Meister et al., 2023); 1: off
  float typical_p = 1;
  float frequency_penalty = 0;  // subtracted as often as a token occurs in the history
  float presence_penalty = 0;   // subtracted once from tokens in the history
  std::vector<LogitBias> logit_bias = {};
};

// Error that names the field, its value and the rule.
void validate(const SamplingOptions&);

// Draw `index` of sequence `row` of a seed, in [0, 1): a function of the three numbers alone, so
// the same on every device. With 64-bit arithmetic, mix(z): z ^= z >> 30, z *= 0xbf58476d1ce4e5b9,
// z ^= z >> 27, z *= 0x94d049bb133111eb, z ^= z >> 31 (SplitMix64); key = seed for row 0, else
// mix(seed + row * 0xd1342543de82ef95); the upper 53 bits of
// mix(key + (index + 1) * 0x9e3779b97f4a7c15) are the fraction.
double sampling_uniform(uint64_t seed, uint64_t row, uint64_t index);

struct SampledToken {
  int32_t token = 0;
  float logprob = 0;  // natural log of its probability by the logits as given
};

// Probability of every token after all filters; tokens filtered out have 0.
std::vector<float> sampling_distribution(std::span<const float> logits,
                                         std::span<const int32_t> history, const SamplingOptions&);
// The same rules in FP64, plainly.
std::vector<double> sampling_reference(std::span<const float> logits,
                                       std::span<const int32_t> history, const SamplingOptions&);

// Natural log of the softmax of `logits` at `token`, and of its largest: out[0] is the likeliest.
// There must be as many logits as places in `out`.
float token_logprob(std::span<const float> logits, int32_t token);
void top_logprobs(std::span<const float> logits, std::span<SampledToken> out);

// A reproducible stream of draws: the same seed and row give the same tokens on every machine.
// After its first call, sample() allocates nothing.
class Sampler {
 public:
  // row: the sequence of a batch that shares the seed.
  explicit Sampler(const SamplingOptions&, uint64_t row = 0);
  // logits: finite or -inf. history: what the penalties apply to.
  int32_t sample(std::span<const float> logits, std::span<const int32_t> history);
  SampledToken sample_with_logprob(std::span<const float> logits, std::span<const int32_t> history);
  const SamplingOptions& options() const { return options_; }
  uint64_t draws() const { return draws_; }

 private:
  friend struct SamplerOnGpu;
  friend std::vector<float> sampling_distribution(std::span<const float>, std::span<const int32_t>,
                                                  const SamplingOptions&);
  void score(std::span<const float> logits, std::span<const int32_t> history);
  int32_t largest() const;
  void filter();
  void keep_top_k();
  uint64_t weigh() const;
  void keep_prefix(uint64_t least, std::span<const float> order);
  void keep_top_p();
  void keep_typical();

  SamplingOptions options_;
  uint64_t row_, draws_ = 0;
  std::vector<float> scores_, scratch_;  // of all tokens
  std::vector<uint64_t> weights_;        // exp(score - largest) of all tokens, in fixed point
  std::vector<int32_t> tokens_;          // that may be drawn
  std::vector<int32_t> counts_;          // in the history; all 0 between calls
};

// One token of each row of logits [rows, vocabulary] (f32, f16 or bf16, any strides), row i by
// samplers[i] and histories[i] (empty: no histories). A row's token depends on no other row. Logits
// of a GPU stay there unless a row has two biases for one token: these come to the CPU.
void sample_rows(const Tensor& logits, std::span<Sampler> samplers,
                 std::span<const std::span<const int32_t>> histories,
                 std::span<SampledToken> tokens, Stream& = Stream::default_stream());

}  // namespace halftone
