#include "halftone/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/compare.h"
#include "support/tolerance.h"

namespace halftone {
namespace {

using test::Data;

// The depth of the tree times u, relative to the sum of magnitudes, which bounds every partial sum;
// products and squares add a rounding (two without FMA), the mean a division.
double depth(const Shape& shape, int axis) {
  const auto n = static_cast<double>(std::max<int64_t>(shape[axis], 1));
  return (axis == shape.rank() - 1 ? 40 + std::log2(n) : 160 + n / 128) * test::kF32Roundoff;
}

Tensor magnitudes(const Tensor& x) {
  std::vector<float> values = test::to_floats(is_plain_float(x.format()) ? x : dequantize(x));
  for (float& v : values) v = std::abs(v);
  return Tensor::from<float>(values, x.shape(), Format::f32);
}

// What a reduction must give, worked out once for every level.
struct Expected {
  Reduction operation;
  Tensor x;
  int axis;
  Tensor reference;
  std::vector<double> bound;
};
Expected expected(Reduction r, const Tensor& x, int axis) {
  Expected e{r, x, axis, reduce_reference(r, x, axis), {}};
  e.bound.resize(static_cast<size_t>(e.reference.numel()));
  if (r != Reduction::max && r != Reduction::min && e.reference.format() != Format::i64) {
    const std::vector<float> sums = test::to_floats(reduce_reference(r, magnitudes(x), axis));
    const double error = depth(x.shape(), axis < 0 ? axis + x.rank() : axis);
    for (size_t i = 0; i < sums.size(); ++i) e.bound[i] = 1.001 * error * sums[i];
  }
  return e;
}

void expect_at_every_level(const std::vector<Expected>& all) {
  test::at_every_level([&] {
    for (const Expected& e : all) {
      const Tensor y = reduce(e.operation, e.x, e.axis);
      ASSERT_EQ(y.shape(), e.reference.shape());
      const bool index = y.format() == Format::i64;
      const auto right =
          index ? testing::AssertionResult(test::same_bits(y, e.reference))
                : test::within(test::to_floats(y), test::to_floats(e.reference), e.bound);
      EXPECT_TRUE(right) << name(e.operation) << " of " << to_string(e.x) << " along " << e.axis;
    }
  });
}

constexpr Reduction kOfOne[] = {Reduction::sum,   Reduction::mean, Reduction::sum_of_squares,
                                Reduction::max,   Reduction::min,  Reduction::argmax,
                                Reduction::argmin};

TEST(Reduce, EqualsTheReferenceAtEveryLevel) {
  std::vector<Expected> all;
  for (const Format format : test::kPlainFormats) {
    for (const int64_t n : {1, 2, 63, 64, 65, 1023, 1025, 5000}) {
      const Tensor x = test::random_tensor({3, n}, format, 1);
      for (const Reduction r : kOfOne) {
        for (const int axis : {-1, 0}) all.push_back(expected(r, x, axis));
      }
    }
    const Tensor cube = test::random_tensor({3, 130, 2, 17}, format, 2, Data::outliers);
    for (const Reduction r : kOfOne) {
      for (int axis = 0; axis < 4; ++axis) all.push_back(expected(r, cube, axis));
      all.push_back(expected(r, cube.transpose(1, 3), 1));
    }
  }
  all.push_back(expected(Reduction::sum, Tensor::empty({3, 0}, Format::f32), 1));
  all.push_back(expected(Reduction::sum, Tensor::empty({0, 3}, Format::f32), 1));
  expect_at_every_level(all);
}

TEST(Reduce, QuantisedInputsAreDecodedExactly) {
  const Tensor x = test::random_tensor({6, 2080}, Format::f32, 3, Data::outliers);
  std::vector<Expected> all;
  for (const char* text : {"fp8", "fp8_row", "fp8_e5m2", "mxfp8", "mxfp4", "nvfp4", "int8",
                           "int8_g32", "int4", "int4_g64_asym"}) {
    const Tensor q = quantize(x, parse_quantization(text));
    for (const Reduction r : kOfOne) {
      for (const int axis : {-1, 0}) all.push_back(expected(r, q, axis));
    }
    const Tensor reference = reduce_reference(Reduction::dot, q, -1, x);
    test::at_every_level([&] {
      const Tensor value = dot(q, x);
      for (int64_t i = 0; i < 6; ++i) {
        EXPECT_NEAR(value.at({i}), reference.at({i}), 4000 * depth(q.shape(), 1)) << text;
      }
    });
  }
  const std::vector<int32_t> whole = {5, -3, 7, 7};
  const Tensor integers = Tensor::from<int32_t>(whole, {4}, Format::i32);
  all.push_back(expected(Reduction::argmax, integers, 0));
  expect_at_every_level(all);
  EXPECT_EQ(reduce(Reduction::sum, integers).at({0}), 16);
}

TEST(Reduce, LongRowsAndNan) {
  const Tensor x = test::random_tensor({2, 150001}, Format::bf16, 4);
  std::vector<Expected> all;
  for (const Reduction r : kOfOne) all.push_back(expected(r, x, -1));
  expect_at_every_level(all);
  std::vector<float> values(200000, 1.0f);
  values[140000] = values[150000] = 3;
  const Tensor t = Tensor::from<float>(values, {200000}, Format::f32);
  const Tensor largest = t.contiguous_copy();
  t.data<float>()[190000] = NAN;
  test::at_every_level([&] {
    EXPECT_EQ(reduce(Reduction::argmax, largest).data<int64_t>()[0], 140000);
    EXPECT_EQ(reduce(Reduction::argmax, t).data<int64_t>()[0], 190000);
    const Tensor half = convert(t, Format::bf16);
    EXPECT_EQ(reduce(Reduction::argmax, half).data<int64_t>()[0], 190000);
    for (const Tensor& row : {t, half}) {
      EXPECT_TRUE(std::isnan(reduce(Reduction::max, row).at({0})));
      EXPECT_TRUE(std::isnan(reduce(Reduction::min, row).at({0})));
    }
    const Tensor column = t.reshape({200000, 1});
    EXPECT_EQ(reduce(Reduction::argmin, column, 0).data<int64_t>()[0], 190000);
    EXPECT_TRUE(std::isnan(reduce(Reduction::max, column, 0).at({0})));
  });
}

TEST(Reduce, SameBitsForAnyThreadsAndAnyBatch) {
  test::at_every_level([] {
    const Tensor x = test::random_tensor({5, 200001}, Format::bf16, 5);
    const Tensor y = test::random_tensor({5, 200001}, Format::f32, 6);
    Stream one(Device::cpu(), 1), three(Device::cpu(), 3);
    for (const int axis : {0, 1}) {
      EXPECT_TRUE(test::same_bits(reduce(Reduction::sum, x, axis, one),
                                  reduce(Reduction::sum, x, axis, three)));
    }
    const Tensor all = dot(x, y, three);
    EXPECT_TRUE(test::same_bits(all, dot(x, y, one)));
    EXPECT_TRUE(test::same_bits(all.slice(0, 3, 4), dot(x.slice(0, 3, 4), y.slice(0, 3, 4))));
  });
}

TEST(Reduce, TheToleranceSeesSmallErrors) {
  const Tensor x = test::random_tensor({1, 4096}, Format::f32, 7);
  const double bound =
      depth(x.shape(), 1) * reduce_reference(Reduction::sum, magnitudes(x)).at({0});
  const double reference = reduce_reference(Reduction::sum, x).at({0});
  EXPECT_LE(std::abs(reduce(Reduction::sum, x).at({0}) - reference), bound);
  EXPECT_GT(std::abs(reduce(Reduction::sum, x.slice(1, 0, 4095)).at({0}) - reference), bound)
      << "the last element left out";
}

TEST(Reduce, WrongArgumentsAreNamed) {
  const Tensor x = Tensor::zeros({2, 3}, Format::f32);
  test::expect_error([&] { reduce(Reduction::sum, x, 2); }, {"axis is 2", "2 dimensions"});
  test::expect_error(
      [&] {
        reduce(Reduction::max, Tensor::zeros({2, 0}, Format::f32));
      },
      {"max", "no elements"});
  test::expect_error([&] { reduce(Reduction::sum, Tensor::zeros({2}, Format::ue8m0)); }, {"ue8m0"});
  test::expect_error([&] { reduce(Reduction::sum, Tensor::zeros({32}, Format::mxfp4)); },
                     {"mxfp4 without scales"});
  test::expect_error([&] { dot(x, Tensor::zeros({2, 4}, Format::f32)); }, {"y", "[2, 4]"});
  ReduceProblem p{Reduction::sum, {2, 3}, 1, Format::f32};
  Stream stream;
  test::expect_error(
      [&] {
        run(plan(p, Device::cpu()), {x, {}, Tensor::zeros({3}, Format::f32)}, stream);
      },
      {"out", "[3]", "[2]"});
  EXPECT_NE(describe(plan(p, Device::cpu())).find("reduce_"), std::string::npos);
}

}  // namespace
}  // namespace halftone
