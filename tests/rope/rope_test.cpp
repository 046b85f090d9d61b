#include "halftone/rope.h"

#include <gtest/gtest.h>

#include <numbers>
#include <tuple>

#include "support/compare.h"
#include "support/fixtures.h"
#include "support/tolerance.h"

namespace halftone {
namespace {

// Cosine and sine are within 2^-23 (2 ulp of values up to 1; the angle itself is reduced in double,
// as in the reference), times the magnitude where a scaling has one, which rounds again. Each of
// the two products and their sum is rounded: 3 u of |a| + |b|.
std::vector<double> bounds(const Tensor& x, const std::vector<float>& reference,
                           const RopeOptions& o) {
  const std::vector<float> v = test::to_floats(x);
  const int64_t dim = x.size(2), rotary = o.rotary_dim == 0 ? dim : o.rotary_dim;
  std::vector<double> bound;
  for (size_t i = 0; i < v.size(); ++i) {
    const int64_t c = static_cast<int64_t>(i) % dim;
    if (c >= rotary) {
      bound.push_back(0);  // copied
      continue;
    }
    const int64_t partner = o.style == RopeStyle::interleaved ? (c ^ 1)
                            : c < rotary / 2                  ? c + rotary / 2
                                                              : c - rotary / 2;
    const double size =
        std::abs(v[i]) + std::abs(v[static_cast<size_t>(static_cast<int64_t>(i) + partner - c)]);
    const double before = size * rope_magnitude(o) * (0x1p-23 + 5 * test::kF32Roundoff);
    bound.push_back(before + test::rounded_bound(x.format(), std::abs(reference[i]) + before, 0));
  }
  return bound;
}

Tensor positions_of(std::initializer_list<int64_t> values) {
  return Tensor::from<int64_t>(std::span(values.begin(), values.size()),
                               {static_cast<int64_t>(values.size())}, Format::i64);
}

void expect_rope(const Tensor& x, const Tensor& positions, const RopeOptions& options) {
  const std::vector<float> reference = test::to_floats(rope_reference(x, positions, options));
  const std::vector<double> bound = bounds(x, reference, options);
  Tensor y = x.contiguous_copy();
  rope(y, positions, options);
  EXPECT_TRUE(test::within(test::to_floats(y), reference, bound)) << to_string(x);
}

std::vector<RopeOptions> option_sets() {
  RopeOptions plain, llama3, yarn;
  llama3.theta = 500000;
  llama3.llama3 = Llama3Scaling{};
  yarn.theta = 1e6;
  yarn.yarn = YarnScaling{.factor = 40};
  return {plain, llama3, yarn};
}

TEST(Rope, EqualsTheReferenceAtEveryLevel) {
  test::at_every_level([] {
    for (const Format format : test::kPlainFormats) {
      for (RopeOptions options : option_sets()) {
        for (const auto style : {RopeStyle::half_split, RopeStyle::interleaved}) {
          options.style = style;
          for (const int64_t dim : {2, 4, 6, 8, 30, 32, 34, 64, 80, 128, 1024, 1030}) {
            expect_rope(test::random_tensor({6, 2, dim}, format, 1),
                        positions_of({0, 1, 7, 1000, 131071, int64_t{1} << 31}), options);
          }
        }
      }
    }
  });
}

TEST(Rope, EqualsTransformers) {
  const test::Fixture golden("ops.safetensors");
  RopeOptions llama31, llama32;
  llama31.theta = llama32.theta = 500000;
  llama31.llama3 = Llama3Scaling{8, 1, 4, 8192};
  llama32.llama3 = Llama3Scaling{32, 1, 4, 8192};
  const std::tuple<const char*, RopeOptions, int64_t> sets[] = {
      {"default", {}, 64}, {"llama31", llama31, 128}, {"llama32", llama32, 64}};
  for (const auto& [key, options, head_dim] : sets) {
    const Tensor expected = golden.tensor(std::string("rope.") + key + ".inverse_frequencies");
    const std::vector<double> f = rope_frequencies(options, head_dim);
    ASSERT_EQ(static_cast<int64_t>(f.size()), expected.numel());
    for (int64_t i = 0; i < expected.numel(); ++i) {  // computed there in f32, with a power
      const double e = expected.data<float>()[i];
      EXPECT_NEAR(f[static_cast<size_t>(i)], e, 16 * test::kF32Roundoff * e) << key << " " << i;
    }
  }
  const Tensor input = golden.tensor("rope.apply.input");  // [heads, length, head_dim]
  const std::vector<float> expected = test::to_floats(golden.tensor("rope.apply.output"));
  test::at_every_level([&] {
    Tensor x = input.transpose(0, 1).contiguous_copy();
    rope(x, golden.tensor("rope.apply.positions"), {});
    // Their angle, up to 511, is rounded to f32.
    EXPECT_TRUE(
        test::within(test::to_floats(x.transpose(0, 1)), expected,
                     std::vector<double>(expected.size(), 511 * 16 * test::kF32Roundoff * 4)));
  });
}

TEST(Rope, PartOfTheHeadRotates) {
  test::at_every_level([] {
    for (const auto style : {RopeStyle::half_split, RopeStyle::interleaved}) {
      RopeOptions options;
      options.style = style;
      for (const int64_t rotary : {2, 16, 26, 62, 64}) {
        options.rotary_dim = rotary;
        for (const auto data : {test::Data::outliers, test::Data::tiny, test::Data::huge}) {
          expect_rope(test::random_tensor({3, 3, 64}, Format::f32, 2, data),
                      positions_of({3, 4, 5}), options);
        }
      }
    }
  });
}

TEST(Rope, KnownRotation) {
  // A quarter turn at position 1 needs a frequency of pi / 2, which only pair 0 at theta^0 = 1 can
  // come near: position 11 is 11 radians, cos 0.0044257, sin -0.9999902.
  Tensor x = Tensor::from({1, 0}, {1, 1, 2});
  rope(x, positions_of({11}), {});
  EXPECT_NEAR(x.at({0, 0, 0}), 0.004425697988, 1e-7);
  EXPECT_NEAR(x.at({0, 0, 1}), -0.999990206551, 1e-7);
  // The two styles agree up to the order of the elements.
  Tensor half = Tensor::from({1, 2, 3, 4}, {1, 1, 4}),
         inter = Tensor::from({1, 3, 2, 4}, {1, 1, 4});
  RopeOptions interleaved;
  interleaved.style = RopeStyle::interleaved;
  rope(half, positions_of({5}), {});
  rope(inter, positions_of({5}), interleaved);
  for (int64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(half.at({0, 0, i}), inter.at({0, 0, 2 * i}));
    EXPECT_EQ(half.at({0, 0, i + 2}), inter.at({0, 0, 2 * i + 1}));
  }
}

TEST(Rope, Llama3Frequencies) {
  RopeOptions options;
  options.theta = 500000;
  const std::vector<double> plain = rope_frequencies(options, 128);
  options.llama3 = Llama3Scaling{};
  const std::vector<double> scaled = rope_frequencies(options, 128);
  ASSERT_EQ(plain.size(), 64u);
  EXPECT_DOUBLE_EQ(plain[1], std::pow(500000.0, -2.0 / 128));
  for (size_t i = 0; i < plain.size(); ++i) {
    const double wavelength = 2 * std::numbers::pi / plain[i];
    if (wavelength < 8192.0 / 4) {
      EXPECT_EQ(scaled[i], plain[i]);
    } else if (wavelength > 8192.0) {
      EXPECT_DOUBLE_EQ(scaled[i], plain[i] / 8);
    } else {
      const double smooth = (8192.0 / wavelength - 1) / 3;
      EXPECT_NEAR(scaled[i], (1 - smooth) * plain[i] / 8 + smooth * plain[i], 1e-15);
    }
  }
}

TEST(Rope, StridesThreadsAndIndexFormats) {
  test::at_every_level([] {
    const Tensor fused = test::random_tensor({300, 6, 64}, Format::bf16, 3);
    Tensor queries = fused.slice(1, 0, 4);
    Tensor one_thread = queries.contiguous_copy(), three_threads = queries.contiguous_copy();
    std::vector<int32_t> narrow(300);
    std::vector<int64_t> wide(300);
    for (size_t i = 0; i < narrow.size(); ++i) wide[i] = narrow[i] = static_cast<int32_t>(i * 7);
    const Tensor p32 = Tensor::from<int32_t>(narrow, {300}, Format::i32);
    const Tensor p64 = Tensor::from<int64_t>(wide, {300}, Format::i64);
    const std::vector<float> keys = test::to_floats(fused.slice(1, 4, 6));
    Stream one(Device::cpu(), 1), three(Device::cpu(), 3);
    rope(one_thread, p32, {}, one);
    rope(three_threads, p64, {}, three);
    rope(queries, p64, {}, three);
    EXPECT_TRUE(test::same_bits(one_thread, three_threads));
    EXPECT_TRUE(test::same_bits(one_thread, queries.contiguous_copy()));
    EXPECT_EQ(keys, test::to_floats(fused.slice(1, 4, 6)));
  });
}

TEST(Rope, SameBitsAtEveryLevel) {
  std::vector<Tensor> results;
  test::at_every_level([&] {
    Tensor x = test::random_tensor({4, 2, 96}, Format::f32, 4);
    rope(x, positions_of({1, 20, 300, 40000}), {});
    results.push_back(x);
    EXPECT_TRUE(test::same_bits(results[0], x));
  });
}

TEST(Rope, TheToleranceSeesSmallErrors) {
  const Tensor x = test::random_tensor({4, 2, 64}, Format::f32, 5);
  const Tensor positions = positions_of({10, 11, 12, 13});
  const RopeOptions options;
  const std::vector<float> reference = test::to_floats(rope_reference(x, positions, options));
  const std::vector<double> bound = bounds(x, reference, options);
  const auto breaks = [&](const Tensor& p, const RopeOptions& o) {
    Tensor y = x.contiguous_copy();
    rope(y, p, o);
    return !test::within(test::to_floats(y), reference, bound);
  };
  EXPECT_FALSE(breaks(positions, options));
  EXPECT_TRUE(breaks(positions_of({10, 11, 12, 14}), options)) << "one position off by one";
  RopeOptions other;
  other.theta = 10001;
  EXPECT_TRUE(breaks(positions, other)) << "theta off by 1e-4";
  other = options;
  other.style = RopeStyle::interleaved;
  EXPECT_TRUE(breaks(positions, other)) << "the other style";
  other = options;
  other.rotary_dim = 62;
  EXPECT_TRUE(breaks(positions, other)) << "one pair less";
  EXPECT_FALSE(test::within(test::to_floats(x), reference, bound)) << "not rotated";
}

TEST(Rope, WrongArgumentsAreNamed) {
  Tensor x = Tensor::zeros({2, 1, 6}, Format::f32);
  RopeOptions options;
  options.rotary_dim = 5;
  test::expect_error([&] { rope(x, positions_of({0, 1}), options); }, {"rotary_dim is 5", "even"});
  options.rotary_dim = 8;
  test::expect_error([&] { rope(x, positions_of({0, 1}), options); }, {"rotary_dim is 8", "6"});
  options = {};
  options.theta = 0;
  test::expect_error([&] { rope(x, positions_of({0, 1}), options); }, {"theta is 0"});
  options = {};
  options.llama3 = Llama3Scaling{8, 4, 4, 8192};
  test::expect_error([&] { rope(x, positions_of({0, 1}), options); }, {"llama3", "high"});
  test::expect_error([&] { rope(x, positions_of({0}), {}); }, {"positions", "[1]", "[2]"});
  test::expect_error([&] { rope(x, positions_of({0, -1}), {}); }, {"positions[1] is -1"});
  test::expect_error([&] { rope(x, Tensor::zeros({2}, Format::f32), {}); }, {"positions", "i32"});
  EXPECT_FALSE(can_run(RopeProblem{1, 1, 7}, Device::cpu()).ok);
  EXPECT_NE(describe(plan(RopeProblem{1, 1, 8}, Device::cpu())).find("half-split"),
            std::string::npos);
}

}  // namespace
}  // namespace halftone
