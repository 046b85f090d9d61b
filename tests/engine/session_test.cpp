// Sessions: chunks of the prompt, the cache's length and formats, threads, wrong calls.
#include <algorithm>
#include <optional>
#include <thread>

#include "engine/support/memory_model.h"
#include "support/sanitized.h"

namespace halftone {
namespace {

using test::exact_session;
using test::make_model;
using test::random_checkpoint;
using test::random_tokens;
using test::relative_difference;
using test::values_of;

std::vector<float> logits_of(Session& session, std::span<const int32_t> tokens) {
  const std::span<const float> logits = session.forward(tokens);
  return {logits.begin(), logits.end()};
}

// Sums of K f32 products in another order differ by about sqrt(K) * 2^-24 of their size, 1.3e-6 for
// K = 256 rounded up; seven products and two sums a layer, three layers: below 2e-5 in the norm.
constexpr double kOrderTolerance = 2e-5;

class SessionTest : public ::testing::TestWithParam<bool> {
 protected:
  ModelConfig config() const {
    return GetParam() ? test::small_moe_config() : test::small_config();
  }
};

TEST_P(SessionTest, PromptAtOnceEqualsTokenByToken) {
  const auto model = make_model(random_checkpoint(config()));
  const std::vector<int32_t> tokens = random_tokens(70, 5);
  Session whole(model, exact_session()), single(model, exact_session()),
      pieces(model, exact_session());
  const Tensor all = whole.forward_all(tokens);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::vector<float> step = logits_of(single, std::span(tokens).subspan(i, 1));
    const Tensor row = all.slice(0, static_cast<int64_t>(i), static_cast<int64_t>(i) + 1);
    EXPECT_LT(relative_difference(step, values_of(row)), kOrderTolerance) << "token " << i;
  }
  pieces.forward(std::span(tokens).subspan(0, 33));
  const std::vector<float> last = logits_of(pieces, std::span(tokens).subspan(33));
  const Tensor row = all.slice(0, 69, 70);
  EXPECT_LT(relative_difference(last, values_of(row)), kOrderTolerance);
  EXPECT_EQ(pieces.length(), 70);
}

// The tolerance above must notice one token that is left out, or one position that is off.
TEST_P(SessionTest, ToleranceNoticesOneTokenLess) {
  const auto model = make_model(random_checkpoint(config()));
  const std::vector<int32_t> tokens = random_tokens(70, 5);
  Session whole(model, exact_session()), less(model, exact_session());
  const std::vector<float> right = logits_of(whole, tokens);
  const std::vector<float> wrong = logits_of(less, std::span(tokens).subspan(1));
  EXPECT_GT(relative_difference(wrong, right), 10 * kOrderTolerance);
}

TEST_P(SessionTest, LongPromptsRunInChunks) {
  const auto model = make_model(random_checkpoint(config()));
  const std::vector<int32_t> tokens = random_tokens(600, 6);  // one pass holds 512
  Session whole(model, exact_session()), halves(model, exact_session());
  const std::vector<float> at_once = logits_of(whole, tokens);
  halves.forward(std::span(tokens).subspan(0, 300));
  const std::vector<float> in_two = logits_of(halves, std::span(tokens).subspan(300));
  EXPECT_LT(relative_difference(in_two, at_once), kOrderTolerance);
  Session all(model, exact_session());
  const Tensor rows = all.forward_all(tokens);
  EXPECT_EQ(rows.shape(), (Shape{600, 258}));
  EXPECT_LT(relative_difference(values_of(rows.slice(0, 599, 600)), at_once), kOrderTolerance);
}

// 600 tokens of each of three sequences: several passes, gathered from the tokens of each.
TEST_P(SessionTest, SequencesInStepGiveWhatEachGivesAlone) {
  const auto model = make_model(random_checkpoint(config()));
  constexpr size_t kSequences = 3, kTokens = 600, kVocabulary = 258;
  SessionOptions options = exact_session();
  options.sequences = kSequences;
  Session session(model, options);
  const std::vector<int32_t> tokens = random_tokens(kSequences * kTokens, 6);
  const std::vector<float> at_once = logits_of(session, tokens);
  const std::vector<float> next = logits_of(session, std::span(tokens).subspan(0, kSequences));
  for (size_t s = 0; s < kSequences; ++s) {
    Session alone(model, exact_session());
    const auto own = std::span(tokens).subspan(s * kTokens, kTokens);
    EXPECT_LT(relative_difference(std::span(at_once).subspan(s * kVocabulary, kVocabulary),
                                  logits_of(alone, own)),
              kOrderTolerance);
    EXPECT_LT(relative_difference(std::span(next).subspan(s * kVocabulary, kVocabulary),
                                  logits_of(alone, std::span(tokens).subspan(s, 1))),
              kOrderTolerance);
    EXPECT_TRUE(std::ranges::equal(session.tokens(static_cast<int64_t>(s)), alone.tokens()));
  }
  test::expect_error([&] { session.forward(std::span(tokens).subspan(0, 4)); }, {"4", "3 seq"});
  test::expect_error([&] { session.forward_all(tokens); }, {"single sequence", "3"});
}

// The count is made of tensors without memory; the weights' is exact, and of a full session only
// the passes that stay prepared are not.
TEST_P(SessionTest, MemoryIsCountedBeforeAWeightIsRead) {
  for (const char* weights : test::some(std::vector{"", "bf16", "fp8", "nvfp4", "int4_asym"})) {
    for (const Format kv :
         test::some(std::vector{Format::f32, Format::fp8_e4m3, Format::nvfp4}, 1)) {
      const test::MemoryCheckpoint checkpoint = random_checkpoint(config());
      LoadOptions load;
      load.weights = weights;
      SessionOptions options;
      options.kv = kv, options.threads = 1;
      const MemoryNeed need = memory_needed(checkpoint, load, options);
      const auto model = make_model(checkpoint, weights);
      Session session(model, options);
      session.forward(random_tokens(1024, 5));
      EXPECT_EQ(need.weights, model->weight_bytes());
      EXPECT_NEAR(static_cast<double>(need.session) / static_cast<double>(session.bytes()), 1, 0.05)
          << weights << " " << name(kv);
    }
  }
}

// What is counted is the most that is taken, whatever the prompts are: of one pass, of several, of
// odd lengths, of several sequences. Prompts shorter than a pass take less.
TEST_P(SessionTest, MemoryIsCountedForAnyPrompts) {
  const test::MemoryCheckpoint checkpoint = random_checkpoint(config());
  const auto model = make_model(checkpoint, "nvfp4");
  using Prompts = std::vector<int64_t>;
  for (const Prompts& prompts : test::some(
           std::vector<Prompts>{{1024}, {699, 324, 1}, {1, 1023}, {17, 300, 299, 301, 107}})) {
    for (const int64_t sequences : test::some(std::vector<int64_t>{1, 3}, 1)) {
      SCOPED_TRACE(std::to_string(sequences) + " sequences, first prompt " +
                   std::to_string(prompts.front()));
      LoadOptions load;
      load.weights = "nvfp4";
      SessionOptions options;
      options.threads = 1, options.sequences = sequences;
      const auto need = static_cast<double>(memory_needed(checkpoint, load, options).session);
      int64_t most = 0;
      std::optional<Session> session;
      options.on_attention = [&](int64_t, const Tensor&, const Tensor&, const Tensor&) {
        most = std::max(most, session->bytes());
      };
      session.emplace(model, options);
      for (const int64_t length : prompts) session->forward(random_tokens(length * sequences, 5));
      EXPECT_LT(static_cast<double>(most), 1.05 * need);
      const bool whole_passes = prompts.back() >= 1023 && sequences == 1;
      if (whole_passes) {
        EXPECT_GT(static_cast<double>(most), 0.95 * need);
      }
    }
  }
}

TEST_P(SessionTest, TruncateForgets) {
  const auto model = make_model(random_checkpoint(config()));
  const std::vector<int32_t> tokens = random_tokens(40, 7), other = random_tokens(20, 8);
  Session session(model, exact_session());
  session.forward(std::span(tokens).subspan(0, 20));
  const std::vector<float> first = logits_of(session, std::span(tokens).subspan(20));
  session.truncate(20);
  EXPECT_EQ(session.length(), 20);
  EXPECT_EQ(session.tokens().size(), 20u);
  const std::vector<float> second = logits_of(session, other);
  EXPECT_GT(relative_difference(second, first), 0.01);
  session.truncate(20);
  EXPECT_EQ(logits_of(session, std::span(tokens).subspan(20)), first);  // the same bits
}

// In every kind of weights and cache; 300 keys and 3 threads for 2 KV heads, so that attention
// splits the keys of one head among threads.
TEST_P(SessionTest, SameBitsForAnyThreadCount) {
  const std::vector<int32_t> tokens = random_tokens(300, 9), next = random_tokens(2, 3);
  struct Case {
    const char* weights;
    Format kv;
  };
  for (const Case& c :
       {Case{"f32", Format::f32}, Case{"bf16", Format::bf16}, Case{"fp8", Format::fp8_e4m3},
        Case{"nvfp4", Format::nvfp4}, Case{"int4", Format::f16}}) {
    SCOPED_TRACE(std::string(c.weights) + " with a cache in " + name(c.kv));
    const auto model = make_model(random_checkpoint(config()), c.weights);
    const auto run = [&](int threads) {
      SessionOptions options;
      options.kv = c.kv;
      options.threads = threads;
      Session session(model, options);
      std::vector<float> result = logits_of(session, tokens);
      for (const int32_t token : next) {
        const std::span<const float> step = session.forward(std::span(&token, 1));
        result.insert(result.end(), step.begin(), step.end());
      }
      return result;
    };
    const std::vector<float> one = run(1);
    EXPECT_EQ(run(2), one);
    EXPECT_EQ(run(3), one);
  }
}

TEST_P(SessionTest, SeveralSessionsAtOnce) {
  const auto model = make_model(random_checkpoint(config()));
  constexpr int kSessions = 4;
  const auto run = [&](int index) {
    Session session(model, exact_session(index % 2 + 1));
    std::vector<float> logits = logits_of(session, random_tokens(30, uint64_t(index)));
    for (int i = 0; i < 5; ++i) logits = logits_of(session, random_tokens(1, uint64_t(i)));
    return logits;
  };
  std::vector<std::vector<float>> together(kSessions);
  std::vector<std::thread> threads;
  for (int i = 0; i < kSessions; ++i) {
    threads.emplace_back([&, i] { together[size_t(i)] = run(i); });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kSessions; ++i) EXPECT_EQ(together[size_t(i)], run(i)) << "session " << i;
}

// The formats of cache and activations against f32. Rounding to a relative step u changes each of
// the keys, values (and activations) by at most u/2, at random; an attention output averages the
// errors of the values and sees those of the keys through the scores, which here have a spread of
// about 1. With attention one of two branches of each of 3 layers, the logits move by at most a few
// u; twice is allowed to the whole (2^-8 bf16, 2^-11 f16, 2^-3 fp8, 2^-1.5 nvfp4), and at least a
// hundredth of a step must be seen, or the format was not used.
TEST_P(SessionTest, CacheFormatsKeepTheirPrecision) {
  const auto model = make_model(random_checkpoint(config()));
  const std::vector<int32_t> tokens = random_tokens(90, 10);
  Session exact(model, exact_session());
  exact.forward(std::span(tokens).subspan(0, 80));
  const std::vector<float> reference = logits_of(exact, std::span(tokens).subspan(80));
  struct Case {
    Format format;
    double step, bytes;  // of one element, scales included
  };
  for (const Case& c : {Case{Format::f16, 0x1p-11, 2}, Case{Format::bf16, 0x1p-8, 2},
                        Case{Format::fp8_e4m3, 0x1p-3, 1.125}, Case{Format::nvfp4, 0.35, 0.5625}}) {
    SessionOptions options = exact_session();
    options.kv = c.format;
    Session session(model, options);
    session.forward(std::span(tokens).subspan(0, 80));
    const std::vector<float> logits = logits_of(session, std::span(tokens).subspan(80));
    const double difference = relative_difference(logits, reference);
    EXPECT_LT(difference, 2 * c.step) << name(c.format);
    EXPECT_GT(difference, 0.01 * c.step) << name(c.format);
    // 90 tokens take two pages of 64; three layers of keys and values of two heads of 32.
    const int64_t elements = 2 * 64 * 3 * 2 * 2 * 32;
    const double saved = static_cast<double>(exact.bytes() - session.bytes());
    EXPECT_GT(saved, 0.9 * elements * (4 - c.bytes)) << name(c.format);
  }
}

TEST_P(SessionTest, NarrowActivations) {
  ModelConfig c = config();
  c.experts_per_token = c.experts;  // all of them: a rounding error cannot change the choice
  const auto model = make_model(random_checkpoint(c, Format::bf16));
  const std::vector<int32_t> tokens = random_tokens(50, 11);
  Session exact(model, exact_session());
  const std::vector<float> reference = logits_of(exact, tokens);
  // Some ten roundings a layer of relative size u at most (2^-9 bf16, 2^-12 f16), adding at random
  // over three layers: sqrt(30) u. Fourfold for those that a norm or the softmax magnifies. And no
  // less than u, or the activations were not narrow.
  for (const Format format : {Format::bf16, Format::f16}) {
    const double u = format == Format::bf16 ? 0x1p-9 : 0x1p-12;
    SessionOptions options;
    options.activations = options.kv = format;
    Session narrow(model, options);
    const double difference = relative_difference(logits_of(narrow, tokens), reference);
    EXPECT_LT(difference, 4 * std::sqrt(30.0) * u) << name(format);
    EXPECT_GT(difference, u) << name(format);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SessionTest, ::testing::Values(false, true),
                         [](const auto& info) { return info.param ? "moe" : "dense"; });

TEST(SessionErrors, EachNamesTheArgument) {
  const auto model = make_model(random_checkpoint(test::small_config()));
  SessionOptions options = exact_session();
  options.max_length = 16;
  Session session(model, options);
  const std::vector<int32_t> tokens = random_tokens(17, 1);
  test::expect_error([&] { session.forward({}); }, {"tokens is empty"});
  test::expect_error([&] { session.forward(tokens); }, {"17", "max_length is 16"});
  const std::vector<int32_t> outside = {258}, negative = {-1};
  test::expect_error([&] { session.forward(outside); }, {"token 258", "vocabulary of 258"});
  test::expect_error([&] { session.forward(negative); }, {"token -1"});
  EXPECT_EQ(session.length(), 0);
  test::expect_error([&] { session.truncate(1); }, {"truncate to 1"});
  options.max_length = 1025;
  test::expect_error([&] { Session(model, options); }, {"max_length is 1025", "1024"});
  options.max_length = -1;
  test::expect_error([&] { Session(model, options); }, {"max_length is -1"});
  test::expect_error([&] { Session(nullptr); }, {"model is null"});
  options = {};
  options.activations = Format::int8;
  test::expect_error([&] { Session(model, options); }, {"activations is int8"});
  options = {};
  options.kv = Format::int4;
  test::expect_error([&] { Session(model, options); }, {"int4"});
}

}  // namespace
}  // namespace halftone
