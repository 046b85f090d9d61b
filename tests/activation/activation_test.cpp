#include "halftone/activation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/compare.h"
#include "support/tolerance.h"

namespace halftone {
namespace {

using test::Data;

constexpr double kU = test::kF32Roundoff;

// Error before the last rounding, of a value y = f(x). Formulas that multiply within 8 roundings:
// 10 u of the value. An argument of exp that is itself rounded moves the result by as many u as it
// is large, at most 88 and 3 roundings. Softplus adds two terms of its own sign: the larger counts.
// Results below 2^-126 may come out as 0: then x 2^-126 is lost.
double error_of(const ActivationFunction& f, double x, double y, bool half) {
  const double magnitude = std::min(std::abs(x), 88.0);
  double relative = 10 * kU;
  if (f.kind == Activation::gelu_tanh) {
    relative += 6 * std::min(88.0, 1.6 * magnitude * (1 + 0.045 * magnitude * magnitude)) * kU;
  }
  if (f.kind == Activation::gelu_erf) {
    // Without a fused multiply-add the rounding of x^2 / 2 is not made good.
    const bool fused = cpu_level() > CpuLevel::baseline;
    relative += (6 + (fused ? 0 : std::min(88.0, x * x / 2))) * kU;
  }
  if (f.kind == Activation::softplus) relative += 88 * kU;
  if (f.kind == Activation::silu || f.kind == Activation::quick_gelu) relative += 176 * kU;
  const bool exponential = f.kind >= Activation::elu && f.kind != Activation::hardshrink &&
                           f.kind != Activation::hardswish && f.kind != Activation::hardsigmoid;
  if (half && exponential) relative += 0x1p-14;
  if (f.kind == Activation::elu) relative += 16 * kU;
  return std::abs(y) * relative + (exponential ? (90 + std::abs(f.alpha)) * 0x1p-126 : 0);
}

std::vector<ActivationFunction> functions() {
  std::vector<ActivationFunction> all;
  for (int i = 0; i < kActivationCount; ++i) all.push_back({.kind = static_cast<Activation>(i)});
  all.push_back({.kind = Activation::elu, .alpha = 1.6732632f});
  all.push_back({.kind = Activation::silu, .alpha = 1.702f});
  all.push_back({.kind = Activation::leaky_relu, .slope = 0.2f});
  all.push_back({.kind = Activation::hardshrink, .lambda = 1.25f});
  all.push_back({.kind = Activation::softplus, .beta = 3});
  return all;
}

std::vector<double> bounds(const Tensor& x, const std::vector<float>& reference,
                           const ActivationFunction& f, Format out) {
  const bool half = x.format() != Format::f32 && out != Format::f32;
  const std::vector<float> in = test::to_floats(x);
  std::vector<double> bound;
  for (size_t i = 0; i < in.size(); ++i) {
    const double error = error_of(f, in[i], reference[i], half);
    bound.push_back(test::rounded_bound(out, reference[i], 0) +
                    error * (1 + test::unit_roundoff(out)));
  }
  return bound;
}

void expect_activation(const Tensor& x, const ActivationFunction& f) {
  const std::vector<float> reference = test::to_floats(activation_reference(x, f));
  EXPECT_TRUE(test::within(test::to_floats(activation(x, f)), reference,
                           bounds(x, reference, f, x.format())))
      << name(f.kind) << " of " << to_string(x);
}

TEST(Activation, EqualsTheReferenceAtEveryLevel) {
  test::at_every_level([] {
    for (const ActivationFunction& f : functions()) {
      for (const Format format : test::kPlainFormats) {
        for (const int64_t n : {0, 1, 15, 16, 33, 511, 513, 1100}) {
          expect_activation(test::random_tensor({n}, format, 1), f);
        }
        for (const Data data : {Data::outliers, Data::tiny, Data::all_equal}) {
          expect_activation(test::random_tensor({100}, format, 3, data), f);
        }
      }
    }
  });
}

TEST(Activation, WholeRange) {
  test::at_every_level([] {
    std::vector<float> x;
    for (float v = -120; v <= 120; v += 0.037f) x.push_back(v);
    for (float v = 1e-6f; v < 1; v *= 1.3f) x.insert(x.end(), {v, -v});
    x.insert(x.end(), {0.0f, -0.0f, 1e30f, -1e30f, NAN});
    const auto n = static_cast<int64_t>(x.size());
    const Tensor f32 = Tensor::from<float>(x, {n}, Format::f32);
    for (const ActivationFunction& f : functions()) {
      const bool squares = f.kind == Activation::relu_squared;  // 1e30^2
      const Tensor data = squares ? f32.slice(0, 0, n - 3) : f32;
      expect_activation(data, f);
      expect_activation(convert(data, Format::bf16), f);
    }
  });
}

TEST(Activation, StridesFormatsInPlaceAndThreads) {
  test::at_every_level([] {
    const ActivationFunction f{.kind = Activation::gelu_erf};
    for (const Format format : test::kPlainFormats) {
      const Tensor wide = test::random_tensor({37, 3, 70}, format, 4);
      const Tensor x = wide.transpose(0, 2).slice(0, 3, 66);  // [63, 3, 37], last stride 210
      const Tensor dense = x.contiguous_copy();
      const Tensor y = activation(dense, f);
      EXPECT_TRUE(test::same_bits(activation(x, f), y));
      Stream three(Device::cpu(), 3);
      run(plan(ActivationProblem{x.shape(), f, format, format}, Device::cpu()), {x, x}, three);
      EXPECT_TRUE(test::same_bits(x.contiguous_copy(), y));
      const std::vector<float> reference = test::to_floats(activation_reference(dense, f));
      for (const Format out : test::kPlainFormats) {
        const Tensor z = Tensor::empty(x.shape(), out);
        run(plan(ActivationProblem{x.shape(), f, format, out}, Device::cpu()), {dense, z}, three);
        EXPECT_TRUE(test::within(test::to_floats(z), reference, bounds(dense, reference, f, out)));
      }
    }
    const Tensor x = test::random_tensor({70001}, Format::bf16, 5);
    Stream one(Device::cpu(), 1), three(Device::cpu(), 3);
    EXPECT_TRUE(test::same_bits(activation(x, f, one), activation(x, f, three)));
  });
}

TEST(Activation, TheToleranceSeesSmallErrors) {
  const Tensor x = test::random_tensor({256}, Format::f32, 8);
  for (const ActivationFunction& f : functions()) {
    const std::vector<float> reference = test::to_floats(activation_reference(x, f));
    const std::vector<double> bound = bounds(x, reference, f, Format::f32);
    std::vector<float> bad = test::to_floats(activation(x, f));
    EXPECT_TRUE(test::within(bad, reference, bound)) << name(f.kind);
    const size_t positive = static_cast<size_t>(
        std::max_element(reference.begin(), reference.end()) - reference.begin());
    bad[positive] *= 1 + 0x1p-15f;
    EXPECT_FALSE(test::within(bad, reference, bound)) << name(f.kind) << ", one off by 2^-15";
  }
  const ActivationFunction tanh_gelu{.kind = Activation::gelu_tanh};
  const ActivationFunction erf_gelu{.kind = Activation::gelu_erf};
  const std::vector<float> reference = test::to_floats(activation_reference(x, erf_gelu));
  EXPECT_FALSE(test::within(test::to_floats(activation(x, tanh_gelu)), reference,
                            bounds(x, reference, erf_gelu, Format::f32)))
      << "the other gelu";
}

TEST(Activation, Names) {
  for (int i = 0; i < kActivationCount; ++i) {
    EXPECT_EQ(parse_activation(name(static_cast<Activation>(i))), static_cast<Activation>(i));
  }
  EXPECT_EQ(parse_activation("gelu_pytorch_tanh"), Activation::gelu_tanh);
  EXPECT_EQ(parse_activation("swish"), Activation::silu);
  test::expect_error([] { parse_activation("silo"); }, {"silo", "silu"});
}

TEST(Activation, WrongArgumentsAreNamed) {
  const Tensor x = Tensor::zeros({2, 8}, Format::f32);
  test::expect_error([&] { activation(Tensor(), {}); }, {"x is undefined"});
  test::expect_error([&] { activation(Tensor::zeros({2}, Format::int8), {}); }, {"int8"});
  test::expect_error([&] { activation(x, {.lambda = -1}); }, {"lambda is -1"});
  test::expect_error([&] { activation(x, {.beta = 0}); }, {"beta is 0"});
  test::expect_error([&] { activation(x, {.alpha = NAN}); }, {"alpha is nan"});
  const ActivationPlan p =
      plan(ActivationProblem{{2, 8}, {}, Format::f32, Format::f32}, Device::cpu());
  Stream stream;
  test::expect_error(
      [&] {
        run(p, {x, Tensor::zeros({8}, Format::f32)}, stream);
      },
      {"out", "[8]", "[2, 8]"});
  test::expect_error([&] { run(ActivationPlan{}, {x, x}, stream); }, {"plan"});
  EXPECT_NE(describe(p).find("activation_"), std::string::npos);
}

}  // namespace
}  // namespace halftone
