#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "conv/conv1d_bound.h"
#include "halftone/activation.h"
#include "halftone/conv.h"
#include "support/compare.h"
#include "support/tolerance.h"

namespace halftone {
namespace {

void expect_conv(const Tensor& x, const Tensor& w, const Tensor& b, const Conv1dOptions& o) {
  const Tensor y = conv1d(x, w, b, o);
  const std::vector<float> reference = test::to_floats(conv1d_reference(x, w, b, o));
  EXPECT_TRUE(test::within(test::to_floats(y), reference,
                           test::conv1d_bounds(x, w, b, o, reference, y.format())))
      << to_string(x) << ", " << to_string(w) << ", stride " << o.stride << ", padding "
      << o.padding << ", dilation " << o.dilation << ", groups " << o.groups;
}

TEST(Conv1d, EqualsTheReferenceAtEveryLevel) {
  test::at_every_level([] {
    for (const Format format : test::kPlainFormats) {
      for (const int64_t length : {1, 7, 48, 193, 400}) {
        const Tensor x = test::random_tensor({2, 6, length}, format, 1);
        const Tensor w = test::random_tensor({10, 6, 3}, format, 2);
        const Tensor b = test::random_tensor({10}, Format::f32, 3);
        for (const int64_t stride : {1, 2, 3}) {
          for (const int64_t padding : {1, 4}) {
            for (const int64_t dilation : {1, 2}) {
              expect_conv(x, w, b, {stride, padding, dilation, 1, {.kind = Activation::identity}});
            }
          }
        }
      }
    }
  });
}

TEST(Conv1d, GroupsKernelsAndActivations) {
  test::at_every_level([] {
    const Tensor x = test::random_tensor({1, 12, 60}, Format::f32, 4);
    for (const int64_t groups : {1, 2, 3, 12}) {
      for (const int64_t kernel : {1, 5, 31}) {
        const Tensor w = test::random_tensor({24, 12 / groups, kernel}, Format::f32, 5);
        expect_conv(x, w, {}, {.padding = kernel / 2, .groups = groups});
      }
    }
    const Tensor w = test::random_tensor({9, 12, 3}, Format::bf16, 6);
    const Tensor b = test::random_tensor({9}, Format::bf16, 7);
    for (const Activation kind : {Activation::gelu_erf, Activation::gelu_tanh, Activation::relu,
                                  Activation::silu, Activation::tanh}) {
      expect_conv(x, w, b, {.padding = 1, .activation = {.kind = kind}});
    }
    // Longer than x, and nothing at all.
    expect_conv(x, test::random_tensor({3, 12, 61}, Format::f32, 8), {}, {});
    EXPECT_EQ(conv1d(x, test::random_tensor({3, 12, 61}, Format::f32, 8)).shape(),
              (Shape{1, 3, 0}));
    expect_conv(Tensor::empty({0, 12, 60}, Format::f32), w, b, {});
  });
}

// More terms than a block and more outputs than a unit: what each of them ends in, group by group.
TEST(Conv1d, ManyTermsAndOutputs) {
  test::at_every_level([] {
    const Tensor x = test::random_tensor({1, 200, 110}, Format::f32, 4);
    for (const int64_t groups : {1, 2}) {
      const Tensor w = test::random_tensor({150, 200 / groups, 3}, Format::f32, 5);
      expect_conv(x, w, {}, {.stride = groups, .padding = 1, .groups = groups});
    }
  });
}

// The bar of FP32: within 5e-7 of FP64 on unit data, results of unit variance included.
TEST(Conv1d, UnitDataWithinHalfAMillionth) {
  for (const auto& [channels, stride] : {std::pair{int64_t{80}, int64_t{1}}, {384, 2}}) {
    const Tensor x = test::random_tensor({1, channels, 200}, Format::f32, 9);
    Tensor w = test::random_tensor({16, channels, 3}, Format::f32, 10);
    const float unit = 1 / std::sqrt(3.0f * static_cast<float>(channels));
    for (int64_t i = 0; i < w.numel(); ++i) w.data<float>()[i] *= unit;
    const Conv1dOptions o{.stride = stride, .padding = 1};
    const std::vector<float> reference = test::to_floats(conv1d_reference(x, w, {}, o));
    test::at_every_level([&] {
      const test::Difference d = test::compare(test::to_floats(conv1d(x, w, {}, o)), reference);
      EXPECT_LT(d.relative_l2, 5e-7);
      double largest = 0;
      for (const float r : reference) largest = std::max(largest, std::abs(double{r}));
      EXPECT_LT(d.max, 5e-7 * largest);
    });
  }
}

TEST(Conv1d, StridesThreadsAndBatch) {
  test::at_every_level([] {
    const Tensor wide = test::random_tensor({3, 500, 90}, Format::bf16, 11);
    const Tensor x = wide.transpose(1, 2).slice(1, 3, 83);  // [3, 80, 500], last stride 90
    const Tensor w = test::random_tensor({17, 80, 3}, Format::bf16, 12);
    const Conv1dOptions o{.stride = 2, .padding = 1};
    Stream one(Device::cpu(), 1), three(Device::cpu(), 3);
    const Tensor y = conv1d(x.contiguous_copy(), w, {}, o, one);
    EXPECT_TRUE(test::same_bits(y, conv1d(x, w, {}, o, three)));
    EXPECT_TRUE(
        test::same_bits(y.slice(0, 2, 3), conv1d(x.slice(0, 2, 3).contiguous_copy(), w, {}, o)));
    // Into a strided result.
    Conv1dProblem p;
    p.batch = 3, p.in_channels = 80, p.length = 500, p.out_channels = 17, p.kernel = 3;
    p.stride = 2, p.padding = 1;
    const Tensor target = Tensor::zeros({3, 250, 17}, Format::bf16).transpose(1, 2);
    run(plan(p, Device::cpu()), {x, w, target, {}}, three);
    EXPECT_TRUE(test::same_bits(target.contiguous_copy(), y));
  });
}

TEST(Conv1d, TheToleranceSeesSmallErrors) {
  const Tensor x = test::random_tensor({1, 20, 64}, Format::f32, 13);
  const Tensor w = test::random_tensor({4, 20, 3}, Format::f32, 14);
  const Conv1dOptions o{.padding = 1};
  const std::vector<float> reference = test::to_floats(conv1d_reference(x, w, {}, o));
  const std::vector<double> bound = test::conv1d_bounds(x, w, {}, o, reference, Format::f32);
  const auto breaks = [&](const Tensor& y) {
    return !test::within(test::to_floats(y), reference, bound);
  };
  EXPECT_FALSE(breaks(conv1d(x, w, {}, o)));
  Tensor bad = w.contiguous_copy();
  bad.data<float>()[30] *= 1 + 0x1p-8f;
  EXPECT_TRUE(breaks(conv1d(x, bad, {}, o))) << "one weight off by 2^-8";
  bad = x.contiguous_copy();
  bad.data<float>()[63] = 0;
  EXPECT_TRUE(breaks(conv1d(bad, w, {}, o))) << "the last element of a row left out";
}

TEST(Conv1d, WrongArgumentsAreNamed) {
  const Tensor x = Tensor::zeros({1, 6, 8}, Format::f32), w = Tensor::zeros({4, 6, 3}, Format::f32);
  test::expect_error(
      [&] {
        conv1d(x, Tensor::zeros({4, 5, 3}, Format::f32));
      },
      {"weight", "[4, 5, 3]", "[4, 6, 3]"});
  test::expect_error([&] { conv1d(x, w, {}, {.groups = 4}); }, {"groups is 4", "6"});
  test::expect_error([&] { conv1d(x, w, {}, {.stride = 0}); }, {"stride is 0"});
  test::expect_error([&] { conv1d(x, w, {}, {.padding = -1}); }, {"padding is -1"});
  test::expect_error([&] { conv1d(x, w, Tensor::zeros({3}, Format::f32)); },
                     {"bias", "[3]", "[4]"});
  test::expect_error(
      [&] {
        conv1d(Tensor::zeros({6, 8}, Format::f32), w);
      },
      {"x is", "[batch, in_channels, length]"});
  test::expect_error([&] { conv1d(Tensor::zeros({1, 6, 8}, Format::int8), w); }, {"x is int8"});
  Conv1dProblem p;
  p.in_channels = 6, p.length = 8, p.out_channels = 4, p.kernel = 3;
  EXPECT_NE(describe(plan(p, Device::cpu())).find("conv1d_"), std::string::npos);
}

}  // namespace
}  // namespace halftone
