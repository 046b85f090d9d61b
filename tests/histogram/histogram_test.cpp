#include "halftone/histogram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "support/compare.h"
#include "support/tolerance.h"

namespace halftone {
namespace {

template <class T>
Tensor whole_numbers(const Shape& shape, Format format, int64_t below) {
  std::mt19937_64 engine(1);
  std::vector<T> values(static_cast<size_t>(element_count(shape)));
  for (T& v : values) v = static_cast<T>(engine() % static_cast<uint64_t>(below));
  return Tensor::from<T>(values, shape, format);
}

TEST(Histogram, CountsWholeNumbersOfEveryFormat) {
  for (const int64_t bins : {1, 3, 100, 5000}) {
    for (const Shape& shape : {Shape{0}, Shape{1}, Shape{3, 40001}}) {
      const Tensor i32 = whole_numbers<int32_t>(shape, Format::i32, bins);
      const Tensor expected = histogram_reference(i32, bins);
      EXPECT_TRUE(test::same_bits(histogram(i32, bins), expected));
      EXPECT_TRUE(test::same_bits(histogram(whole_numbers<int64_t>(shape, Format::i64, bins), bins),
                                  expected));
      if (bins > 128) continue;  // what every format holds
      EXPECT_TRUE(test::same_bits(histogram(whole_numbers<uint8_t>(shape, Format::u8, bins), bins),
                                  expected));
      EXPECT_TRUE(test::same_bits(histogram(whole_numbers<int8_t>(shape, Format::int8, bins), bins),
                                  expected));
      const Tensor f32 = whole_numbers<float>(shape, Format::f32, bins);
      for (const Format format : test::kPlainFormats) {
        const Tensor x = format == Format::f32 ? f32 : convert(f32, format);
        EXPECT_TRUE(test::same_bits(histogram(x, bins), expected));
      }
    }
  }
}

TEST(Histogram, EdgesAsNumpyHasThem) {
  const Tensor edges = Tensor::from({-1.0f, 0.0f, 0.5f, 0.5f, 2.0f}, {5});
  const Tensor x = Tensor::from({-1.0f, -2.0f, 0.0f, 0.49f, 0.5f, 2.0f, 1.9f, 2.1f, -0.5f}, {9});
  const Tensor counts = histogram(x, edges);
  const int64_t expected[] = {2, 2, 0, 3};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(counts.data<int64_t>()[i], expected[i]) << i;
  const Tensor noise = test::random_tensor({7, 3000}, Format::bf16, 2);
  std::vector<float> fine;
  for (int i = 0; i <= 301; ++i) fine.push_back(-3 + 0.02f * static_cast<float>(i));
  const Tensor many = Tensor::from<float>(fine, {302}, Format::f32);
  EXPECT_TRUE(test::same_bits(histogram(noise, many), histogram_reference(noise, 301, many)));
  const Tensor quantised =
      quantize(test::random_tensor({8, 256}, Format::f32, 3), parse_quantization("nvfp4"));
  EXPECT_TRUE(
      test::same_bits(histogram(quantised, many), histogram_reference(quantised, 301, many)));
}

TEST(Histogram, StridesThreadsAndTables) {
  const Tensor x = whole_numbers<int32_t>({300, 200}, Format::i32, 3000);
  const Tensor turned = x.transpose(0, 1).slice(0, 3, 150);
  Stream one(Device::cpu(), 1), three(Device::cpu(), 3);
  const Tensor counts = histogram(turned, 3000, three);
  EXPECT_TRUE(test::same_bits(counts, histogram(turned.contiguous_copy(), 3000, one)));
  Tensor bad = counts.contiguous_copy();
  ++bad.data<int64_t>()[0];
  EXPECT_FALSE(test::same_bits(counts, bad));
}

TEST(Histogram, ValuesWithoutABinAreNamed) {
  Tensor x = whole_numbers<int32_t>({3, 20000}, Format::i32, 50);
  x.data<int32_t>()[41234] = -7;
  x.data<int32_t>()[50000] = -9;
  test::expect_error([&] { histogram(x, 50); }, {"x[41234] is -7", "bins, 50"});
  x.data<int32_t>()[41234] = 50;
  test::expect_error([&] { histogram(x, 50); }, {"x[41234] is 50"});
  const Tensor f = Tensor::from({1.0f, -0.5f, NAN}, {3});
  test::expect_error([&] { histogram(f, 2); }, {"x[1] is -0.5"});
  test::expect_error([&] { histogram(f, Tensor::from({-1.0f, 2.0f}, {2})); }, {"x[2] is nan"});
  test::expect_error(
      [&] {
        histogram(f, Tensor::from({2.0f, 1.0f}, {2}));
      },
      {"edges[0]", "ascend"});
  test::expect_error([&] { histogram(f, int64_t{0}); }, {"bins is 0"});
  test::expect_error([&] { histogram(Tensor::zeros({2}, Format::ue8m0), 2); }, {"ue8m0"});
  const HistogramPlan p = plan(HistogramProblem{{3}, Format::f32, false, 4, false}, Device::cpu());
  Stream stream;
  test::expect_error(
      [&] {
        run(p, {f, Tensor::zeros({3}, Format::i64), {}}, stream);
      },
      {"counts", "[3]", "[4]"});
  EXPECT_NE(describe(p).find("histogram"), std::string::npos);
}

}  // namespace
}  // namespace halftone
