// The signed Walsh-Hadamard transform against FP64, and on GPUs against the CPU.
#include "halftone/hadamard.h"

#include <utility>

#include "support/devices.h"

namespace halftone {
namespace {

using test::OnDevice;
using test::same_bits;

constexpr int64_t kDims[] = {1,  2,   3,   8,   12,  24,   40,   64,  80,
                             96, 128, 192, 256, 512, 1000, 1024, 3072};

float sign(int64_t i) {
  const auto place = static_cast<uint32_t>(i % kLargestHadamard);
  return (hadamard_signs(place / 8) >> place % 8 & 1) != 0 ? -1.0f : 1.0f;
}
int stages(int64_t head_dim) {
  int count = 0;
  while (int64_t{1} << count < hadamard_block(head_dim)) ++count;
  return count;
}

// The definition in f32, and two ways to get it wrong.
struct Mistake {
  int skipped_stage = -1;
  int64_t turned_sign = -1;
};
std::vector<float> by_definition(std::vector<float> x, int64_t head_dim,
                                 const Mistake& wrong = {}) {
  const int64_t n = hadamard_block(head_dim), count = static_cast<int64_t>(x.size());
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(n)));
  for (int64_t i = 0; i < count; ++i) {
    x[static_cast<size_t>(i)] *= sign(i % head_dim) * (i == wrong.turned_sign ? -1.0f : 1.0f);
  }
  for (int stage = 0; int64_t{1} << stage < n; ++stage) {
    const int64_t stride = int64_t{1} << stage;
    for (int64_t i = 0; stage != wrong.skipped_stage && i < count; ++i) {
      if ((i % head_dim & stride) != 0) continue;
      float &a = x[static_cast<size_t>(i)], &b = x[static_cast<size_t>(i + stride)];
      const float sum = a + b;
      b = a - b, a = sum;
    }
  }
  for (float& v : x) v *= scale;
  return x;
}

// Relative error of a transformed row in its norm, which each stage and the scale leave as it is
// but for their roundings; 1 / sqrt(n) itself is rounded too.
double relative_error(int64_t head_dim, Format f) {
  return (stages(head_dim) + 2) * test::kF32Roundoff * 1.001 +
         (f == Format::f32 ? 0 : test::unit_roundoff(f) * 1.001);
}
double norm(const float* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double{x[i]} * x[i];
  return std::sqrt(sum);
}
double dot(const float* x, const float* y, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double{x[i]} * y[i];
  return sum;
}

// Elements of `y` further from FP64 than sums of n terms, in stages of f32, can be.
int outside(const std::vector<float>& y, const Tensor& x, Format f) {
  const int64_t dim = x.size(-1), n = hadamard_block(dim);
  const std::vector<float> exact = test::to_floats(hadamard_reference(x)), in = test::to_floats(x);
  int bad = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t block =
        i - i % static_cast<size_t>(dim) +
        i % static_cast<size_t>(dim) / static_cast<size_t>(n) * static_cast<size_t>(n);
    double sum = 0;
    for (size_t j = 0; j < static_cast<size_t>(n); ++j) sum += std::abs(double{in[block + j]});
    const double error =
        (stages(dim) + 3) * test::kF32Roundoff * 1.001 * sum / std::sqrt(static_cast<double>(n));
    const double bound = error + test::rounded_bound(f, std::abs(exact[i]) + error, 0);
    if (!(std::abs(double{y[i]} - exact[i]) <= bound)) ++bad;
  }
  return bad;
}

TEST(Hadamard, IsWithinTheBoundAndOfTheBitsOfTheDefinition) {
  uint64_t seed = 0;
  for (const int64_t dim : kDims) {
    for (const Format f : test::kPlainFormats) {
      SCOPED_TRACE(std::to_string(dim) + " " + name(f));
      const Tensor x = test::random_tensor({3, 2, dim}, f, ++seed, test::Data::outliers);
      const Tensor y = hadamard(x);
      EXPECT_EQ(outside(test::to_floats(y), x, f), 0);
      const Tensor defined =
          Tensor::from<float>(by_definition(test::to_floats(x), dim), x.shape(), Format::f32);
      EXPECT_TRUE(same_bits(y, convert(defined, f)));
    }
  }
}

TEST(Hadamard, AMissingStageOrAWrongSignIsOutsideTheBound) {
  for (const Format f : test::kPlainFormats) {
    const Tensor x = test::random_tensor({1, 1, 128}, f, 7);
    const auto wrong = [&](const Mistake& mistake) {
      const auto y = by_definition(test::to_floats(x), 128, mistake);
      return outside(test::to_floats(convert(Tensor::from<float>(y, x.shape(), Format::f32), f)), x,
                     f);
    };
    EXPECT_EQ(wrong({}), 0);
    for (int stage = 0; stage < 7; ++stage) EXPECT_GT(wrong({.skipped_stage = stage}), 0) << stage;
    for (int64_t i = 0; i < 128; i += 9) EXPECT_GT(wrong({.turned_sign = i}), 0) << i;
  }
}

TEST(Hadamard, KeepsProductsOfRows) {
  for (const int64_t dim : kDims) {
    for (const Format f : test::kPlainFormats) {
      const Tensor x = test::random_tensor({1, 1, dim}, f, 1, test::Data::outliers);
      const Tensor y = test::random_tensor({1, 1, dim}, f, 2, test::Data::outliers);
      const auto a = test::to_floats(x), b = test::to_floats(y);
      const auto ta = test::to_floats(hadamard(x)), tb = test::to_floats(hadamard(y));
      const double e = relative_error(dim, f);
      const double bound = (2 * e + e * e) * norm(a.data(), dim) * norm(b.data(), dim);
      EXPECT_NEAR(dot(ta.data(), tb.data(), dim), dot(a.data(), b.data(), dim), bound)
          << dim << " " << name(f);
      // One row with a sign or a stage that the other has not; 16 bits would hide one sign.
      if (dim < 64 || f != Format::f32) continue;
      for (const Mistake& wrong : {Mistake{.turned_sign = 5}, Mistake{.skipped_stage = 2}}) {
        const auto other = by_definition(a, dim, wrong);
        EXPECT_GT(std::abs(dot(other.data(), tb.data(), dim) - dot(a.data(), b.data(), dim)), bound)
            << dim << " " << name(f);
      }
    }
  }
}

TEST(Hadamard, TwiceWithItsSignsUndoneIsTheIdentity) {
  for (const int64_t dim : kDims) {
    const auto with_signs = [&](std::vector<float> x) {
      for (size_t i = 0; i < x.size(); ++i) x[i] *= sign(static_cast<int64_t>(i) % dim);
      return Tensor::from<float>(x, {1, 2, dim}, Format::f32);
    };
    const Tensor x = test::random_tensor({1, 2, dim}, Format::f32, 3, test::Data::outliers);
    const Tensor back =
        with_signs(test::to_floats(hadamard(with_signs(test::to_floats(hadamard(x))))));
    for (int64_t row = 0; row < 2; ++row) {
      const float *was = x.data<float>() + row * dim, *is = back.data<float>() + row * dim;
      std::vector<float> difference(static_cast<size_t>(dim));
      for (size_t i = 0; i < difference.size(); ++i) difference[i] = is[i] - was[i];
      const double e = relative_error(dim, Format::f32);
      // 2^-24 of the largest: the difference above is rounded.
      EXPECT_LE(norm(difference.data(), dim), (2 * e + e * e + 0x1p-24) * norm(was, dim)) << dim;
    }
  }
}

TEST(Hadamard, StridesAndPlace) {
  const Tensor fused = test::random_tensor({2, 5, 6, 96}, Format::bf16, 4);
  const Tensor x = fused.slice(2, 1, 4).slice(1, 1, 4);  // [2, 3, 3, 96], batches apart
  const Tensor dense = x.contiguous_copy(), expected = hadamard(dense);
  EXPECT_TRUE(same_bits(hadamard(x), expected));
  Tensor place = x;
  hadamard_into(x, place);
  EXPECT_TRUE(same_bits(x.contiguous_copy(), expected));
  EXPECT_EQ(hadamard(Tensor::zeros({0, 3, 8}, Format::f32)).numel(), 0);
}

TEST(Hadamard, WrongArgumentsAreNamed) {
  test::expect_error([] { hadamard(Tensor::zeros({3, 8}, Format::f32)); }, {"x is", "tokens"});
  test::expect_error([] { hadamard(Tensor::zeros({1, 3, 8}, Format::u8)); }, {"u8"});
  const Tensor x = Tensor::zeros({4, 3, 8}, Format::f32);
  Tensor small = Tensor::zeros({4, 2, 8}, Format::f32), ahead = x.slice(0, 1, 3);
  test::expect_error([&] { hadamard_into(x, small); }, {"out is", "like x"});
  test::expect_error([&] { hadamard_into(x.slice(0, 0, 2), ahead); }, {"overlaps"});
}

class HadamardOnDevice : public OnDevice {};

TEST_P(HadamardOnDevice, EqualsTheCpuToTheBit) {
  uint64_t seed = 10;
  for (const int64_t dim : {64, 128, 256, 512}) {
    for (const Format f : {Format::f16, Format::bf16}) {
      SCOPED_TRACE(std::to_string(dim) + " " + name(f));
      const Tensor x = test::random_tensor({2, 3, 5, dim}, f, ++seed, test::Data::outliers);
      Stream s = stream();
      const Tensor there = x.to(device), whole = hadamard(there, s);
      const Tensor part = hadamard(there.slice(2, 1, 4).slice(1, 0, 2), s);
      Tensor place = x.to(device);
      hadamard_into(place, place, s);
      s.synchronize();
      const Tensor expected = hadamard(x);
      EXPECT_TRUE(same_bits(whole.to(Device::cpu()), expected));
      EXPECT_TRUE(same_bits(place.to(Device::cpu()), expected));
      EXPECT_TRUE(same_bits(part.to(Device::cpu()),
                            expected.slice(2, 1, 4).slice(1, 0, 2).contiguous_copy()));
    }
  }
}

TEST_P(HadamardOnDevice, OtherHeadsAreRefused) {
  for (const auto& [dim, f] : {std::pair{int64_t{96}, Format::bf16}, {128, Format::f32}}) {
    const Support support = can_run(HadamardProblem{dim, f}, device);
    EXPECT_FALSE(support.ok);
    EXPECT_NE(support.reason.find(std::to_string(dim)), std::string::npos) << support.reason;
    const Tensor x = Tensor::zeros({2, 1, dim}, f).to(device);
    Stream s = stream();
    test::expect_error([&] { hadamard(x, s); }, {"hadamard", std::to_string(dim), name(f)});
  }
}

TEST_P(HadamardOnDevice, SameBitsInAnyOrder) {
  const Tensor x = test::random_tensor({7, 3, 128}, Format::bf16, 3).to(device);
  Tensor out = Tensor::zeros({7, 3, 128}, Format::bf16).to(device);
  expect_any_order(out, [&](Stream& s) { hadamard_into(x, out, s); });
}

HALFTONE_ON_DEVICES(HadamardOnDevice);

}  // namespace
}  // namespace halftone
