#include "halftone/elementwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "formats/codec.h"
#include "support/compare.h"
#include "support/tolerance.h"

namespace halftone {
namespace {

using test::Data;

// Operations of one rounding give it; fused multiply-adds have two at the baseline level, of the
// product and of the sum; rsqrt has two; exp 2 ulp and log 4, or 2^-16 between 16-bit formats.
double error_of(Elementwise operation, bool half, double product) {
  constexpr double u = test::kF32Roundoff;
  switch (operation) {
    case Elementwise::add:
    case Elementwise::subtract:
    case Elementwise::multiply_add:
    case Elementwise::affine:
      return 2 * u * product;
    case Elementwise::rsqrt:
      return 3 * u;
    case Elementwise::exp:
      return half ? 0x1p-16 : 5 * u;
    case Elementwise::log:
      return 8 * u;
    default:
      return 1.01 * u;
  }
}

void expect_elementwise(Elementwise op, const Tensor& a, const Tensor& b, const Tensor& c,
                        const ElementwiseOptions& options) {
  const Tensor y = elementwise(op, a, b, c, options);
  const std::vector<float> reference = test::to_floats(elementwise_reference(op, a, b, c, options));
  const Format out = y.format();
  const bool half = a.format() != Format::f32 && out != Format::f32;
  // A fused multiply-add may cancel: its roundings are relative to the larger term.
  double largest = 0;
  for (const Tensor* x : {&a, &b, &c}) {
    if (!x->defined()) continue;
    for (const float v : test::to_floats(*x)) largest = std::max(largest, std::abs(double{v}));
  }
  const bool fused = error_of(op, half, 1) == 2 * test::kF32Roundoff;
  const double product = largest * std::max(largest, std::abs(double{options.alpha})) +
                         std::abs(options.beta) + largest;
  std::vector<double> bound;
  for (const float r : reference) {
    bound.push_back(fused ? test::rounded_bound(out, r, 0) + error_of(op, half, product) * 2
                          : test::rounded_bound(out, r, error_of(op, half, 0)) + 0x1p-126);
  }
  EXPECT_TRUE(test::within(test::to_floats(y), reference, bound)) << name(op) << to_string(y);
}

// Dense bf16 is rounded two vectors at a time by an instruction that flushes subnormals.
TEST(Elementwise, EveryBf16CodeIsRoundedAsTheCodecDoes) {
  std::vector<uint16_t> codes(65536);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint16_t>(i * 40503);  // mixed
  const Tensor x = Tensor::from<uint16_t>(codes, {65536}, Format::bf16);
  test::at_every_level([&] {
    for (const float factor : {-1.0f, 0.5f, 0x1.8p-7f, 1.0078125f}) {
      const Tensor y = elementwise(Elementwise::affine, x, {}, {}, {.alpha = factor});
      for (size_t i = 0; i < codes.size(); ++i) {
        const float product = decode_bf16(codes[i]) * factor;
        if (std::isnan(product)) continue;
        ASSERT_EQ(decode_bf16(y.data<uint16_t>()[i]), decode_bf16(encode_bf16(product)))
            << "code " << codes[i] << " times " << factor;
      }
    }
  });
}

TEST(Elementwise, EqualsTheReferenceAtEveryLevel) {
  test::at_every_level([] {
    for (int i = 0; i < kElementwiseCount; ++i) {
      const auto op = static_cast<Elementwise>(i);
      for (const Format format : test::kPlainFormats) {
        for (const int64_t n : {0, 1, 17, 530}) {
          const int operands = operand_count(op);
          const Tensor a = test::random_tensor({2, n}, format, 1);
          const Tensor b = operands > 1 ? test::random_tensor({2, n}, Format::bf16, 2) : Tensor();
          const Tensor c = operands > 2 ? test::random_tensor({2, n}, Format::f32, 3) : Tensor();
          for (const Format out : test::kPlainFormats) {
            expect_elementwise(op, a, b, c, {.alpha = 1.5f, .beta = -0.25f, .out = out});
          }
        }
      }
    }
  });
}

TEST(Elementwise, SpecialValues) {
  test::at_every_level([] {
    constexpr float kInf = INFINITY;
    const std::vector<float> values = {0.0f, -0.0f, 1,    -1,   kInf,  -kInf,  NAN,    1e-41f,
                                       2.5f, 1e38f, 0.5f, 4.0f, 88.7f, -87.0f, 1e-38f, 3.0f};
    const Tensor a = Tensor::from<float>(values, {16, 1}, Format::f32);
    const Tensor b = Tensor::from<float>(values, {16}, Format::f32);
    for (const Elementwise op :
         {Elementwise::divide, Elementwise::minimum, Elementwise::maximum, Elementwise::multiply}) {
      const std::vector<float> y = test::to_floats(elementwise(op, a, b));
      const std::vector<float> r = test::to_floats(elementwise_reference(op, a, b));
      for (size_t i = 0; i < y.size(); ++i) {
        EXPECT_TRUE((std::isnan(y[i]) && std::isnan(r[i])) || y[i] == r[i])
            << name(op) << " of " << values[i / 16] << " and " << values[i % 16] << " is " << y[i];
      }
    }
    for (const Elementwise op : {Elementwise::sqrt, Elementwise::log, Elementwise::exp,
                                 Elementwise::negate, Elementwise::absolute}) {
      const std::vector<float> y = test::to_floats(elementwise(op, b));
      const std::vector<float> r = test::to_floats(elementwise_reference(op, b));
      for (size_t i = 0; i < y.size(); ++i) {
        const bool same = (std::isnan(y[i]) && std::isnan(r[i])) || y[i] == r[i];
        EXPECT_TRUE(same || std::abs(y[i] - r[i]) <= 1e-6 * std::abs(r[i]))
            << name(op) << " of " << values[i] << " is " << y[i] << ", not " << r[i];
      }
    }
  });
}

TEST(Elementwise, BroadcastsAsNumpyDoes) {
  test::at_every_level([] {
    const Tensor a = test::random_tensor({3, 1, 50}, Format::bf16, 4);
    const Tensor b = test::random_tensor({7, 1}, Format::bf16, 5);
    const Tensor c = test::random_tensor({50}, Format::bf16, 6);
    expect_elementwise(Elementwise::add, a, b, {}, {});
    EXPECT_EQ(elementwise(Elementwise::add, b, a).shape(), (Shape{3, 7, 50}));
    expect_elementwise(Elementwise::multiply_add, a, b, c, {.out = Format::f32});
    const Tensor scalar = Tensor::from({2.0f}, {1});
    EXPECT_TRUE(test::same_bits(elementwise(Elementwise::multiply, c, scalar),
                                elementwise(Elementwise::affine, c, {}, {}, {.alpha = 2})));
    test::expect_error([&] { add(a, test::random_tensor({49}, Format::bf16, 7)); },
                       {"[3, 1, 50]", "[49]", "50 and 49"});
  });
}

TEST(Elementwise, StridesInPlaceThreadsAndCasts) {
  test::at_every_level([] {
    for (const Format format : test::kPlainFormats) {
      const Tensor wide = test::random_tensor({40, 90}, format, 8);
      const Tensor t = wide.transpose(0, 1);  // last stride 90
      const Tensor other = test::random_tensor({90, 40}, format, 9);
      const Tensor expected = add(t.contiguous_copy(), other);
      EXPECT_TRUE(test::same_bits(add(t, other), expected));
      ElementwiseProblem p{Elementwise::add, {90, 40}, format, format, format, format};
      Stream three(Device::cpu(), 3);
      run(plan(p, Device::cpu()), {t, other, {}, t}, three);  // in place
      EXPECT_TRUE(test::same_bits(t.contiguous_copy(), expected));
      for (const Format out : test::kPlainFormats) {
        EXPECT_TRUE(test::same_bits(cast(wide, out), convert(wide, out)));
      }
    }
    const Tensor a = test::random_tensor({90001}, Format::bf16, 10);
    Stream one(Device::cpu(), 1), three(Device::cpu(), 3);
    EXPECT_TRUE(test::same_bits(add(a, a, one), add(a, a, three)));
  });
}

TEST(Elementwise, TheToleranceSeesSmallErrors) {
  const Tensor a = test::random_tensor({100}, Format::f32, 11);
  const Tensor b = test::random_tensor({100}, Format::f32, 12);
  const std::vector<float> reference =
      test::to_floats(elementwise_reference(Elementwise::divide, a, b));
  std::vector<double> bound;
  for (const float r : reference) bound.push_back(test::rounded_bound(Format::f32, r, 0));
  std::vector<float> bad = test::to_floats(elementwise(Elementwise::divide, a, b));
  EXPECT_TRUE(test::within(bad, reference, bound));
  bad[7] = std::nextafter(bad[7], 100.0f);
  bad[7] = std::nextafter(bad[7], 100.0f);
  EXPECT_FALSE(test::within(bad, reference, bound)) << "one element off by 2 ulp";
}

TEST(Elementwise, WrongArgumentsAreNamed) {
  const Tensor a = Tensor::zeros({2, 3}, Format::f32);
  test::expect_error([&] { add(a, Tensor()); }, {"add", "2 operands", "operand 2 is undefined"});
  test::expect_error([&] { elementwise(Elementwise::sqrt, a, a); }, {"sqrt", "1 operand"});
  test::expect_error([&] { add(a, Tensor::zeros({3}, Format::i32)); }, {"b is i32", "bf16"});
  test::expect_error([&] { elementwise(Elementwise::affine, a, {}, {}, {.alpha = NAN}); },
                     {"alpha is nan"});
  Stream stream;
  const ElementwisePlan p =
      plan(ElementwiseProblem{Elementwise::negate, {2, 3}, Format::f32, {}, {}, Format::f32},
           Device::cpu());
  test::expect_error(
      [&] {
        run(p, {a, {}, {}, Tensor::zeros({3, 2}, Format::f32)}, stream);
      },
      {"out", "[3, 2]", "[2, 3]"});
  test::expect_error([&] { run(p, {a.slice(0, 0, 1), {}, {}, a}, stream); }, {"overlaps a"});
  EXPECT_NE(describe(p).find("elementwise_"), std::string::npos);
}

}  // namespace
}  // namespace halftone
