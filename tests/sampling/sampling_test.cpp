#include "halftone/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "support/compare.h"
#include "support/source_path.h"

namespace halftone {
namespace {

SamplingOptions warm(float temperature = 1) {
  SamplingOptions o;
  o.temperature = temperature;
  return o;
}

TEST(Sampling, DistributionFollowsTheRules) {
  const std::vector<int32_t> history = {3, 4, 4, 17, 90};
  for (const float temperature : {0.25f, 1.0f, 1.7f}) {
    for (const int top_k : {0, 1, 7, 1000}) {
      for (const float top_p : {1.0f, 0.9f, 0.3f, 0.001f}) {
        for (const float min_p : {0.0f, 0.05f, 1.0f}) {
          for (const float penalty : {1.0f, 1.3f, 0.5f}) {
            const std::vector<float> logits = test::random_values(700, 1, test::Data::normal);
            SamplingOptions o{temperature, top_k, top_p, min_p, penalty};
            o.frequency_penalty = penalty - 1, o.presence_penalty = 1 - penalty;
            o.typical_p = top_k == 7 ? 0.8f : 1.0f;
            o.logit_bias = {{5, 1.5f}, {17, -2}, {100, -INFINITY}};
            const std::vector<float> p = sampling_distribution(logits, history, o);
            const std::vector<double> r = sampling_reference(logits, history, o);
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
    const std::vector<double> r = sampling_reference(logits, history, o);
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
  o = warm();
  o.frequency_penalty = 0.001f;
  EXPECT_TRUE(differs(o, {5})) << "frequency";
  o = warm();
  o.presence_penalty = -0.001f;
  EXPECT_TRUE(differs(o, {5, 5})) << "presence";
  o = warm();
  o.logit_bias = {{9, 0.001f}};
  EXPECT_TRUE(differs(o, {})) << "bias";
  o = warm();
  o.typical_p = 0.999f;
  EXPECT_TRUE(differs(o, {})) << "typical";
}

TEST(Sampling, TypicalKeepsWhatIsNearTheEntropy) {
  // p = 0.5, 0.3, 0.2: entropy 1.0297, surprisals 0.693, 1.204, 1.609; nearest: 1, 0, 2.
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  SamplingOptions o = warm();
  o.typical_p = 0.25f;
  EXPECT_EQ(sampling_distribution(logits, {}, o), (std::vector<float>{0, 1, 0}));
  o.typical_p = 0.31f;
  const std::vector<float> p = sampling_distribution(logits, {}, o);
  EXPECT_NEAR(p[0], 0.625, 1e-6);
  EXPECT_EQ(p[2], 0);
}

TEST(Sampling, BiasAndPenaltiesInTheirOrder) {
  SamplingOptions o;
  o.logit_bias = {{1, 3}};
  o.repetition_penalty = 2;
  o.frequency_penalty = 0.5f, o.presence_penalty = 0.25f;
  // Token 1: (1 + 3) / 2 - 2 * 0.5 - 0.25 = 0.75.
  const std::vector<int32_t> history = {1, 1};
  EXPECT_EQ(Sampler(o).sample(std::vector<float>{0.74f, 1}, history), 1);
  EXPECT_EQ(Sampler(o).sample(std::vector<float>{0.76f, 1}, history), 0);
  o.logit_bias = {{1, -INFINITY}};
  EXPECT_EQ(Sampler(o).sample(std::vector<float>{-100, 100}, {}), 0);
  o.logit_bias = {{2, 1}};
  test::expect_error(
      [&] {
        Sampler(o).sample(std::vector<float>{0, 1}, {});
      },
      {"logit_bias", "token 2"});
}

TEST(Sampling, LogprobsAreThoseOfTheLogits) {
  const std::vector<float> logits = test::random_values(500, 3, test::Data::normal);
  double sum = 0;
  for (const float x : logits) sum += std::exp(double{x});
  SamplingOptions o = warm(0.5f);
  o.top_k = 5, o.presence_penalty = 3;
  Sampler sampler(o);
  const SampledToken t = sampler.sample_with_logprob(logits, std::vector<int32_t>{3});
  EXPECT_NEAR(t.logprob, logits[static_cast<size_t>(t.token)] - std::log(sum), 1e-6);
  std::vector<SampledToken> best(20);
  top_logprobs(logits, best);
  std::vector<float> sorted = logits;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  for (size_t i = 0; i < best.size(); ++i) {
    EXPECT_EQ(logits[static_cast<size_t>(best[i].token)], sorted[i]);
    EXPECT_NEAR(best[i].logprob, sorted[i] - std::log(sum), 1e-6);
  }
  std::vector<SampledToken> many(501);
  test::expect_error([&] { top_logprobs(logits, many); }, {"501", "500"});
  test::expect_error([&] { token_logprob(logits, 500); }, {"token 500"});
}

TEST(Sampling, ARowDependsOnNoOtherRow) {
  constexpr int64_t kRows = 7, kVocabulary = 300;
  const Tensor logits = test::random_tensor({kRows, kVocabulary}, Format::bf16, 4);
  const std::vector<int32_t> history = {1, 2, 2};
  SamplingOptions o = warm();
  o.seed = 5, o.top_p = 0.9f, o.repetition_penalty = 1.2f;
  const auto draw = [&](int threads) {
    std::vector<Sampler> samplers;
    for (uint64_t i = 0; i < kRows; ++i) samplers.emplace_back(o, i);
    const std::vector<std::span<const int32_t>> histories(kRows, history);
    std::vector<SampledToken> tokens(kRows);
    Stream stream(Device::cpu(), threads);
    sample_rows(logits, samplers, histories, tokens, stream);
    return tokens;
  };
  const std::vector<SampledToken> one = draw(1), three = draw(3);
  const std::vector<float> values = test::to_floats(logits);
  for (size_t i = 0; i < kRows; ++i) {
    Sampler alone(o, i);
    const SampledToken t =
        alone.sample_with_logprob(std::span(values).subspan(i * kVocabulary, kVocabulary), history);
    EXPECT_EQ(one[i].token, t.token);
    EXPECT_EQ(one[i].logprob, t.logprob);
    EXPECT_EQ(three[i].token, t.token);
  }
  std::vector<SampledToken> few(3);
  std::vector<Sampler> samplers(kRows, Sampler(o));
  test::expect_error([&] { sample_rows(logits, samplers, {}, few); }, {"7 rows", "3 tokens"});
}

TEST(Sampling, DrawsAreFunctionsOfSeedRowAndIndex) {
  EXPECT_EQ(sampling_uniform(0, 0, 0), static_cast<double>(0xe220a8397b1dcdafu >> 11) * 0x1p-53);
  EXPECT_NE(sampling_uniform(1, 1, 0), sampling_uniform(1, 0, 0));
  double sum = 0;
  for (uint64_t row = 0; row < 100; ++row) {
    for (uint64_t i = 0; i < 100; ++i) sum += sampling_uniform(9, row, i);
  }
  EXPECT_NEAR(sum / 1e4, 0.5, 5 * 0.2887 / 100);  // five standard deviations
}

TEST(Sampling, EqualsTransformers) {
  std::ifstream file(test::source_path("tests/fixtures/sampling.json"));
  ASSERT_TRUE(file) << "tests/fixtures/sampling.json is missing";
  const nlohmann::json golden = nlohmann::json::parse(file);
  const auto logits = golden.at("logits").get<std::vector<float>>();
  const auto history = golden.at("history").get<std::vector<int32_t>>();
  for (const nlohmann::json& c : golden.at("cases")) {
    const auto value = [&](const char* key, auto off) {
      return c.at(key).is_null() ? off : c.at(key).get<decltype(off)>();
    };
    const SamplingOptions o{value("temperature", 1.0f), value("top_k", 0), value("top_p", 1.0f),
                            value("min_p", 0.0f), value("repetition_penalty", 1.0f)};
    const std::vector<float> p = sampling_distribution(logits, history, o);
    const auto expected = c.at("probabilities").get<std::vector<float>>();
    ASSERT_EQ(p.size(), expected.size());
    for (size_t i = 0; i < p.size(); ++i) {
      // The golden softmax is in f32 over logits up to 8 / temperature; weights are multiples of
      // 2^-52 of the largest, rounded down.
      constexpr double kUnit = 0x1p-52;
      EXPECT_NEAR(p[i], expected[i], 4e-6 * expected[i] + kUnit)
          << "token " << i << " of " << c.dump().substr(0, 120);
      EXPECT_TRUE(p[i] == 0 ? expected[i] <= kUnit : expected[i] > 0) << "token " << i;
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
  SamplingOptions o;
  o.typical_p = 0;
  expect(o, {"typical_p is 0"});
  o = {}, o.frequency_penalty = INFINITY;
  expect(o, {"frequency_penalty is inf"});
  o = {}, o.presence_penalty = NAN;
  expect(o, {"presence_penalty is nan"});
  o = {}, o.logit_bias = {{0, 1}, {-1, 0}};
  expect(o, {"logit_bias[1]", "token -1"});
  o = {}, o.logit_bias = {{0, NAN}};
  expect(o, {"logit_bias[0] is nan"});
}

}  // namespace
}  // namespace halftone
