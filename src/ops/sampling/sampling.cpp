#include "halftone/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/message.h"

namespace halftone {

namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();

// exp(x) for x <= 0 from additions and multiplications alone: unlike the C library's, the result
// has the same bits on every machine, and so has the choice of a token. Error below 2 ulp.
double portable_exp(double x) {
  if (!(x > -700)) return 0;
  constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
  const double n = (x * 1.4426950408889634 + kShift) - kShift;
  const double r = (x - n * 0x1.62e42fefa3800p-1) - n * 0x1.ef35793c76730p-45;
  double p = 1;  // Taylor in Horner form; |r| <= 0.35 makes 14 terms enough
  for (int k = 14; k > 0; --k) p = 1 + p * r / k;
  return std::ldexp(p, static_cast<int>(n));
}

// Logits after the repetition penalty; each token counts once, however often it occurred.
std::vector<float> penalised(std::span<const float> logits, std::span<const int32_t> history,
                             float penalty) {
  std::vector<float> scores(logits.begin(), logits.end());
  for (size_t i = 0; i < scores.size(); ++i) {
    require(!std::isnan(scores[i]) && scores[i] < std::numeric_limits<float>::infinity(),
            "sampling: logits[", i, "] is ", scores[i],
            "; only finite values and -inf have a meaning");
  }
  for (const int32_t token : history) {
    require(token >= 0 && static_cast<size_t>(token) < scores.size(),
            "sampling: history holds token ", token, ", outside the vocabulary of ", scores.size());
    const float logit = logits[static_cast<size_t>(token)];
    scores[static_cast<size_t>(token)] = logit < 0 ? logit * penalty : logit / penalty;
  }
  return scores;
}

// The larger score first, ties to the lower index.
struct Better {
  const std::vector<float>& scores;
  bool operator()(int32_t a, int32_t b) const {
    const float x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  }
};

// Tokens that may be drawn, with exp(score - largest).
struct Candidates {
  std::vector<int32_t> tokens;  // ascending
  std::vector<double> weights;
};

// Keeps the shortest prefix of the tokens, best first, whose weights reach `top_p` of the total.
void keep_top_p(std::vector<int32_t>& tokens, const std::vector<float>& scores,
                const std::vector<double>& weight_of, double top_p) {
  const double total = std::accumulate(
      tokens.begin(), tokens.end(), 0.0,
      [&](double sum, int32_t t) { return sum + weight_of[static_cast<size_t>(t)]; });
  // A few tokens usually carry most of the mass: sort only as far as needed.
  double sum = 0;
  size_t kept = 0;
  for (size_t sorted = 0; kept < tokens.size() && (kept == 0 || sum < top_p * total);) {
    if (kept == sorted) {
      const size_t next = std::min(tokens.size(), std::max<size_t>(256, 4 * sorted));
      std::partial_sort(tokens.begin() + static_cast<std::ptrdiff_t>(sorted),
                        tokens.begin() + static_cast<std::ptrdiff_t>(next), tokens.end(),
                        Better{scores});
      sorted = next;
    }
    sum += weight_of[static_cast<size_t>(tokens[kept++])];
  }
  tokens.resize(kept);
}

Candidates filter(std::vector<float> scores, const SamplingOptions& o) {
  const size_t size = scores.size();
  std::vector<int32_t> tokens;
  tokens.reserve(size);
  float largest = kBanned;
  for (size_t i = 0; i < size; ++i) {
    scores[i] /= o.temperature;
    if (scores[i] == kBanned) continue;
    tokens.push_back(static_cast<int32_t>(i));
    largest = std::max(largest, scores[i]);
  }
  require(!tokens.empty(), "sampling: every logit is -inf; at least one token must be possible");
  require(largest < std::numeric_limits<float>::infinity(), "sampling: temperature is ",
          o.temperature, ", so small that a logit overflows; use 0 for greedy");
  if (o.top_k > 0 && static_cast<size_t>(o.top_k) < tokens.size()) {
    // Everything below the k-th largest goes; its equals stay, as in Transformers.
    std::vector<float> sorted;
    sorted.reserve(tokens.size());
    for (const int32_t t : tokens) sorted.push_back(scores[static_cast<size_t>(t)]);
    const auto kth = sorted.begin() + (o.top_k - 1);
    std::nth_element(sorted.begin(), kth, sorted.end(), std::greater<>());
    const float least = *kth;
    std::erase_if(tokens, [&](int32_t t) { return scores[static_cast<size_t>(t)] < least; });
  }
  std::vector<double> weight_of(size, 0.0);
  for (const int32_t t : tokens) {
    weight_of[static_cast<size_t>(t)] =
        portable_exp(double{scores[static_cast<size_t>(t)]} - double{largest});
  }
  if (o.top_p < 1) keep_top_p(tokens, scores, weight_of, double{o.top_p});
  // The largest weight is 1, so the rule p < min_p * p_max is a rule on weights.
  std::erase_if(tokens,
                [&](int32_t t) { return weight_of[static_cast<size_t>(t)] < double{o.min_p}; });
  std::sort(tokens.begin(), tokens.end());
  Candidates result{std::move(tokens), {}};
  for (const int32_t t : result.tokens) result.weights.push_back(weight_of[static_cast<size_t>(t)]);
  return result;
}

int32_t largest_of(const std::vector<float>& scores) {
  const auto best = std::max_element(scores.begin(), scores.end());
  require(*best != kBanned, "sampling: every logit is -inf; at least one token must be possible");
  return static_cast<int32_t>(best - scores.begin());
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
}

std::vector<float> sampling_distribution(std::span<const float> logits,
                                         std::span<const int32_t> history,
                                         const SamplingOptions& options) {
  validate(options);
  require(!logits.empty(), "sampling: logits are empty");
  std::vector<float> scores = penalised(logits, history, options.repetition_penalty);
  std::vector<float> distribution(logits.size(), 0.0f);
  if (options.temperature == 0) {
    distribution[static_cast<size_t>(largest_of(scores))] = 1;
    return distribution;
  }
  const Candidates kept = filter(std::move(scores), options);
  const double total = std::accumulate(kept.weights.begin(), kept.weights.end(), 0.0);
  for (size_t i = 0; i < kept.tokens.size(); ++i) {
    distribution[static_cast<size_t>(kept.tokens[i])] = static_cast<float>(kept.weights[i] / total);
  }
  return distribution;
}

Sampler::Sampler(const SamplingOptions& options) : options_(options), state_(options.seed) {
  validate(options);
}

// A Weyl sequence through a 64-bit mixer (SplitMix64); the upper 53 bits are the fraction.
double Sampler::uniform() {
  state_ += 0x9e3779b97f4a7c15u;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

int32_t Sampler::sample(std::span<const float> logits, std::span<const int32_t> history) {
  require(!logits.empty(), "sampling: logits are empty");
  std::vector<float> scores = penalised(logits, history, options_.repetition_penalty);
  if (options_.temperature == 0) return largest_of(scores);
  const Candidates kept = filter(std::move(scores), options_);
  const double total = std::accumulate(kept.weights.begin(), kept.weights.end(), 0.0);
  double left = uniform() * total;
  for (size_t i = 0; i < kept.tokens.size(); ++i) {
    left -= kept.weights[i];
    if (left < 0) return kept.tokens[i];
  }
  return kept.tokens.back();  // the rounding of the sum ate the last bit
}

}  // namespace halftone
