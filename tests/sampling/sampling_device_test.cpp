// Tokens from logits on GPUs.
#include <bit>

#include "halftone/sampling.h"
#include "support/devices.h"

namespace halftone {
namespace {

using test::OnDevice;

class SamplingOnDevice : public OnDevice {
 protected:
  using Histories = std::vector<std::span<const int32_t>>;
  std::vector<SampledToken> sampled(const Tensor& logits, const SamplingOptions& options, Stream& s,
                                    const Histories& histories = {}) const {
    std::vector<Sampler> samplers;
    for (int64_t i = 0; i < logits.size(0); ++i) {
      samplers.emplace_back(options, static_cast<uint64_t>(i));
    }
    std::vector<SampledToken> tokens(samplers.size());
    sample_rows(logits, samplers, histories, tokens, s);
    return tokens;
  }
  void expect_same(const Tensor& logits, const SamplingOptions& options,
                   const Histories& histories = {}) const {
    Stream s = stream();
    const auto there = sampled(logits.to(device), options, s, histories);
    const auto here = sampled(logits, options, Stream::default_stream(), histories);
    for (size_t i = 0; i < here.size(); ++i) {
      EXPECT_EQ(there[i].token, here[i].token);
      // The sums of exponentials differ by their order in FP64.
      EXPECT_NEAR(there[i].logprob, here[i].logprob, std::abs(here[i].logprob) * 0x1p-23);
    }
  }
};

TEST_P(SamplingOnDevice, TheLargestLogitOfEachRow) {
  for (const Format format : test::kPlainFormats) {
    for (const int64_t vocabulary : {1, 7, 300, 4096, 4097, 9001}) {
      expect_same(test::random_tensor({3, vocabulary}, format, 1), {});
    }
  }
}

TEST_P(SamplingOnDevice, TiesGoToTheLowerIndexAndBannedTokensLose) {
  constexpr float kBanned = -INFINITY;
  expect_same(Tensor::from({1, 3, 3, 2, -5, -3, -3, -4, kBanned, -0.0f, 0, kBanned}, {3, 4}), {});
  expect_same(Tensor::from({kBanned, kBanned, kBanned, -1e30f}, {1, 4}), {});
}

TEST_P(SamplingOnDevice, EveryOptionGivesTheTokensOfTheCpu) {
  const Tensor logits = test::random_tensor({4, 500}, Format::f32, 2);
  expect_same(logits, {.temperature = 0.8f, .top_k = 40, .top_p = 0.9f, .seed = 3});
  expect_same(logits, {.temperature = 1.5f, .min_p = 0.05f, .seed = 4, .typical_p = 0.9f});
  expect_same(logits, {.logit_bias = {{7, 100.0f}}});
}

// Filters that cut among equals, at the ends, and together; rows of several kinds.
TEST_P(SamplingOnDevice, CutsAmongEqualTokens) {
  const Tensor logits = Tensor::empty({2, 4500}, Format::f32);
  for (int64_t i = 0; i < logits.numel(); ++i) {  // 11 scores, and one token that is banned
    logits.data<float>()[i] = i == 77 ? -INFINITY : static_cast<float>(i * 7919 % 11) / 4 - 1;
  }
  int turn = 0;
  for (const float top_p : {1e-6f, 0.5f, 0.999f, 1.0f}) {
    for (const int top_k : {0, 1, 410, 4499, 20000}) {
#if defined(HALFTONE_SANITIZED)  // every top_k and every top_p, not every pair
      if (turn++ % 4 != 0) continue;
#else
      static_cast<void>(turn);
#endif
      SamplingOptions o{.temperature = 0.7f, .top_k = top_k, .top_p = top_p};
      for (o.seed = 1; o.seed < (simulated() ? 2 : 20); ++o.seed) expect_same(logits, o);
    }
  }
  expect_same(logits, {.temperature = 1, .min_p = 1});
  expect_same(Tensor::zeros({1, 1}, Format::f32), {.temperature = 1, .top_k = 1, .top_p = 0.5f});
  expect_same(test::random_tensor({2, 5000}, Format::f32, 9, test::Data::huge),
              {.temperature = 2, .top_p = 0.9f});
}

// Penalties and biases change which token is the largest, ban it, and make equals.
TEST_P(SamplingOnDevice, PenaltiesAndBiases) {
  const Tensor logits = Tensor::empty({2, 2100}, Format::bf16);
  for (int64_t i = 0; i < logits.numel(); ++i) {
    const float x = static_cast<float>(i * 7919 % 13) / 4 - 1;
    logits.data<uint16_t>()[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
  }
  std::vector<int32_t> often, seldom = {2099};
  for (int32_t i = 0; i < 3000; i += 7) often.push_back(i % 2100);
  const Histories histories = {often, seldom};
  for (const float temperature : {0.0f, 0.7f}) {
    SamplingOptions o{.temperature = temperature, .seed = 5};
    o.repetition_penalty = 1.3f;
    expect_same(logits, o, histories);
    o.frequency_penalty = 0.4f, o.presence_penalty = -0.3f;
    expect_same(logits, o, histories);
    o.logit_bias = {{2099, 9}, {1024, -INFINITY}, {3, -2.5f}};
    expect_same(logits, o, histories);
    o.top_k = 30, o.top_p = 0.8f, o.typical_p = 0.7f;
    expect_same(logits, o, histories);
    o.logit_bias = {{5, 4}, {5, -1}};  // one after the other
    expect_same(logits, o, histories);
    expect_same(logits, o);
  }
  Stream s = stream();
  SamplingOptions o{.presence_penalty = 1, .logit_bias = {{0, -INFINITY}, {1, -INFINITY}}};
  const Tensor two = Tensor::from({1, 2}, {1, 2}).to(device);
  const auto fails = [&](const Histories& histories, const char* words) {
    test::expect_error([&] { sampled(two, o, s, histories); }, {words});
  };
  fails({}, "every logit is -inf");
  o.temperature = 1;
  fails({}, "every logit is -inf");
  o.logit_bias = {{2, 1}};
  fails({}, "logit_bias");
  o.logit_bias = {};
  const std::vector<int32_t> outside = {-1};
  fails({outside}, "history");
}

// Of tokens that are as far from the mean, on either side of it, the lower index stays.
TEST_P(SamplingOnDevice, TypicalTokens) {
  const Tensor logits = Tensor::empty({1, 3000}, Format::f32);
  for (int64_t i = 0; i < logits.numel(); ++i) {
    logits.data<float>()[i] = static_cast<float>(i * 7919 % 5) - (i == 1500 ? INFINITY : 0);
  }
  for (const float typical_p : {0.01f, 0.3f, 0.6f, 0.95f}) {
    for (const float top_p : {0.7f, 1.0f}) {
      SamplingOptions o{.temperature = 1.5f, .top_p = top_p, .typical_p = typical_p};
      for (o.seed = 1; o.seed < (simulated() ? 4 : 40); ++o.seed) expect_same(logits, o);
    }
  }
}

TEST_P(SamplingOnDevice, GreedyAndDrawnRowsInOneCall) {
  const Tensor logits = test::random_tensor({3, 700}, Format::bf16, 4);
  std::vector<Sampler> here, there;
  for (std::vector<Sampler>* s : {&here, &there}) {
    s->emplace_back(SamplingOptions{});
    s->emplace_back(SamplingOptions{.temperature = 1, .top_k = 3, .seed = 8}, 5);
    s->emplace_back(SamplingOptions{.temperature = 3, .top_p = 0.3f, .seed = 9});
  }
  Stream s = stream();
  for (int call = 0; call < 4; ++call) {  // later draws are others
    std::vector<SampledToken> a(3), b(3);
    sample_rows(logits, here, {}, a);
    sample_rows(logits.to(device), there, {}, b, s);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(a[i].token, b[i].token);
  }
  EXPECT_EQ(there[0].draws(), 0u);
  EXPECT_EQ(there[1].draws(), 4u);
}

TEST_P(SamplingOnDevice, DrawsDoNotDependOnTheSchedule) {
  const Tensor logits = test::random_tensor({2, 5000}, Format::f32, 6);
  const SamplingOptions o{.temperature = 0.9f, .top_k = 300, .top_p = 0.8f, .seed = 7};
  const auto expected = sampled(logits, o, Stream::default_stream());
  for (uint64_t seed = 1; seed <= (simulated() ? 8 : 1); ++seed) {
    Stream s = stream({.schedule = SimulatorOptions::Schedule::adversarial, .seed = seed});
    const auto tokens = sampled(logits.to(device), o, s);
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(tokens[i].token, expected[i].token);
  }
}

TEST_P(SamplingOnDevice, StridedRowsInAnyOrder) {
  const Tensor rows = test::random_tensor({2, 5000}, Format::bf16, 5);
  const Tensor x = test::shifted(rows, device, 1, 3);
  const auto expected = sampled(rows, {}, Stream::default_stream());
  for (uint64_t seed = 1; seed <= (simulated() ? 8 : 1); ++seed) {
    Stream s = stream({.schedule = SimulatorOptions::Schedule::adversarial, .seed = seed});
    const auto tokens = sampled(x, {}, s);
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(tokens[i].token, expected[i].token);
  }
}

TEST_P(SamplingOnDevice, ImpossibleLogitsAreErrors) {
  Stream s = stream();
  const auto fails = [&](std::initializer_list<float> row, const std::vector<std::string>& words) {
    const Tensor x = Tensor::from(row, {1, static_cast<int64_t>(row.size())}).to(device);
    test::expect_error([&] { sampled(x, {}, s); }, words);
  };
  fails({1, NAN, INFINITY}, {"logits[1]"});
  fails({1, 2, INFINITY}, {"logits[2]"});
  fails({-INFINITY, -INFINITY}, {"every logit is -inf"});
  const Tensor x = Tensor::from({1, 1e30f}, {1, 2}).to(device);
  test::expect_error([&] { sampled(x, {.temperature = 1e-20f}, s); }, {"temperature"});
}

TEST_P(SamplingOnDevice, RandomProblems) {
  random_problems([&](test::Draw& draw, uint64_t seed) {
    SamplingOptions o;
    o.seed = seed;
    if (!draw.one_in(4)) o.temperature = 0.2f + static_cast<float>(draw.below(20)) / 10;
    if (draw.one_in(2)) o.top_k = static_cast<int>(draw.extent(200));
    if (draw.one_in(2)) o.top_p = static_cast<float>(1 + draw.below(100)) / 100;
    if (draw.one_in(3)) o.min_p = static_cast<float>(draw.below(30)) / 100;
    if (draw.one_in(4)) o.typical_p = static_cast<float>(1 + draw.below(100)) / 100;
    const int64_t rows = draw.extent(4), vocabulary = draw.extent(20000);
    std::vector<std::vector<int32_t>> histories(static_cast<size_t>(rows));
    if (draw.one_in(3)) {
      o.repetition_penalty = 0.5f + static_cast<float>(draw.below(20)) / 10;
      o.frequency_penalty = static_cast<float>(draw.below(20)) / 10 - 1;
      o.presence_penalty = static_cast<float>(draw.below(20)) / 10 - 1;
      for (auto& history : histories) {
        for (int64_t i = draw.extent(300); i > 0; --i) {
          history.push_back(static_cast<int32_t>(draw.below(vocabulary)));
        }
      }
    }
    if (draw.one_in(3)) {
      o.logit_bias = {
          {static_cast<int32_t>(draw.below(vocabulary)), static_cast<float>(draw.below(20)) - 10}};
    }
    expect_same(test::random_tensor({rows, vocabulary}, draw.plain_format(), seed), o,
                {histories.begin(), histories.end()});
  });
}

HALFTONE_ON_DEVICES(SamplingOnDevice);

}  // namespace
}  // namespace halftone
