// Sampling on the CPU: penalties, filters and the draw of one row.
#include "halftone/sampling.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

#include "base/message.h"
#include "base/thread_pool.h"
#include "formats/kernels.h"
#include "formats/rows.h"
#include "ops/sampling/fixed_point.h"
#include "ops/sampling/gpu.h"

namespace halftone {

namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();

size_t at(int32_t token) { return static_cast<size_t>(token); }

// Eight numbers: four chains even where a register holds two. GCC does not vectorise such a loop by
// itself, because its comparisons might trap.
typedef double Doubles __attribute__((vector_size(64)));
typedef uint64_t Words __attribute__((vector_size(64)));
constexpr size_t kDoubles = sizeof(Doubles) / sizeof(double);

// store(i, exp(x(i))) for i < count.
template <class X, class Store>
void exp_each(size_t count, const X& x, const Store& store) {
  for (size_t i = 0; i < count; i += kDoubles) {
    const size_t n = std::min(kDoubles, count - i);
    Doubles values = {};
    for (size_t k = 0; k < n; ++k) values[k] = x(i + k);
    portable_exp<Doubles, Words>(values, &values);
    for (size_t k = 0; k < n; ++k) store(i + k, values[k]);
  }
}

void check_logits(std::span<const float> logits) {
  require(!logits.empty(), "sampling: logits are empty");
  for (size_t i = 0; i < logits.size(); ++i) {
    require(logits[i] < std::numeric_limits<float>::infinity(), "sampling: logits[", i, "] is ",
            logits[i], "; only finite values and -inf have a meaning");
  }
}

void check_token(const char* where, int32_t token, size_t vocabulary) {
  require(token >= 0 && at(token) < vocabulary, "sampling: ", where, " holds token ", token,
          ", outside the vocabulary of ", vocabulary);
}

// The larger score first, ties to the lower index.
struct Better {
  std::span<const float> scores;
  bool operator()(int32_t a, int32_t b) const {
    const float x = scores[at(a)], y = scores[at(b)];
    return x != y ? x > y : a < b;
  }
};

// ln(sum exp(logit)).
double log_sum(std::span<const float> logits) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  require(largest != kBanned, "sampling: every logit is -inf; at least one token must be possible");
  double sum = 0;
  exp_each(
      logits.size(), [&](size_t i) { return double{logits[i]} - double{largest}; },
      [&](size_t, double e) { sum += e; });
  return double{largest} + portable_log(sum);
}

}  // namespace

void validate(const SamplingOptions& o) {
  require(o.temperature >= 0 && std::isfinite(o.temperature), "temperature is ", o.temperature,
          "; it must be finite and not negative (0 is greedy)");
  require(o.top_k >= 0, "top_k is ", o.top_k, "; it must not be negative (0 turns it off)");
  require(o.top_p > 0 && o.top_p <= 1, "top_p is ", o.top_p,
          "; it must be above 0 and at most 1 (1 turns it off)");
  require(o.min_p >= 0 && o.min_p <= 1, "min_p is ", o.min_p,
          "; it must be from 0 to 1 (0 turns it off)");
  require(o.repetition_penalty > 0 && std::isfinite(o.repetition_penalty), "repetition_penalty is ",
          o.repetition_penalty, "; it must be positive and finite (1 turns it off)");
  require(o.typical_p > 0 && o.typical_p <= 1, "typical_p is ", o.typical_p,
          "; it must be above 0 and at most 1 (1 turns it off)");
  require(std::isfinite(o.frequency_penalty), "frequency_penalty is ", o.frequency_penalty,
          "; it must be finite (0 turns it off)");
  require(std::isfinite(o.presence_penalty), "presence_penalty is ", o.presence_penalty,
          "; it must be finite (0 turns it off)");
  for (size_t i = 0; i < o.logit_bias.size(); ++i) {
    const LogitBias& b = o.logit_bias[i];
    require(b.token >= 0, "logit_bias[", i, "] is of token ", b.token, "; tokens are not negative");
    require(b.bias < std::numeric_limits<float>::infinity(), "logit_bias[", i, "] is ", b.bias,
            "; it must be finite, or -inf to ban the token");
  }
}

double sampling_uniform(uint64_t seed, uint64_t row, uint64_t index) {
  return static_cast<double>(draw_bits(draw_key(seed, row), index)) * 0x1p-53;
}

Sampler::Sampler(const SamplingOptions& options, uint64_t row) : options_(options), row_(row) {
  validate(options);
}

// Logits after bias and penalties, in scores_.
void Sampler::score(std::span<const float> logits, std::span<const int32_t> history) {
  const SamplingOptions& o = options_;
  check_logits(logits);
  for (const int32_t token : history) check_token("history", token, logits.size());
  scores_.assign(logits.begin(), logits.end());
  for (const LogitBias& b : o.logit_bias) {
    check_token("logit_bias", b.token, logits.size());
    scores_[at(b.token)] += b.bias;
  }
  if (o.repetition_penalty == 1 && o.frequency_penalty == 0 && o.presence_penalty == 0) return;
  counts_.resize(std::max(counts_.size(), logits.size()));
  for (const int32_t token : history) ++counts_[at(token)];
  for (const int32_t token : history) {
    int32_t& count = counts_[at(token)];
    if (count == 0) continue;  // done
    float& score = scores_[at(token)];
    score = score < 0 ? score * o.repetition_penalty : score / o.repetition_penalty;
    score -= static_cast<float>(count) * o.frequency_penalty + o.presence_penalty;
    count = 0;
  }
}

int32_t Sampler::largest() const {
  const auto best = std::max_element(scores_.begin(), scores_.end());
  require(*best != kBanned, "sampling: every logit is -inf; at least one token must be possible");
  return static_cast<int32_t>(best - scores_.begin());
}

void Sampler::keep_top_k() {
  const auto k = static_cast<size_t>(options_.top_k);
  if (k == 0 || k >= tokens_.size()) return;
  scratch_.clear();
  for (const int32_t t : tokens_) scratch_.push_back(scores_[at(t)]);
  const auto kth = scratch_.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(scratch_.begin(), kth, scratch_.end(), std::greater<>());
  std::erase_if(tokens_, [this, least = *kth](int32_t t) { return scores_[at(t)] < least; });
}

// The sum of the weights that are left.
uint64_t Sampler::weigh() const {
  return std::accumulate(tokens_.begin(), tokens_.end(), uint64_t{0},
                         [this](uint64_t sum, int32_t t) { return sum + weights_[at(t)]; });
}

// Keeps the shortest prefix of the tokens, best by `order` first, whose weights reach `least`.
void Sampler::keep_prefix(uint64_t least, std::span<const float> order) {
  // The prefix ends in [begin, end), all before is in it. Sums are of integers, so that no order of
  // the tokens within a half matters.
  auto begin = tokens_.begin(), end = tokens_.end();
  for (uint64_t missing = least; end - begin > 1;) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, Better{order});
    uint64_t sum = 0;
    for (auto t = begin; t != middle; ++t) sum += weights_[at(*t)];
    if (sum >= missing) {
      end = middle;
    } else {
      missing -= sum;
      begin = middle;
    }
  }
  tokens_.erase(end, tokens_.end());
}

void Sampler::keep_top_p() {
  const uint64_t total = weigh(), least = least_share(total, options_.top_p);
  // Tokens of less than (total - least) / count, even all together, are beyond the prefix.
  const uint64_t small = (total - least) / tokens_.size();
  std::erase_if(tokens_, [&](int32_t t) { return weights_[at(t)] < small; });
  keep_prefix(least, scores_);
}

// A surprisal is the distance of a score from the largest one, plus what all have in common; the
// entropy is their mean, by weight.
void Sampler::keep_typical() {
  float largest = kBanned;
  for (const int32_t t : tokens_) largest = std::max(largest, scores_[at(t)]);
  const auto distance = [&](int32_t t) { return double{largest} - double{scores_[at(t)]}; };
  uint64_t parts = 0;
  for (const int32_t t : tokens_) parts += weighted_distance(weights_[at(t)], distance(t));
  const uint64_t total = weigh();
  const double mean = mean_distance(parts, total);
  scratch_.resize(scores_.size());
  for (const int32_t t : tokens_) {
    // Negative, so that the nearest to the mean is the largest.
    scratch_[at(t)] = static_cast<float>(-std::abs(distance(t) - mean));
  }
  keep_prefix(least_share(total, options_.typical_p), scratch_);
}

// From scores_ to the tokens that may be drawn, ascending, and their weights.
void Sampler::filter() {
  const SamplingOptions& o = options_;
  tokens_.clear();
  float largest = kBanned;
  for (size_t i = 0; i < scores_.size(); ++i) {
    scores_[i] /= o.temperature;
    if (scores_[i] == kBanned) continue;
    tokens_.push_back(static_cast<int32_t>(i));
    largest = std::max(largest, scores_[i]);
  }
  require(!tokens_.empty(), "sampling: every logit is -inf; at least one token must be possible");
  require(largest < std::numeric_limits<float>::infinity(), "sampling: temperature is ",
          o.temperature, ", so small that a logit overflows; use 0 for greedy");
  keep_top_k();
  weights_.resize(scores_.size());
  const int bits = weight_bits(scores_.size());
  exp_each(
      tokens_.size(), [&](size_t i) { return double{scores_[at(tokens_[i])]} - double{largest}; },
      [&](size_t i, double e) { weights_[at(tokens_[i])] = fixed_weight(e, bits); });
  if (o.top_p < 1) keep_top_p();
  // The largest probability is that of weight 1.
  const uint64_t least = fixed_weight(double{o.min_p}, bits);
  std::erase_if(tokens_, [&](int32_t t) { return weights_[at(t)] < least; });
  if (o.typical_p < 1) keep_typical();
  if (o.top_p < 1 || o.typical_p < 1) std::sort(tokens_.begin(), tokens_.end());
}

int32_t Sampler::sample(std::span<const float> logits, std::span<const int32_t> history) {
  score(logits, history);
  if (options_.temperature == 0) return largest();
  filter();
  // The first token whose weight, with those before it, is above the draw.
  const uint64_t drawn = draw_below(weigh(), draw_bits(draw_key(options_.seed, row_), draws_++));
  uint64_t sum = 0;
  size_t i = 0;
  while ((sum += weights_[at(tokens_[i])]) <= drawn) ++i;
  return tokens_[i];
}

SampledToken Sampler::sample_with_logprob(std::span<const float> logits,
                                          std::span<const int32_t> history) {
  const int32_t token = sample(logits, history);
  return {token, token_logprob(logits, token)};
}

std::vector<float> sampling_distribution(std::span<const float> logits,
                                         std::span<const int32_t> history,
                                         const SamplingOptions& options) {
  Sampler sampler(options);
  sampler.score(logits, history);
  std::vector<float> distribution(logits.size(), 0.0f);
  if (options.temperature == 0) {
    distribution[at(sampler.largest())] = 1;
    return distribution;
  }
  sampler.filter();
  const auto total = static_cast<double>(sampler.weigh());
  for (const int32_t t : sampler.tokens_) {
    distribution[at(t)] = static_cast<float>(static_cast<double>(sampler.weights_[at(t)]) / total);
  }
  return distribution;
}

float token_logprob(std::span<const float> logits, int32_t token) {
  check_logits(logits);
  check_token("the call", token, logits.size());
  return static_cast<float>(double{logits[at(token)]} - log_sum(logits));
}

void top_logprobs(std::span<const float> logits, std::span<SampledToken> out) {
  check_logits(logits);
  require(out.size() <= logits.size(), "top_logprobs: ", out.size(), " of ", logits.size(),
          " logits are asked for; there must be as many");
  // The best so far, the worst of them last.
  size_t kept = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    size_t place = kept;
    while (place > 0 && out[place - 1].logprob < logits[i]) --place;
    if (place == out.size()) continue;
    kept = std::min(kept + 1, out.size());
    for (size_t k = kept - 1; k > place; --k) out[k] = out[k - 1];
    out[place] = {static_cast<int32_t>(i), logits[i]};
  }
  const double sum = log_sum(logits);
  for (SampledToken& t : out) t.logprob = static_cast<float>(double{t.logprob} - sum);
}

bool SamplerOnGpu::can(const Sampler& sampler) {
  std::vector<int32_t> tokens;
  for (const LogitBias& b : sampler.options().logit_bias) tokens.push_back(b.token);
  std::sort(tokens.begin(), tokens.end());
  return std::adjacent_find(tokens.begin(), tokens.end()) == tokens.end();
}
bool SamplerOnGpu::has_penalties(const Sampler& sampler) {
  const SamplingOptions& o = sampler.options();
  return o.repetition_penalty != 1 || o.frequency_penalty != 0 || o.presence_penalty != 0;
}
bool SamplerOnGpu::draws(const Sampler& sampler) {
  const SamplingOptions& o = sampler.options();
  return o.temperature != 0 || !o.logit_bias.empty() || has_penalties(sampler);
}
DrawRow SamplerOnGpu::row(const Sampler& sampler) {
  const SamplingOptions& o = sampler.options();
  DrawRow row;
  row.repetition = o.repetition_penalty;
  row.frequency = o.frequency_penalty, row.presence = o.presence_penalty;
  if (o.temperature == 0) return row;
  row.temperature = o.temperature, row.top_k = o.top_k, row.top_p = o.top_p, row.min_p = o.min_p;
  row.typical_p = o.typical_p;
  row.key = draw_key(o.seed, sampler.row_), row.draws = sampler.draws_;
  return row;
}
void SamplerOnGpu::adjust(const Sampler& sampler, int32_t row, std::span<const int32_t> history,
                          int64_t vocabulary, std::vector<TokenAdjustment>& list) {
  std::map<int32_t, TokenAdjustment> adjustments;
  const auto of = [&](const char* where, int32_t token) -> TokenAdjustment& {
    check_token(where, token, static_cast<size_t>(vocabulary));
    TokenAdjustment& a = adjustments[token];
    a.row = row, a.token = token;
    return a;
  };
  if (has_penalties(sampler)) {
    for (const int32_t token : history) ++of("history", token).count;
  }
  for (const LogitBias& b : sampler.options().logit_bias) of("logit_bias", b.token).bias = b.bias;
  for (const auto& [token, adjustment] : adjustments) list.push_back(adjustment);
}
void SamplerOnGpu::count_draw(Sampler& sampler) {
  if (sampler.options().temperature != 0) ++sampler.draws_;
}

void sample_rows(const Tensor& logits, std::span<Sampler> samplers,
                 std::span<const std::span<const int32_t>> histories,
                 std::span<SampledToken> tokens, Stream& stream) {
  require(logits.defined() && logits.rank() == 2 && is_plain_float(logits.format()) &&
              logits.device() == stream.device(),
          "sample_rows: logits must be [rows, vocabulary] in f32, f16 or bf16 on the device of the "
          "stream, ",
          stream.device().name());
  const auto rows = static_cast<size_t>(logits.size(0));
  require(samplers.size() == rows && tokens.size() == rows &&
              (histories.empty() || histories.size() == rows),
          "sample_rows: ", rows, " rows of logits, ", samplers.size(), " samplers, ",
          histories.size(), " histories and ", tokens.size(), " tokens; there must be as many");
  if (!logits.device().is_cpu()) {
    if (rows == 0) return;
    if (std::all_of(samplers.begin(), samplers.end(), SamplerOnGpu::can)) {
      std::vector<DrawRow> draws;
      std::vector<TokenAdjustment> adjustments;
      for (size_t i = 0; i < rows; ++i) {
        draws.push_back(SamplerOnGpu::row(samplers[i]));
        SamplerOnGpu::adjust(samplers[i], static_cast<int32_t>(i),
                             histories.empty() ? std::span<const int32_t>() : histories[i],
                             logits.size(1), adjustments);
      }
      sample_rows_gpu(logits, draws, adjustments, tokens, stream);
      std::for_each(samplers.begin(), samplers.end(), SamplerOnGpu::count_draw);
      return;
    }
    stream.synchronize();
    return sample_rows(logits.to(Device::cpu()), samplers, histories, tokens,
                       Stream::default_stream());
  }
  const bool direct = logits.format() == Format::f32 && logits.stride(1) == 1;
  const Tensor source = direct || logits.stride(1) == 1 ? logits : logits.contiguous_copy();
  const auto vocabulary = static_cast<size_t>(logits.size(1));
  stream.pool().parallel_for(logits.size(0), 1, [&](int64_t begin, int64_t end) {
    thread_local std::vector<float> converted;
    if (!direct) converted.resize(vocabulary);
    for (int64_t i = begin; i < end; ++i) {
      const char* row = address(source, row_offset(source, i));
      if (!direct) {
        format_kernels().convert(logits.format(), Format::f32, row, logits.size(1),
                                 converted.data());
      }
      const auto* values =
          direct ? static_cast<const float*>(static_cast<const void*>(row)) : converted.data();
      const auto at_row = static_cast<size_t>(i);
      tokens[at_row] = samplers[at_row].sample_with_logprob(
          {values, vocabulary}, histories.empty() ? std::span<const int32_t>() : histories[at_row]);
    }
  });
}

}  // namespace halftone
