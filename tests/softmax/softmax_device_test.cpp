// Softmax on GPUs.
#include "halftone/softmax.h"

#include "support/devices.h"
#include "support/sanitized.h"

namespace halftone {
namespace {

using test::OnDevice;

class SoftmaxOnDevice : public OnDevice {
 protected:
  // As for the CPU (softmax_test.cpp), with u = 2^-24 and d = maximum - x: exp is within 4 u, its
  // argument is rounded twice (2 d u); a thread adds at most 16 or columns / 64 terms and lanes
  // and warps 10 more; reciprocal and product add 2 u. Exponentials of 16-bit results are within
  // 2^-15, as is the sum.
  static std::vector<double> bounds(const std::vector<float>& scaled,
                                    const std::vector<float>& reference, int64_t columns,
                                    Format out) {
    const double chain = std::max(16.0, static_cast<double>(columns) / 64) + 10;
    std::vector<double> bound;
    for (size_t first = 0; first < scaled.size(); first += static_cast<size_t>(columns)) {
      const auto row = scaled.begin() + static_cast<std::ptrdiff_t>(first);
      const double most = *std::max_element(row, row + columns);
      for (size_t i = first; i < first + static_cast<size_t>(columns); ++i) {
        const double d = std::min(most - scaled[i], 88.0);
        const double error = (8 + 2 * d + 2 * std::log(static_cast<double>(columns)) + chain + 2) *
                                 test::kF32Roundoff +
                             (out == Format::f32 ? 0 : 0x1p-14);
        bound.push_back(test::rounded_bound(out, reference[i], error) + 0x1p-126);
      }
    }
    return bound;
  }
  Tensor on_device(const Tensor& x, Format out, float scale) const {
    const Tensor y = Tensor::empty(x.shape(), out, device);
    Stream s = stream();
    run(plan(SoftmaxProblem{x.size(0), x.size(1), x.format(), out, scale}, device),
        {x.device() == device ? x : x.to(device), y}, s);
    s.synchronize();
    return y.to(Device::cpu());
  }
  void expect_softmax(const Tensor& x, Format out, float scale) const {
    const std::vector<float> reference = test::to_floats(softmax_reference(x, scale));
    std::vector<float> scaled = test::to_floats(x);
    for (float& v : scaled) v *= scale;
    EXPECT_TRUE(test::within(test::to_floats(on_device(x, out, scale)), reference,
                             bounds(scaled, reference, x.size(1), out)))
        << to_string(x) << " to " << name(out) << ", scale " << scale;
  }
};

TEST_P(SoftmaxOnDevice, EqualsTheReference) {
  int turn = 0;
  for (const Format format : test::kPlainFormats) {
    for (const int64_t columns : {1, 7, 64, 257, 1000, 8200, 17001}) {
      const Format out = test::kPlainFormats[++turn % 3];
      expect_softmax(test::random_tensor({2, columns}, format, 1), out, turn % 2 ? 1 : 3);
    }
    for (const test::Data data : {test::Data::outliers, test::Data::tiny, test::Data::all_equal}) {
      expect_softmax(test::random_tensor({3, 300}, format, 2, data), format, 0.125f);
    }
  }
}

TEST_P(SoftmaxOnDevice, SpecialRows) {
  constexpr float kInf = INFINITY;
  const Tensor x = Tensor::from({-kInf, -kInf, -kInf, NAN, -kInf, -kInf, 1, NAN, 2, kInf, 0, 1,  //
                                 -kInf, 0, -kInf},
                                {5, 3});
  const std::vector<float> y = test::to_floats(on_device(x, Format::f32, 1));
  const std::vector<float> expected = test::to_floats(softmax_reference(x));
  EXPECT_TRUE(test::within(y, expected, std::vector<double>(15, 0)));
}

TEST_P(SoftmaxOnDevice, UnalignedRowsInAnyOrder) {
  const Tensor rows = test::random_tensor({3, 700}, Format::bf16, 3);
  const Tensor x = test::shifted(rows, device, 1, 6);
  const Tensor y = Tensor::empty({3, 700}, Format::bf16, device);
  const SoftmaxPlan p = plan(SoftmaxProblem{3, 700, Format::bf16, Format::bf16}, device);
  expect_any_order(y, [&](Stream& s) { run(p, {x, y}, s); });
  EXPECT_TRUE(test::same_bits(y.to(Device::cpu()), on_device(rows, Format::bf16, 1)));
  // A row's bits do not depend on the batch.
  EXPECT_TRUE(test::same_bits(y.to(Device::cpu()).slice(0, 2, 3).contiguous_copy(),
                              on_device(rows.slice(0, 2, 3).contiguous_copy(), Format::bf16, 1)));
}

TEST_P(SoftmaxOnDevice, SameBitsAtAnyAddress) {
  for (const Format format : test::kPlainFormats) {
    for (const int64_t columns : {8, 512, 8192, 8200, 32000, 70000}) {
      for (const Format out : {format, Format::f32, Format::bf16}) {
        const Tensor rows = test::random_tensor({2, columns}, format, 5);
        const Tensor x = test::shifted(rows, device, 1, 3);
        const Tensor apart = on_device(x, out, 0.5f);
        EXPECT_TRUE(test::same_bits(on_device(rows, out, 0.5f), apart))
            << columns << " of " << name(format) << " to " << name(out);
      }
    }
  }
}

// Where there are many rows, fewer threads keep one, and a block goes from one long row to another.
TEST_P(SoftmaxOnDevice, SameBitsAmongManyRows) {
  struct Case {
    int64_t rows, columns;
    Format in, out;
  };
  for (const Case& c : test::some(std::vector<Case>{{600, 4096, Format::bf16, Format::bf16},
                                                    {600, 4096, Format::f16, Format::f32},
                                                    {270, 8200, Format::f32, Format::f32},
                                                    {270, 16384, Format::bf16, Format::bf16},
                                                    {140, 25000, Format::f32, Format::f32},
                                                    {140, 32768, Format::bf16, Format::bf16}})) {
    const Tensor x = test::random_tensor({c.rows, c.columns}, c.in, 7);
    const Tensor many = on_device(x, c.out, 1);
    for (const int64_t first : {int64_t{0}, c.rows - 16}) {
      EXPECT_TRUE(
          test::same_bits(many.slice(0, first, first + 16).contiguous_copy(),
                          on_device(x.slice(0, first, first + 16).contiguous_copy(), c.out, 1)))
          << "from row " << first << " of " << c.rows << " of " << c.columns << " " << name(c.in);
    }
  }
}

// A row that is a cluster's: -inf and NaN in one of its blocks show in all.
TEST_P(SoftmaxOnDevice, SpecialLongRows) {
  constexpr int64_t kColumns = 20000;
  std::vector<float> x(4 * kColumns, -INFINITY);
  x[kColumns + 19999] = NAN;
  x[2 * kColumns + 9000] = 3;
  x[3 * kColumns + 9000] = INFINITY;
  const Tensor rows = Tensor::from<float>(x, {4, kColumns}, Format::f32);
  const std::vector<float> expected = test::to_floats(softmax_reference(rows));
  EXPECT_TRUE(test::within(test::to_floats(on_device(rows, Format::f32, 1)), expected,
                           std::vector<double>(expected.size(), 0)));
}

TEST_P(SoftmaxOnDevice, TheBoundSeesSmallErrors) {
  const Tensor x = test::random_tensor({1, 200}, Format::f32, 4);
  const std::vector<float> reference = test::to_floats(softmax_reference(x));
  const std::vector<double> bound = bounds(test::to_floats(x), reference, 200, Format::f32);
  std::vector<float> y = test::to_floats(on_device(x, Format::f32, 1));
  EXPECT_TRUE(test::within(y, reference, bound));
  for (float& v : y) v *= 1 + 0x1p-16f;
  EXPECT_FALSE(test::within(y, reference, bound)) << "the sum off by 2^-16";
  y = test::to_floats(on_device(x, Format::f32, 1.0001f));
  EXPECT_FALSE(test::within(y, reference, bound)) << "another scale";
}

TEST_P(SoftmaxOnDevice, RandomProblems) {
  random_problems([&](test::Draw& draw, uint64_t seed) {
    const test::Data data = draw.one_in(3) ? test::Data::outliers : test::Data::normal;
    const Tensor x =
        test::random_tensor({draw.extent(30), draw.extent(20000)}, draw.plain_format(), seed, data);
    const float scales[] = {1, 0.125f, 3, 20};
    expect_softmax(x, draw.plain_format(), draw.of(scales));
  });
}

HALFTONE_ON_DEVICES(SoftmaxOnDevice);

}  // namespace
}  // namespace halftone
