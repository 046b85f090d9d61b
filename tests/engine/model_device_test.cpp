// A model on a GPU, real or simulated, beside the same model on the CPU.
#include "engine/support/memory_model.h"
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
    EXPECT_LT(distance(test::small_config(), {.kv = cache}), rounded_tolerance(step))
        << name(cache);
  }
}

TEST_P(ModelOnDevice, NarrowActivations) {
  EXPECT_LT(distance(test::small_config(),
                     {.weights = "bf16", .kv = Format::bf16, .activations = Format::bf16}),
            kBf16Tolerance);
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

}  // namespace
}  // namespace halftone
