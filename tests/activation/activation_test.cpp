#include "halftone/activation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "activation/activation_bound.h"
#include "support/compare.h"
#include "support/tolerance.h"

namespace halftone {
namespace {

using test::Data;

void expect_activation(const Tensor& x, const ActivationFunction& f) {
  const std::vector<float> reference = test::to_floats(activation_reference(x, f));
  EXPECT_TRUE(test::within(test::to_floats(activation(x, f)), reference,
                           test::activation_bounds(x, reference, f, x.format())))
      << name(f.kind) << " of " << to_string(x);
}

TEST(Activation, EqualsTheReferenceAtEveryLevel) {
  test::at_every_level([] {
    for (const ActivationFunction& f : test::activation_functions()) {
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
    for (const ActivationFunction& f : test::activation_functions()) {
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
        EXPECT_TRUE(test::within(test::to_floats(z), reference,
                                 test::activation_bounds(dense, reference, f, out)));
      }
    }
    const Tensor x = test::random_tensor({70001}, Format::bf16, 5);
    Stream one(Device::cpu(), 1), three(Device::cpu(), 3);
    EXPECT_TRUE(test::same_bits(activation(x, f, one), activation(x, f, three)));
  });
}

TEST(Activation, TheToleranceSeesSmallErrors) {
  const Tensor x = test::random_tensor({256}, Format::f32, 8);
  for (const ActivationFunction& f : test::activation_functions()) {
    const std::vector<float> reference = test::to_floats(activation_reference(x, f));
    const std::vector<double> bound = test::activation_bounds(x, reference, f, Format::f32);
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
                            test::activation_bounds(x, reference, erf_gelu, Format::f32)))
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
