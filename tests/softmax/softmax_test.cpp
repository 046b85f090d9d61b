#include "halftone/softmax.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/compare.h"
#include "support/tolerance.h"

namespace halftone {
namespace {

using test::Data;

// With d = maximum - x: exp is within 4 u, its argument is rounded (d u). The same holds for the
// terms of the sum, whose mean d is at most ln n; the sum has chains of n / 16 + 8 additions;
// reciprocal and product add 2 u. With results of 16 bits the exponentials are within 2^-15.
// Rescaling the sum adds an exponential at most as wrong as a term. A probability below 2^-126 may
// come out as 0.
std::vector<double> bounds(const std::vector<float>& x, const std::vector<float>& reference,
                           int64_t columns, Format out) {
  std::vector<double> bound;
  const auto n = static_cast<double>(columns);
  for (size_t first = 0; first < x.size(); first += static_cast<size_t>(columns)) {
    const auto row = x.begin() + static_cast<std::ptrdiff_t>(first);
    const double most = *std::max_element(row, row + columns);
    for (size_t i = first; i < first + static_cast<size_t>(columns); ++i) {
      const double d = std::min(most - x[i], 88.0);
      const double error = (4 + d + 4 + std::log(n) + n / 16 + 8 + 2) * test::kF32Roundoff +
                           (out == Format::f32 ? 0 : 0x1p-14);
      bound.push_back(test::rounded_bound(out, reference[i], error) + 0x1p-126);
    }
  }
  return bound;
}

void expect_softmax(const Tensor& x) {
  const std::vector<float> reference = test::to_floats(softmax_reference(x));
  const std::vector<double> bound = bounds(test::to_floats(x), reference, x.size(-1), x.format());
  EXPECT_TRUE(test::within(test::to_floats(softmax(x)), reference, bound)) << to_string(x);
}

TEST(Softmax, EqualsTheReferenceAtEveryLevel) {
  test::at_every_level([] {
    for (const Format format : test::kPlainFormats) {
      for (const int64_t columns : {1, 2, 15, 16, 17, 63, 64, 65, 257, 4095, 4096, 4097, 9001}) {
        expect_softmax(test::random_tensor({3, columns}, format, 1));
      }
      for (const Data data : {Data::outliers, Data::tiny, Data::all_equal}) {
        expect_softmax(test::random_tensor({3, 300}, format, 2, data));
      }
    }
    expect_softmax(test::random_tensor({3, 300}, Format::f32, 3, Data::huge));
    expect_softmax(Tensor::empty({0, 5}, Format::f32));
  });
}

TEST(Softmax, ScalesAndAlgorithms) {
  test::at_every_level([] {
    Stream stream;
    for (const Format format : test::kPlainFormats) {
      for (const int64_t columns : {1, 511, 700, 4096, 9001}) {
        const Tensor x = test::random_tensor({3, columns}, format, 7, Data::outliers);
        for (const float scale : {0.125f, 3.0f}) {
          const std::vector<float> reference = test::to_floats(softmax_reference(x, scale));
          std::vector<float> scaled = test::to_floats(x);
          for (float& v : scaled) v *= scale;
          std::vector<double> bound = bounds(scaled, reference, columns, format);
          for (double& b : bound) b *= 2;  // the product with the scale is rounded as well
          for (const auto algorithm :
               {SoftmaxAlgorithm::automatic, SoftmaxAlgorithm::safe, SoftmaxAlgorithm::online}) {
            if (algorithm == SoftmaxAlgorithm::safe && columns > 4096) continue;
            const Tensor y = Tensor::empty({3, columns}, format);
            run(plan(SoftmaxProblem{3, columns, format, format, scale, algorithm}, Device::cpu()),
                {x, y}, stream);
            EXPECT_TRUE(test::within(test::to_floats(y), reference, bound)) << columns;
          }
        }
      }
    }
    // The maximum grows at the end: what was added up before shrinks to nothing.
    std::vector<float> rising(2000, -500);
    rising.back() = 300;
    const Tensor y = Tensor::empty({1, 2000}, Format::f32);
    run(plan(SoftmaxProblem{1, 2000, Format::f32, Format::f32, 1, SoftmaxAlgorithm::online},
             Device::cpu()),
        {Tensor::from<float>(rising, {1, 2000}, Format::f32), y}, stream);
    EXPECT_EQ(y.at({0, 1999}), 1);
    EXPECT_EQ(y.at({0, 0}), 0);
  });
}

TEST(Softmax, FormatsMayDiffer) {
  test::at_every_level([] {
    for (const Format in : test::kPlainFormats) {
      const Tensor x = test::random_tensor({2, 75}, in, 4);
      const std::vector<float> reference = test::to_floats(softmax_reference(x));
      for (const Format out : test::kPlainFormats) {
        const Tensor y = Tensor::empty({2, 75}, out);
        Stream stream;
        run(plan(SoftmaxProblem{2, 75, in, out}, Device::cpu()), {x, y}, stream);
        EXPECT_TRUE(test::within(test::to_floats(y), reference,
                                 bounds(test::to_floats(x), reference, 75, out)));
      }
    }
  });
}

TEST(Softmax, MaskedAndInvalidRows) {
  constexpr float kInf = INFINITY;
  test::at_every_level([&] {
    for (const int64_t columns : {3, 40, 4100}) {
      std::vector<float> x(static_cast<size_t>(5 * columns), -kInf);
      const auto row = [&](int64_t r) { return x.begin() + r * columns; };
      *(row(1) + 1) = 2;    // one key left
      *(row(2) + 2) = NAN;  // NaN beside -inf
      *row(3) = kInf;       // torch gives NaN too
      *(row(4) + 1) = -1e30f;
      const Tensor y = softmax(Tensor::from<float>(x, {5, columns}, Format::f32));
      for (int64_t c = 0; c < columns; ++c) {
        EXPECT_EQ(y.at({0, c}), 0);
        EXPECT_EQ(y.at({1, c}), c == 1 ? 1 : 0);
        EXPECT_TRUE(std::isnan(y.at({2, c})));
        EXPECT_EQ(y.at({4, c}), c == 1 ? 1 : 0);
      }
      EXPECT_TRUE(std::isnan(y.at({3, 0})));
    }
  });
}

TEST(Softmax, StridesInPlaceThreadsAndBatch) {
  test::at_every_level([] {
    for (const Format format : test::kPlainFormats) {
      const Tensor wide = test::random_tensor({50, 5000}, format, 5);
      const Tensor x = wide.slice(1, 1, 4902);
      Stream one(Device::cpu(), 1), three(Device::cpu(), 3);
      const Tensor y = softmax(x.contiguous_copy(), one);
      EXPECT_TRUE(test::same_bits(y, softmax(x, three)));
      EXPECT_TRUE(test::same_bits(y.slice(0, 7, 8), softmax(x.slice(0, 7, 8).contiguous_copy())));
      run(plan(SoftmaxProblem{50, 4901, format, format}, Device::cpu()), {x, x}, three);
      EXPECT_TRUE(test::same_bits(y, x.contiguous_copy()));
    }
  });
}

TEST(Softmax, TheToleranceSeesSmallErrors) {
  const Tensor x = test::random_tensor({4, 64}, Format::f32, 6);
  const std::vector<float> reference = test::to_floats(softmax_reference(x));
  const std::vector<double> bound = bounds(test::to_floats(x), reference, 64, Format::f32);
  const std::vector<float> good = test::to_floats(softmax(x));
  EXPECT_TRUE(test::within(good, reference, bound));
  std::vector<float> bad = good;
  bad[70] *= 1 + 0x1p-18f;
  EXPECT_FALSE(test::within(bad, reference, bound)) << "one element off by 2^-18";
  bad = good;
  std::fill(bad.begin() + 64, bad.begin() + 128, 1 / 64.0f);
  EXPECT_FALSE(test::within(bad, reference, bound)) << "one row uniform";
  bad = good;
  for (float& p : bad) p *= 63 / 64.0f;
  EXPECT_FALSE(test::within(bad, reference, bound)) << "one more term in the sum";
}

TEST(Softmax, WrongArgumentsAreNamed) {
  test::expect_error([] { softmax(Tensor()); }, {"x is undefined"});
  test::expect_error([] { softmax(Tensor::zeros({2, 2}, Format::u8)); }, {"x is u8"});
  EXPECT_FALSE(can_run(SoftmaxProblem{1, 5000, Format::f32, Format::f32, 1, SoftmaxAlgorithm::safe},
                       Device::cpu())
                   .ok);
  EXPECT_FALSE(can_run(SoftmaxProblem{1, 5, Format::f32, Format::f32, 0}, Device::cpu()).ok);
  const Tensor x = Tensor::zeros({2, 4}, Format::f32);
  Stream stream;
  const SoftmaxPlan p = plan(SoftmaxProblem{2, 4}, Device::cpu());
  test::expect_error(
      [&] {
        run(p, {x, Tensor::zeros({4, 2}, Format::f32)}, stream);
      },
      {"out", "[4, 2]", "2 rows of 4"});
  test::expect_error([&] { run(p, {x.transpose(0, 1), x}, stream); }, {"x", "stride"});
  test::expect_error([&] { run({}, {x, x}, stream); }, {"plan"});
  EXPECT_NE(describe(p).find("softmax_"), std::string::npos);
}

}  // namespace
}  // namespace halftone
