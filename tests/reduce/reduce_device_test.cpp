// Reductions on GPUs.
#include "halftone/reduce.h"

#include "support/devices.h"

namespace halftone {
namespace {

using test::OnDevice;

class ReduceOnDevice : public OnDevice {
 protected:
  // Eight terms are added in f32 by at most eight roundings, everything else in f64: with u = 2^-24
  // 8 u of the sum of magnitudes, and the last rounding.
  void expect_reduced(Reduction operation, const Tensor& x, int axis, const Tensor& y = {}) const {
    SCOPED_TRACE(std::string(name(operation)) + " of " + to_string(x) + " along " +
                 std::to_string(axis));
    Stream s = stream();
    const Tensor out =
        y.defined() ? dot(x.to(device), y.to(device), s) : reduce(operation, x.to(device), axis, s);
    const Tensor host = out.to(Device::cpu());
    const Tensor reference = reduce_reference(operation, x, axis, y);
    if (out.format() == Format::i64) {
      EXPECT_TRUE(test::same_bits(host, reference));
      return;
    }
    const auto magnitudes = [](const Tensor& t) {
      if (!t.defined()) return t;
      std::vector<float> values = test::to_floats(t);
      for (float& v : values) v = std::abs(v);
      return Tensor::from<float>(values, t.shape(), Format::f32);
    };
    const bool exact = operation == Reduction::max || operation == Reduction::min;
    const std::vector<float> sums =
        test::to_floats(reduce_reference(operation, magnitudes(x), axis, magnitudes(y)));
    const std::vector<float> expected = test::to_floats(reference);
    std::vector<double> bound;
    for (size_t i = 0; i < sums.size(); ++i) {
      bound.push_back(exact ? 0
                            : test::rounded_bound(Format::f32, expected[i], 0) +
                                  8.01 * test::kF32Roundoff * sums[i]);
    }
    EXPECT_TRUE(test::within(test::to_floats(host), expected, bound));
  }
};

TEST_P(ReduceOnDevice, EveryOperationAlongEveryDimension) {
  uint64_t seed = 0;
  for (int i = 0; i < kReductionCount; ++i) {
    const auto operation = static_cast<Reduction>(i);
    for (const Shape& shape : {Shape{1}, Shape{3, 7}, Shape{2, 900}, Shape{1, 9001}}) {
      const Format format = test::kPlainFormats[++seed % 3];
      const Tensor x = test::random_tensor(shape, format, seed);
      const Tensor y = operation == Reduction::dot
                           ? test::random_tensor(shape, Format::bf16, seed + 100)
                           : Tensor();
      expect_reduced(operation, x, -1, y);
    }
    if (operation == Reduction::dot) continue;
    const Tensor x = test::random_tensor({3, 37, 5, 4}, Format::bf16, ++seed);
    for (int axis = 0; axis < 4; ++axis) expect_reduced(operation, x, axis);
  }
}

TEST_P(ReduceOnDevice, TiesNansAndInfinities) {
  const Tensor x =
      Tensor::from({1, 3, 3, 1, NAN, 2, NAN, 0, -INFINITY, INFINITY, -0.0f, 0}, {3, 4});
  for (const Reduction r : {Reduction::max, Reduction::min, Reduction::argmax, Reduction::argmin}) {
    expect_reduced(r, x, 1);
    expect_reduced(r, x, 0);
  }
}

TEST_P(ReduceOnDevice, SameBitsInAnyOrder) {
  const Tensor x = test::random_tensor({3, 2000}, Format::f32, 1).to(device);
  const Tensor out = Tensor::empty({3}, Format::f32, device);
  const ReducePlan p = plan(
      ReduceProblem{.operation = Reduction::sum, .shape = {3, 2000}, .x = Format::f32}, device);
  expect_any_order(out, [&](Stream& s) { run(p, {x, {}, out}, s); });
}

TEST_P(ReduceOnDevice, TheBoundSeesAnElementLeftOut) {
  const Tensor x = test::random_tensor({1, 4096}, Format::f32, 2);
  Stream s = stream();
  const float whole = reduce(Reduction::sum, x.to(device), -1, s).to(Device::cpu()).at({0});
  const Tensor shorter = x.slice(1, 0, 4095).contiguous_copy();
  const float less = reduce(Reduction::sum, shorter.to(device), -1, s).to(Device::cpu()).at({0});
  double magnitude = 0;
  for (const float v : test::to_floats(x)) magnitude += std::abs(v);
  EXPECT_GT(std::abs(whole - less), 8.01 * test::kF32Roundoff * magnitude);
}

TEST_P(ReduceOnDevice, WhatAGpuDoesNotDoIsNamed) {
  const Support no = can_run(
      ReduceProblem{.operation = Reduction::sum, .shape = {4, 32}, .x = Format::int8}, device);
  EXPECT_FALSE(no.ok);
  EXPECT_NE(no.reason.find("int8"), std::string::npos) << no.reason;
}

TEST_P(ReduceOnDevice, RandomProblems) {
  random_problems([&](test::Draw& draw, uint64_t seed) {
    const auto operation = static_cast<Reduction>(draw.below(kReductionCount));
    const Shape shape{draw.extent(20), draw.extent(20), draw.extent(2000)};
    const bool dot = operation == Reduction::dot;
    const Tensor x = test::random_tensor(shape, draw.plain_format(), seed);
    const Tensor y = dot ? test::random_tensor(shape, draw.plain_format(), seed + 5000) : Tensor();
    expect_reduced(operation, x, dot ? -1 : static_cast<int>(draw.below(3)), y);
  });
}

HALFTONE_ON_DEVICES(ReduceOnDevice);

}  // namespace
}  // namespace halftone
