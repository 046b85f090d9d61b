// Frequencies and magnitudes of every scaling against those of Transformers, and their rules.
#include <algorithm>
#include <type_traits>

#include <gtest/gtest.h>

#include "halftone/rope.h"
#include "support/compare.h"
#include "support/fixtures.h"
#include "support/tolerance.h"

namespace halftone {
namespace {

LongRopeScaling longrope() {
  LongRopeScaling s;
  for (int i = 0; i < 32; ++i) {
    s.short_factor.push_back(1 + 0.02 * i);
    s.long_factor.push_back(1 + 0.9 * i);
  }
  s.factor = 32;
  return s;
}

struct Golden {
  const char* name;
  int64_t head_dim, length;
  RopeOptions options;
};

RopeOptions with(const auto& scaling, double theta = 10000, int64_t rotary_dim = 0) {
  RopeOptions o;
  o.theta = theta;
  o.rotary_dim = rotary_dim;
  using S = std::decay_t<decltype(scaling)>;
  if constexpr (std::is_same_v<S, LinearScaling>) o.linear = scaling;
  if constexpr (std::is_same_v<S, DynamicNtkScaling>) o.dynamic = scaling;
  if constexpr (std::is_same_v<S, YarnScaling>) o.yarn = scaling;
  if constexpr (std::is_same_v<S, LongRopeScaling>) o.longrope = scaling;
  return o;
}

// The settings of tests/fixtures/fixture_rope.py.
std::vector<Golden> goldens() {
  YarnScaling yarn{.factor = 16};
  YarnScaling qwen{.factor = 4, .original_max_position = 32768};
  YarnScaling oss{.factor = 32, .truncate = false};
  YarnScaling deepseek{.factor = 40, .mscale = 1, .mscale_all_dim = 1};
  YarnScaling mscale{
      .factor = 40, .beta_fast = 16, .beta_slow = 2, .mscale = 0.707, .mscale_all_dim = 0.5};
  YarnScaling fixed{.factor = 16, .attention_factor = 0.9};
  LongRopeScaling magnified = longrope();
  magnified.attention_factor = 1.25;
  return {{"linear", 64, 0, with(LinearScaling{4})},
          {"dynamic_short", 64, 1000, with(DynamicNtkScaling{2, 2048})},
          {"dynamic_long", 64, 3000, with(DynamicNtkScaling{2, 2048})},
          {"yarn", 128, 0, with(yarn)},
          {"yarn_qwen3", 128, 0, with(qwen, 1e6)},
          {"yarn_gpt_oss", 64, 0, with(oss, 150000)},
          {"yarn_deepseek", 64, 0, with(deepseek)},
          {"yarn_mscale", 64, 0, with(mscale)},
          {"yarn_attention_factor", 64, 0, with(fixed)},
          {"yarn_partial", 128, 0, with(yarn, 10000, 64)},
          {"longrope_short", 64, 0, with(longrope())},
          {"longrope_long", 64, 5000, with(longrope())},
          {"longrope_partial", 128, 5000, with(magnified, 10000, 64)}};
}

// Computed there in f32: the power, its reciprocal and up to three further roundings.
double worst(const Golden& golden, const RopeOptions& options, int64_t length) {
  const test::Fixture file("rope.safetensors");
  const std::string name = golden.name;
  const Tensor expected = file.tensor(name + ".frequencies");
  const std::vector<double> f = rope_frequencies(options, golden.head_dim, length);
  EXPECT_EQ(static_cast<int64_t>(f.size()), expected.numel());
  const double magnitude = file.tensor(name + ".magnitude").data<float>()[0];
  double difference = std::abs(rope_magnitude(options) / magnitude - 1);
  for (int64_t i = 0; i < expected.numel(); ++i) {
    const double e = expected.data<float>()[i];
    difference = std::max(difference, std::abs(f[static_cast<size_t>(i)] / e - 1));
  }
  return difference;
}

TEST(RopeScaling, EqualsTransformers) {
  for (const Golden& golden : goldens()) {
    EXPECT_LT(worst(golden, golden.options, golden.length), 20 * test::kF32Roundoff) << golden.name;
  }
}

// Every setting moves some frequency or the magnitude far beyond that tolerance.
TEST(RopeScaling, EverySettingShows) {
  for (const Golden& golden : goldens()) {
    std::vector<RopeOptions> changed(4, golden.options);
    int64_t length = golden.length;
    changed[0].theta *= 1.001;
    if (auto& s = changed[1].linear) s->factor *= 1.001;
    if (auto& s = changed[1].dynamic; s && length > 2048) s->factor *= 1.001;
    if (auto& s = changed[1].yarn) s->factor *= 1.001;
    if (auto& s = changed[1].longrope) (length > 0 ? s->long_factor : s->short_factor)[3] *= 1.001;
    if (auto& s = changed[2].yarn) s->beta_fast *= s->truncate ? 2 : 1.01;
    if (auto& s = changed[3].yarn) s->truncate = !s->truncate;
    for (size_t i = 0; i < changed.size(); ++i) {
      const bool same =
          i > 0 && (!golden.options.yarn && (i > 1 || (changed[1].dynamic && length <= 2048)));
      if (same) continue;
      EXPECT_GT(worst(golden, changed[i], length), 1e-5) << golden.name << " change " << i;
    }
  }
}

Tensor positions_of(std::vector<int64_t> values) {
  return Tensor::from<int64_t>(values, {static_cast<int64_t>(values.size())}, Format::i64);
}

// Rotation by those frequencies at every level, with the magnitude, both styles and a part of the
// head: the bound of rope_test times the magnitude.
TEST(RopeScaling, RotatesAsTheReference) {
  const Tensor positions = positions_of({0, 5, 900, 4999});
  test::at_every_level([&] {
    for (const Golden& golden : goldens()) {
      for (const auto style : {RopeStyle::half_split, RopeStyle::interleaved}) {
        RopeOptions options = golden.options;
        options.style = style;
        const Tensor x = test::random_tensor({4, 2, golden.head_dim}, Format::f32, 9);
        const std::vector<float> reference = test::to_floats(rope_reference(x, positions, options));
        Tensor y = x.contiguous_copy();
        rope(y, positions, options);
        double largest = 0;
        for (const float v : test::to_floats(x)) largest = std::max(largest, std::abs(double{v}));
        const double bound =
            2 * largest * rope_magnitude(options) * (0x1p-23 + 6 * test::kF32Roundoff);
        EXPECT_TRUE(test::within(test::to_floats(y), reference,
                                 std::vector<double>(reference.size(), bound)))
            << golden.name;
        RopeOptions plain = options;
        plain.yarn.reset();
        plain.linear.reset();
        plain.dynamic.reset();
        plain.longrope.reset();
        Tensor z = x.contiguous_copy();
        rope(z, positions, plain);
        EXPECT_FALSE(test::within(test::to_floats(z), reference,
                                  std::vector<double>(reference.size(), bound)))
            << golden.name << " without its scaling";
      }
    }
  });
}

// One call sees the length of the sequence, so that all its tokens turn alike.
TEST(RopeScaling, TheLongestPositionDecides) {
  const RopeOptions options = with(DynamicNtkScaling{2, 2048});
  EXPECT_TRUE(depends_on_length(options));
  EXPECT_FALSE(depends_on_length(with(YarnScaling{})));
  const Tensor x = test::random_tensor({2, 1, 64}, Format::f32, 3);
  Tensor together = x.contiguous_copy();
  rope(together, positions_of({7, 2999}), options);
  RopeProblem problem{2, 1, 64, Format::f32, options, 3000};
  Tensor planned = x.contiguous_copy();
  run(plan(problem, Device::cpu()), {planned, positions_of({7, 2999})}, Stream::default_stream());
  EXPECT_TRUE(test::same_bits(together, planned));
  Tensor alone = x.slice(0, 0, 1).contiguous_copy();
  rope(alone, positions_of({7}), options);
  EXPECT_FALSE(test::same_bits(together.slice(0, 0, 1).contiguous_copy(), alone));
}

TEST(RopeScaling, WrongSettingsAreNamed) {
  const auto expect = [](const RopeOptions& options, const std::vector<std::string>& words) {
    const Support support = can_run(RopeProblem{1, 1, 64, Format::f32, options}, Device::cpu());
    EXPECT_FALSE(support.ok);
    for (const std::string& word : words) {
      EXPECT_NE(support.reason.find(word), std::string::npos) << support.reason;
    }
  };
  expect(with(LinearScaling{0.5}), {"linear", "factor 0.5"});
  expect(with(DynamicNtkScaling{2, 0}), {"dynamic", "original_max_position 0"});
  expect(with(YarnScaling{.factor = NAN}), {"yarn", "factor"});
  expect(with(YarnScaling{.beta_fast = 1, .beta_slow = 2}), {"beta_fast 1", "beta_slow 2"});
  expect(with(YarnScaling{.attention_factor = -1.0}), {"attention_factor -1"});
  expect(with(YarnScaling{.mscale = -1}), {"mscale -1"});
  expect(with(YarnScaling{}, 1), {"theta is 1", "yarn"});
  LongRopeScaling s = longrope();
  s.long_factor.pop_back();
  expect(with(s), {"long_factor has 31", "32"});
  s = longrope();
  s.short_factor[4] = 0;
  expect(with(s), {"short_factor holds 0"});
  RopeOptions both = with(LinearScaling{2});
  both.llama3 = Llama3Scaling{};
  expect(both, {"2 scalings"});
  EXPECT_NE(describe(plan(RopeProblem{1, 1, 64, Format::f32, with(YarnScaling{})}, Device::cpu()))
                .find("yarn"),
            std::string::npos);
}

}  // namespace
}  // namespace halftone
