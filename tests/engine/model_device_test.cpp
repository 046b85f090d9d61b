// A model on a GPU, real or simulated, beside the same model on the CPU.
#include <thread>
#include <utility>

#include "engine/support/memory_model.h"
#include "halftone/memory.h"
#include "halftone/simulator.h"
#include "support/devices.h"

namespace halftone {
namespace {

using test::make_model;
using test::random_checkpoint;
using test::random_tokens;
using test::relative_difference;

// As in session_test.cpp: sums in another order. The exponentials and roots of the two devices
// differ by a few units in the last place too, which is less.
constexpr double kOrderTolerance = 2e-5;
// Values that differ by t of themselves land on different sides of a rounding to steps of s with
// the probability t / s, and are then s apart: sqrt(t s) in the norm. Three of that for the layers.
double rounded_tolerance(double step) { return 3 * std::sqrt(kOrderTolerance * step); }
// Attention in bf16 rounds Q and P, which a CPU that multiplies in f32 does not: each element is
// off by at most 2^-9 of itself, and so are the sums of them. Of three layers.
constexpr double kOperandTolerance = 3 * 0x1p-9;
// Where every operation rounds, t grows by that rule until it is the step itself.
constexpr double kBf16Tolerance = 3 * 0x1p-8;

class ModelOnDevice : public test::OnDevice {
 protected:
  struct Case {
    const char* weights = "";
    Format kv = Format::f32, activations = Format::f32;
    int64_t prompt = 5, tokens = 7;  // the rest one by one
  };
  // Logits behind the prompt and behind each of the tokens after it.
  static std::vector<float> logits(const test::MemoryCheckpoint& checkpoint, const Case& c,
                                   const Device& where) {
    SessionOptions options;
    options.kv = c.kv, options.activations = c.activations, options.threads = 1;
    options.max_length = 96;
    Session session(make_model(checkpoint, c.weights, where), options);
    const std::vector<int32_t> tokens = random_tokens(c.tokens, 5);
    std::vector<float> all;
    const auto append = [&](std::span<const int32_t> some) {
      const std::span<const float> row = session.forward(some);
      all.insert(all.end(), row.begin(), row.end());
    };
    const auto prompt = static_cast<size_t>(c.prompt);
    append(std::span(tokens).subspan(0, prompt));
    for (size_t i = prompt; i < tokens.size(); ++i) append(std::span(tokens).subspan(i, 1));
    return all;
  }
  double distance(const ModelConfig& config, const Case& c) const {
    const test::MemoryCheckpoint checkpoint = random_checkpoint(config);
    return relative_difference(logits(checkpoint, c, device), logits(checkpoint, c, Device::cpu()));
  }
};

// 66 tokens: the cache grows by a page on the way.
TEST_P(ModelOnDevice, LogitsAreThoseOfTheCpu) {
#if defined(HALFTONE_SANITIZED)
  EXPECT_LT(distance(test::small_config(), {}), kOrderTolerance);
#else
  EXPECT_LT(distance(test::small_config(), {.prompt = 62, .tokens = 66}), kOrderTolerance);
#endif
}

TEST_P(ModelOnDevice, MixtureOfExperts) {
  EXPECT_LT(distance(test::small_moe_config(), {}), kOrderTolerance);
  EXPECT_LT(distance(test::small_moe_config(), {.weights = "nvfp4"}), kOrderTolerance);
}

TEST_P(ModelOnDevice, EveryWeightFormat) {
#if defined(HALFTONE_SANITIZED)  // the simulator is slow then, and the families test every format
  constexpr const char* kWeights[] = {"fp8", "nvfp4"};
#else
  constexpr const char* kWeights[] = {"bf16",  "f16",   "fp8",  "fp8_row",  "mxfp8",
                                      "mxfp4", "nvfp4", "int8", "int4_g64", "int4_asym"};
#endif
  for (const char* weights : kWeights) {
    EXPECT_LT(distance(test::small_config(), {.weights = weights}), kOrderTolerance) << weights;
  }
}

TEST_P(ModelOnDevice, EveryCacheFormat) {
  for (const auto& [cache, step] : {std::pair{Format::bf16, 0x1p-8},
                                    {Format::f16, 0x1p-11},
                                    {Format::fp8_e4m3, 0x1p-4},
                                    {Format::nvfp4, 0x1p-2}}) {
    const double operands = cache == Format::f16 ? 0 : kOperandTolerance;  // f16 in f32 everywhere
    EXPECT_LT(distance(test::small_config(), {.kv = cache}), rounded_tolerance(step) + operands)
        << name(cache);
  }
}

TEST_P(ModelOnDevice, NarrowActivations) {
  EXPECT_LT(distance(test::small_config(),
                     {.weights = "bf16", .kv = Format::bf16, .activations = Format::bf16}),
            kBf16Tolerance);
}

// Norms, rotation and append as one kernel, and operation by operation because someone looks on.
TEST_P(ModelOnDevice, HeadsInOnePassGiveTheSameBits) {
  ModelConfig config = test::small_config();
  config.architecture = "Qwen3ForCausalLM";
  config.qk_norm = true, config.head_dim = 64, config.layers = 2;
  const auto model = make_model(random_checkpoint(config), "bf16", device);
  const std::vector<int32_t> tokens = random_tokens(4, 5);
  for (const Format kv : {Format::bf16, Format::fp8_e4m3}) {
    SessionOptions options;
    options.kv = kv, options.activations = Format::bf16, options.max_length = 64;
    Session fused(model, options);
    int seen = 0;
    options.on_attention = [&](int64_t, const Tensor&, const Tensor&, const Tensor&) { ++seen; };
    Session separate(model, options);
    for (const auto& [begin, count] : {std::pair<size_t, size_t>{0, 3}, {3, 1}}) {
      const auto part = std::span(tokens).subspan(begin, count);
      const std::span<const float> a = fused.forward(part), b = separate.forward(part);
      EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << name(kv);
    }
    EXPECT_EQ(seen, 4);
    // Two norms, two rotations and an append become one kernel, in two layers of two passes; and on
    // Hopper, of one token, the products of query, key and value.
    if (simulated()) {
      const uint64_t products = device.arch() >= Arch::sm_90a ? 4 : 0;
      EXPECT_EQ(simulator_report(fused.stream()).launches + 16 + products,
                simulator_report(separate.stream()).launches);
    }
  }
}

// The tokens that the device picks for itself are those of the logits it gives, for one sequence
// and for several in step, across a page of the cache and with a graph where there are any.
TEST_P(ModelOnDevice, GreedyTokensAreThoseOfTheLogits) {
  const auto model = make_model(random_checkpoint(test::small_moe_config()), "fp8", device);
  for (const int64_t sequences : {1, 3}) {
    if (simulated() && sequences == 1) continue;  // which would take half a minute
    SessionOptions options;
    options.max_length = 160, options.sequences = sequences, options.threads = 1;
    Session by_logits(model, options), by_device(model, options);
    const int64_t held = 6, passes = simulated() ? 3 : 100;
    const std::vector<int32_t> prompt = random_tokens(held * sequences, 5);
    std::vector<int32_t> now = random_tokens(sequences, 6);
    by_logits.forward(prompt), by_device.forward(prompt);
    std::vector<std::vector<int32_t>> picked;
    by_device.decode_greedily(now, passes, [&](std::span<const int32_t> tokens) {
      picked.emplace_back(tokens.begin(), tokens.end());
      return true;
    });
    EXPECT_EQ(by_device.length(), held + passes);
    ASSERT_EQ(picked.size(), static_cast<size_t>(passes));
    for (const std::vector<int32_t>& tokens : picked) {
      const std::span<const float> logits = by_logits.forward(now);
      const size_t vocabulary = logits.size() / now.size();
      for (size_t s = 0; s < now.size(); ++s) {
        const auto row = logits.subspan(s * vocabulary, vocabulary);
        now[s] = static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
      }
      ASSERT_EQ(tokens, now);
    }
    const std::string how = by_device.decoding();
    EXPECT_EQ(how.find(simulated() ? "has no graphs" : "a graph of") == std::string::npos, false)
        << how;
  }
}

// Tokens that the device draws are those that samplers draw from its logits, in calls that continue
// each other, with filters that come and go.
TEST_P(ModelOnDevice, DrawnTokensAreThoseOfTheSamplers) {
  const auto model = make_model(random_checkpoint(test::small_config()), "", device);
  SessionOptions options;
  options.max_length = 160, options.sequences = 2, options.threads = 1;
  Session by_logits(model, options), by_device(model, options);
  const std::vector<int32_t> prompt = random_tokens(6, 5);
  by_logits.forward(prompt), by_device.forward(prompt);
  std::vector<int32_t> now = random_tokens(2, 6);
  for (const SamplingOptions& o :
       {SamplingOptions{.temperature = 1, .top_p = 0.9f, .seed = 3},
        SamplingOptions{.temperature = 2, .top_k = 20, .seed = 4},
        SamplingOptions{.temperature = 1, .typical_p = 0.9f, .frequency_penalty = 1},
        SamplingOptions{.repetition_penalty = 3, .logit_bias = {{7, 4}}}}) {
    std::vector<Sampler> here{Sampler(o, 0), Sampler(o, 1)}, there = here;
    std::vector<int32_t> last = now;
    const int64_t passes = simulated() ? 2 : 19;  // eight calls of them end below max_length
    for (int call = 0; call < 2; ++call) {
      by_device.decode(last, passes, there, [&](std::span<const int32_t> tokens) {
        const std::span<const float> logits = by_logits.forward(now);
        const size_t vocabulary = logits.size() / 2;
        for (size_t s = 0; s < 2; ++s) {
          now[s] = here[s].sample(logits.subspan(s * vocabulary, vocabulary),
                                  by_logits.tokens(static_cast<int64_t>(s)));
        }
        EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), now.begin()));
        return !HasFailure();
      });
      last = now;
    }
    EXPECT_EQ(there[0].draws(), here[0].draws());
  }
}

TEST_P(ModelOnDevice, GreedyDecodingEndsWhereItIsTold) {
  const auto model = make_model(random_checkpoint(test::small_config()), "", device);
  Session session(model, test::exact_session());
  const std::vector<int32_t> prompt = random_tokens(3, 5);
  session.forward(prompt);
  const int32_t first = 7;
  int calls = 0;
  session.decode_greedily({&first, 1}, 10, [&](std::span<const int32_t>) { return ++calls < 3; });
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(session.length(), 6);  // a pass that ran ahead does not count
  EXPECT_EQ(session.tokens()[3], first);
  Session again(model, test::exact_session());
  again.forward(session.tokens());
  const std::span<const float> a = session.forward({&first, 1}), b = again.forward({&first, 1});
  EXPECT_LT(relative_difference(a, b), kOrderTolerance);
  test::expect_error(
      [&] {
        session.decode_greedily({&first, 1}, 5000, {});
      },
      {"passes is 5000", "max_length"});
}

// Sequences in step give what each gives alone.
TEST_P(ModelOnDevice, SequencesInStep) {
  const auto model = make_model(random_checkpoint(test::small_config()), "nvfp4", device);
  SessionOptions options = test::exact_session();
  options.sequences = 2;
  Session both(model, options);
  const std::vector<int32_t> tokens = random_tokens(2 * 9, 5);
  const std::span<const float> after = both.forward(tokens);
  std::vector<float> logits(after.begin(), after.end());
  const int32_t more[2] = {3, 4};
  const std::span<const float> next = both.forward(more);
  logits.insert(logits.end(), next.begin(), next.end());
  for (size_t s = 0; s < 2; ++s) {
    Session alone(model, test::exact_session());
    const auto row = [&](size_t pass) {
      return std::span(logits).subspan((pass * 2 + s) * 258, 258);
    };
    EXPECT_LT(relative_difference(row(0), alone.forward(std::span(tokens).subspan(9 * s, 9))),
              kOrderTolerance);
    EXPECT_LT(relative_difference(row(1), alone.forward(std::span(more).subspan(s, 1))),
              kOrderTolerance);
  }
}

// What is counted before a weight is read is what is taken in the end.
TEST_P(ModelOnDevice, MemoryIsKnownBefore) {
  if (simulated()) GTEST_SKIP() << "only a chip counts what is in use; model_test has the rest";
  for (const char* weights : {"", "bf16", "nvfp4"}) {
    const test::MemoryCheckpoint checkpoint = random_checkpoint(test::small_moe_config());
    LoadOptions load;
    load.weights = weights, load.device = device;
    SessionOptions options;
    options.max_length = 512;  // a prompt of one pass: others would be prepared, and counted, too
    const MemoryNeed need = memory_needed(checkpoint, load, options);
    const int64_t before = device_memory(device).used;
    const auto model = make_model(checkpoint, weights, device);
    Session session(model, options);
    session.forward(random_tokens(512, 5));
    EXPECT_EQ(need.weights, model->weight_bytes());
    const auto used = static_cast<double>(device_memory(device).used - before);
    EXPECT_NEAR(static_cast<double>(need.total()) / used, 1, 0.05) << weights;
  }
}

TEST_P(ModelOnDevice, SeveralSessionsOnOneModel) {
  const auto model = make_model(random_checkpoint(test::small_config()), "fp8", device);
  const std::vector<int32_t> tokens = random_tokens(8, 5);
  const auto decoded = [&](int32_t first) {
    Session session(model, test::exact_session());
    session.forward(tokens);
    std::vector<int32_t> all;
    session.decode_greedily({&first, 1}, simulated() ? 2 : 80, [&](std::span<const int32_t> next) {
      all.push_back(next[0]);
      return true;
    });
    return all;
  };
  std::vector<std::vector<int32_t>> alone, beside(simulated() ? 2 : 4);
  for (size_t i = 0; i < beside.size(); ++i) alone.push_back(decoded(static_cast<int32_t>(i)));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < beside.size(); ++i) {
    threads.emplace_back([&, i] { beside[i] = decoded(static_cast<int32_t>(i)); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(beside, alone);
}

// One token of the prompt changed is far beyond every tolerance above.
TEST_P(ModelOnDevice, TheTolerancesNoticeATokenChanged) {
  const auto model = make_model(random_checkpoint(test::small_config()), "", device);
  std::vector<int32_t> tokens = random_tokens(5, 5);
  const auto last = [&] {
    Session session(model, test::exact_session());
    const std::span<const float> row = session.forward(tokens);
    return std::vector<float>(row.begin(), row.end());
  };
  const std::vector<float> right = last();
  tokens[3] ^= 1;
  EXPECT_GT(relative_difference(last(), right), 5 * kBf16Tolerance);
}

HALFTONE_ON_DEVICES(ModelOnDevice);

// The GPUs that those tests leave out: a dense model and one of experts in four bits.
class ModelOnOtherChip : public ModelOnDevice {};

TEST_P(ModelOnOtherChip, LogitsAreThoseOfTheCpu) {
  EXPECT_LT(distance(test::small_config(), {}), kOrderTolerance);
  EXPECT_LT(distance(test::small_moe_config(), {.weights = "nvfp4"}), kOrderTolerance);
}

INSTANTIATE_TEST_SUITE_P(Devices, ModelOnOtherChip,
                         ::testing::Values("sim:sm_89", "sim:sm_100a", "sim:sm_120a"),
                         ::halftone::test::device_name);

}  // namespace
}  // namespace halftone
