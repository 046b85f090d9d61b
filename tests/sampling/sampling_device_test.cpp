// Tokens from logits on GPUs.
#include "halftone/sampling.h"
#include "support/devices.h"

namespace halftone {
namespace {

using test::OnDevice;

class SamplingOnDevice : public OnDevice {
 protected:
  std::vector<SampledToken> sampled(const Tensor& logits, const SamplingOptions& options,
                                    Stream& s) const {
    std::vector<Sampler> samplers;
    for (int64_t i = 0; i < logits.size(0); ++i) {
      samplers.emplace_back(options, static_cast<uint64_t>(i));
    }
    std::vector<SampledToken> tokens(samplers.size());
    sample_rows(logits, samplers, {}, tokens, s);
    return tokens;
  }
  void expect_same(const Tensor& logits, const SamplingOptions& options) const {
    Stream s = stream();
    const auto there = sampled(logits.to(device), options, s);
    const auto here = sampled(logits, options, Stream::default_stream());
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
  for (const float top_p : {1e-6f, 0.5f, 0.999f, 1.0f}) {
    for (const int top_k : {0, 1, 410, 4499, 20000}) {
      SamplingOptions o{.temperature = 0.7f, .top_k = top_k, .top_p = top_p};
      for (o.seed = 1; o.seed < (simulated() ? 2 : 20); ++o.seed) expect_same(logits, o);
    }
  }
  expect_same(logits, {.temperature = 1, .min_p = 1});
  expect_same(Tensor::zeros({1, 1}, Format::f32), {.temperature = 1, .top_k = 1, .top_p = 0.5f});
  expect_same(test::random_tensor({2, 5000}, Format::f32, 9, test::Data::huge),
              {.temperature = 2, .top_p = 0.9f});
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
    expect_same(
        test::random_tensor({draw.extent(4), draw.extent(20000)}, draw.plain_format(), seed), o);
  });
}

HALFTONE_ON_DEVICES(SamplingOnDevice);

}  // namespace
}  // namespace halftone
