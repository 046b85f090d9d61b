#include "halftone/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "support/compare.h"

namespace halftone {
namespace {

SamplingOptions warm(float temperature = 1) {
  SamplingOptions o;
  o.temperature = temperature;
  return o;
}

// The rules in their plainest form, in FP64: sort everything, then cut.
std::vector<double> reference(const std::vector<float>& logits, const std::vector<int32_t>& history,
                              const SamplingOptions& o) {
  const size_t n = logits.size();
  std::vector<double> score(logits.begin(), logits.end());
  std::vector<bool> seen(n);
  for (const int32_t t : history) seen[static_cast<size_t>(t)] = true;
  for (size_t i = 0; i < n; ++i) {
    if (seen[i]) {
      score[i] = score[i] < 0 ? score[i] * o.repetition_penalty : score[i] / o.repetition_penalty;
    }
    score[i] /= o.temperature;
  }
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return score[a] > score[b]; });
  size_t count = n;
  if (o.top_k > 0) count = std::min(count, static_cast<size_t>(o.top_k));
  const auto total = [&](size_t of) {
    double sum = 0;
    for (size_t i = 0; i < of; ++i) sum += std::exp(score[order[i]] - score[order[0]]);
    return sum;
  };
  if (o.top_p < 1) {
    size_t kept = 1;
    while (kept < count && total(kept) / total(count) < double{o.top_p}) ++kept;
    count = kept;
  }
  while (std::exp(score[order[count - 1]] - score[order[0]]) < double{o.min_p}) --count;
  std::vector<double> p(n, 0.0);
  for (size_t i = 0; i < count; ++i) {
    p[order[i]] = std::exp(score[order[i]] - score[order[0]]) / total(count);
  }
  return p;
}

TEST(Sampling, DistributionFollowsTheRules) {
  const std::vector<int32_t> history = {3, 4, 4, 17, 90};
  for (const float temperature : {0.25f, 1.0f, 1.7f}) {
    for (const int top_k : {0, 1, 7, 1000}) {
      for (const float top_p : {1.0f, 0.9f, 0.3f, 0.001f}) {
        for (const float min_p : {0.0f, 0.05f, 1.0f}) {
          for (const float penalty : {1.0f, 1.3f, 0.5f}) {
            const std::vector<float> logits = test::random_values(700, 1, test::Data::normal);
            const SamplingOptions o{temperature, top_k, top_p, min_p, penalty, 0};
            const std::vector<float> p = sampling_distribution(logits, history, o);
            const std::vector<double> r = reference(logits, history, o);
            // Penalty and temperature round the logit to f32: at most 2 u of |logit| <= 40.
            for (size_t i = 0; i < p.size(); ++i) ASSERT_NEAR(p[i], r[i], 1e-5 * r[i] + 1e-12) << i;
          }
        }
      }
    }
  }
}

TEST(Sampling, TheToleranceSeesSmallErrors) {
  const std::vector<float> logits = test::random_values(700, 2);
  const std::vector<float> p = sampling_distribution(logits, {}, warm());
  const auto differs = [&](const SamplingOptions& o, const std::vector<int32_t>& history) {
    const std::vector<double> r = reference(logits, history, o);
    for (size_t i = 0; i < p.size(); ++i) {
      if (!(std::abs(p[i] - r[i]) <= 1e-5 * r[i] + 1e-12)) return true;
    }
    return false;
  };
  EXPECT_FALSE(differs(warm(), {}));
  EXPECT_TRUE(differs(warm(1.0001f), {})) << "temperature";
  SamplingOptions o = warm();
  o.top_k = 699;
  EXPECT_TRUE(differs(o, {})) << "one token less";
  o = warm();
  o.repetition_penalty = 1.001f;
  EXPECT_TRUE(differs(o, {5})) << "penalty on one token";
}

TEST(Sampling, EqualsTransformers) {
  std::ifstream file(HALFTONE_SOURCE_DIR "/tests/fixtures/sampling.json");
  ASSERT_TRUE(file) << "tests/fixtures/sampling.json is missing";
  const nlohmann::json golden = nlohmann::json::parse(file);
  const auto logits = golden.at("logits").get<std::vector<float>>();
  const auto history = golden.at("history").get<std::vector<int32_t>>();
  for (const nlohmann::json& c : golden.at("cases")) {
    const auto value = [&](const char* key, auto off) {
      return c.at(key).is_null() ? off : c.at(key).get<decltype(off)>();
    };
    const SamplingOptions o{value("temperature", 1.0f),
                            value("top_k", 0),
                            value("top_p", 1.0f),
                            value("min_p", 0.0f),
                            value("repetition_penalty", 1.0f),
                            0};
    const std::vector<float> p = sampling_distribution(logits, history, o);
    const auto expected = c.at("probabilities").get<std::vector<float>>();
    ASSERT_EQ(p.size(), expected.size());
    for (size_t i = 0; i < p.size(); ++i) {
      // The golden softmax is in f32 over logits up to 8 / temperature.
      EXPECT_NEAR(p[i], expected[i], 4e-6 * expected[i])
          << "token " << i << " of " << c.dump().substr(0, 120);
      EXPECT_EQ(p[i] == 0, expected[i] == 0) << "token " << i;
    }
  }
}

TEST(Sampling, GreedyAndTies) {
  const SamplingOptions greedy;
  Sampler sampler(greedy);
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 3, 3, 2}, {}), 1);
  SamplingOptions penalty;
  penalty.repetition_penalty = 2;
  // Positive logits are divided, negative ones multiplied; a token counts once.
  EXPECT_EQ(Sampler(penalty).sample(std::vector<float>{4, 3, 1}, std::vector<int32_t>{0, 0}), 1);
  EXPECT_EQ(Sampler(penalty).sample(std::vector<float>{-1, -1.5f}, std::vector<int32_t>{0}), 1);
  // Equals of the k-th largest stay, as in Transformers.
  SamplingOptions top = warm();
  top.top_k = 2;
  const std::vector<float> p = sampling_distribution(std::vector<float>{1, 2, 1, 0}, {}, top);
  EXPECT_GT(p[0], 0);
  EXPECT_EQ(p[0], p[2]);
  EXPECT_EQ(p[3], 0);
}

TEST(Sampling, BannedTokensAreNeverDrawn) {
  const std::vector<float> logits = {-INFINITY, 0, -INFINITY, 0};
  Sampler sampler(warm());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(sampler.sample(logits, {}) % 2, 1);
  const std::vector<float> all(4, -INFINITY);
  test::expect_error([&] { sampler.sample(all, {}); }, {"every logit is -inf"});
  test::expect_error([&] { Sampler(SamplingOptions{}).sample(all, {}); }, {"every logit is -inf"});
  test::expect_error([&] { sampler.sample(std::vector<float>{0, NAN}, {}); }, {"logits[1]", "nan"});
  test::expect_error([&] { sampler.sample(std::vector<float>{INFINITY}, {}); }, {"logits[0]"});
  test::expect_error([&] { sampler.sample({}, {}); }, {"empty"});
  test::expect_error([&] { sampler.sample(logits, std::vector<int32_t>{4}); }, {"token 4"});
}

TEST(Sampling, DrawsFollowTheDistribution) {
  const std::vector<float> logits = {0, 1, 2, -1, 0.5f};
  const std::vector<float> p = sampling_distribution(logits, {}, warm());
  constexpr int kDraws = 200000;
  std::vector<int> count(logits.size());
  Sampler sampler(warm());
  for (int i = 0; i < kDraws; ++i) ++count[static_cast<size_t>(sampler.sample(logits, {}))];
  for (size_t i = 0; i < p.size(); ++i) {
    const double expected = double{p[i]} * kDraws;
    EXPECT_NEAR(count[i], expected, 5 * std::sqrt(expected)) << i;  // five standard deviations
  }
}

TEST(Sampling, TheSameSeedGivesTheSameTokensEverywhere) {
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 37 % 101) / 16;
  SamplingOptions o = warm(0.8f);
  o.top_p = 0.9f;
  o.seed = 42;
  Sampler first(o), second(o);
  std::vector<int32_t> drawn;
  for (int i = 0; i < 8; ++i) {
    drawn.push_back(first.sample(logits, {}));
    EXPECT_EQ(second.sample(logits, {}), drawn.back());
  }
  o.seed = 43;
  Sampler other(o);
  int same = 0;
  for (const int32_t t : drawn) same += other.sample(logits, {}) == t;
  EXPECT_LT(same, 8);
  EXPECT_EQ(drawn, (std::vector<int32_t>{742, 161, 278, 341, 38, 868, 221, 802}));
}

TEST(Sampling, WrongOptionsAreNamed) {
  const auto expect = [](SamplingOptions o, const std::vector<std::string>& words) {
    test::expect_error([&] { validate(o); }, words);
    test::expect_error([&] { Sampler sampler(o); }, words);
  };
  expect({-1}, {"temperature is -1"});
  expect({NAN}, {"temperature is nan"});
  expect({1, -1}, {"top_k is -1"});
  expect({1, 0, 0}, {"top_p is 0"});
  expect({1, 0, 1.5f}, {"top_p is 1.5"});
  expect({1, 0, 1, -0.1f}, {"min_p is -0.1"});
  expect({1, 0, 1, 2}, {"min_p is 2"});
  expect({1, 0, 1, 0, 0}, {"repetition_penalty is 0"});
}

}  // namespace
}  // namespace halftone
