#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "halftone/activation.h"
#include "support/compare.h"
#include "support/tolerance.h"

namespace halftone {
namespace {

using test::Data;

// exp is within 2 ulp (4 u), the sum adds u, the reciprocal by a Newton step 2 u, two products 2 u;
// 10 u with the second-order terms; with 16-bit operands exp is within 2^-16 and all within 2^-14.
// Where exp(-g) overflows (g < -88.7) the result is 0 instead of
// g exp(g) up, less than 89 * 2^-126 * up.
std::vector<double> bounds(const std::vector<float>& reference, const std::vector<float>& up,
                           Format out) {
  std::vector<double> bound;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double error = out == Format::f32 ? 10 * test::kF32Roundoff : 0x1p-14;
    bound.push_back(test::rounded_bound(out, reference[i], error) +
                    89 * 0x1p-126 * std::abs(up[i]));
  }
  return bound;
}

void expect_swiglu(const Tensor& gate, const Tensor& up) {
  const std::vector<float> reference = test::to_floats(swiglu_reference(gate, up));
  const std::vector<double> bound = bounds(reference, test::to_floats(up), gate.format());
  EXPECT_TRUE(test::within(test::to_floats(swiglu(gate, up)), reference, bound)) << to_string(gate);
}

TEST(Swiglu, EqualsTheReferenceAtEveryLevel) {
  test::at_every_level([] {
    for (const Format format : test::kPlainFormats) {
      for (const int64_t columns : {0, 1, 3, 15, 16, 17, 31, 32, 33, 100, 20001}) {
        expect_swiglu(test::random_tensor({3, columns}, format, 1),
                      test::random_tensor({3, columns}, format, 2));
      }
      for (const Data data : {Data::outliers, Data::tiny, Data::all_equal}) {
        expect_swiglu(test::random_tensor({7, 50}, format, 3, data),
                      test::random_tensor({7, 50}, format, 4));
      }
    }
    expect_swiglu(test::random_tensor({7, 50}, Format::f32, 3, Data::huge),
                  test::random_tensor({7, 50}, Format::f32, 4, Data::huge));
  });
}

TEST(Swiglu, WholeRangeOfTheGate) {
  test::at_every_level([] {
    std::vector<float> gate;
    for (float g = -120; g <= 120; g += 0.01f) gate.push_back(g);
    gate.push_back(INFINITY);
    gate.push_back(NAN);
    const auto n = static_cast<int64_t>(gate.size());
    const std::vector<float> up(gate.size(), 1.5f);
    expect_swiglu(Tensor::from<float>(gate, {1, n}, Format::f32),
                  Tensor::from<float>(up, {1, n}, Format::f32));
  });
}

TEST(Swiglu, HalvesOfOneMatrixInPlace) {
  test::at_every_level([] {
    for (const Format format : test::kPlainFormats) {
      const Tensor both = test::random_tensor({9, 2 * 37}, format, 5);
      const Tensor gate = both.slice(1, 0, 37), up = both.slice(1, 37, 74);
      const Tensor expected = swiglu(gate.contiguous_copy(), up.contiguous_copy());
      const Tensor up_before = up.contiguous_copy();
      EXPECT_TRUE(test::same_bits(swiglu(gate, up), expected));
      Stream stream;
      run(plan(SwigluProblem{9, 37, format}, Device::cpu()), {gate, up, gate}, stream);
      EXPECT_TRUE(test::same_bits(gate.contiguous_copy(), expected));
      EXPECT_TRUE(test::same_bits(up.contiguous_copy(), up_before));
      test::expect_error(
          [&] {
            run(plan(SwigluProblem{9, 37, format}, Device::cpu()), {gate, up, both.slice(1, 2, 39)},
                stream);
          },
          {"out", "overlaps gate"});
    }
  });
}

TEST(Swiglu, SameBitsForAnyThreads) {
  test::at_every_level([] {
    const Tensor gate = test::random_tensor({3, 70001}, Format::bf16, 6);
    const Tensor up = test::random_tensor({3, 70001}, Format::bf16, 7);
    Stream one(Device::cpu(), 1), three(Device::cpu(), 3);
    const Tensor y = swiglu(gate, up, one);
    EXPECT_TRUE(test::same_bits(y, swiglu(gate, up, three)));
    EXPECT_TRUE(test::same_bits(y.slice(0, 1, 2), swiglu(gate.slice(0, 1, 2), up.slice(0, 1, 2))));
  });
}

TEST(Gated, ClampedInterleavedAndGeglu) {
  test::at_every_level([] {
    for (const Format format : test::kPlainFormats) {
      std::vector<float> values = test::random_values(6 * 2 * 67, 10);
      for (float& v : values) v *= 6;  // beyond the limits of 7 and 10
      values[5] = NAN;
      const Tensor f32 = Tensor::from<float>(values, {6, 2 * 67}, Format::f32);
      const Tensor both = format == Format::f32 ? f32 : convert(f32, format);
      const Tensor gate = both.slice(1, 0, 67), up = both.slice(1, 67, 134);
      for (const GatedActivation& g :
           {GatedActivation::swiglu(), GatedActivation::geglu_tanh(), GatedActivation::geglu_erf(),
            GatedActivation::clamped_swiglu(), GatedActivation::gpt_oss()}) {
        const auto check = [&](const Tensor& result, const Tensor& expected) {
          const std::vector<float> reference = test::to_floats(expected);
          std::vector<double> bound;  // as bounds() of activation_test: 88 * 6 u of exp's argument
          for (const float r : reference) {
            const double error = format == Format::f32 ? 600 * test::kF32Roundoff : 0x1p-13;
            bound.push_back(test::rounded_bound(format, r, error) + 0x1p-110);
          }
          EXPECT_TRUE(test::within(test::to_floats(result), reference, bound));
        };
        check(gated(gate, up, g), gated_reference(gate, up, g));
        check(gated(both, {}, g), gated_reference(both, {}, g));
      }
      // The formula of gpt-oss, written out.
      const float a = 9, b = -8, x = 7, y = -7;
      const Tensor one = gated(Tensor::from({a, b}, {1, 2}), {}, GatedActivation::gpt_oss());
      EXPECT_NEAR(one.at({0, 0}), x / (1 + std::exp(-1.702 * x)) * (y + 1), 1e-4);
    }
  });
}

TEST(Swiglu, TheToleranceSeesSmallErrors) {
  const Tensor gate = test::random_tensor({4, 64}, Format::f32, 8);
  const Tensor up = test::random_tensor({4, 64}, Format::f32, 9);
  const std::vector<float> reference = test::to_floats(swiglu_reference(gate, up));
  const std::vector<double> bound = bounds(reference, test::to_floats(up), Format::f32);
  const std::vector<float> good = test::to_floats(swiglu(gate, up));
  EXPECT_TRUE(test::within(good, reference, bound));
  std::vector<float> bad = good;
  bad[17] *= 1 + 0x1p-19f;
  EXPECT_FALSE(test::within(bad, reference, bound)) << "one element off by 2^-19";
  bad = good;
  std::swap(bad[0], bad[1]);
  EXPECT_FALSE(test::within(bad, reference, bound)) << "swapped elements";
  EXPECT_FALSE(test::within(test::to_floats(swiglu(up, gate)), reference, bound))
      << "gate and up exchanged";
}

TEST(Swiglu, WrongArgumentsAreNamed) {
  const Tensor gate = Tensor::zeros({2, 8}, Format::f32);
  test::expect_error(
      [&] {
        swiglu(gate, Tensor::zeros({2, 7}, Format::f32));
      },
      {"gate", "[2, 8]", "[2, 7]"});
  test::expect_error(
      [&] {
        swiglu(gate, Tensor::zeros({2, 8}, Format::bf16));
      },
      {"up is bf16", "f32"});
  EXPECT_FALSE(can_run(SwigluProblem{1, 1, Format::nvfp4}, Device::cpu()).ok);
  EXPECT_FALSE(can_run(SwigluProblem{-1, 1}, Device::cpu()).ok);
  test::expect_error([&] { gated(gate, gate, GatedActivation::clamped_swiglu(0)); },
                     {"limit is 0", "positive"});
  test::expect_error(
      [&] {
        gated(Tensor::zeros({2, 7}, Format::f32), {}, {});
      },
      {"7 columns", "even"});
  EXPECT_NE(describe(plan(SwigluProblem{1, 1}, Device::cpu())).find("swiglu"), std::string::npos);
}

}  // namespace
}  // namespace halftone
