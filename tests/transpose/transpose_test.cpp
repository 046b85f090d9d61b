#include "halftone/transpose.h"

#include <utility>

#include <gtest/gtest.h>

#include "support/compare.h"
#include "support/tolerance.h"

namespace halftone {
namespace {

// Every element of every width tells its place.
Tensor numbered(const Shape& shape, Format format) {
  Tensor t = Tensor::empty(shape, format);
  const int64_t bytes = bits(format) / 8;
  for (int64_t i = 0; i < t.numel(); ++i) {
    const int64_t value = i * 2654435761 + 1;
    std::memcpy(t.data<char>() + i * bytes, &value, static_cast<size_t>(bytes));
  }
  return t;
}

TEST(Transpose, EqualsTheReferenceForEveryWidth) {
  for (const Format format :
       {Format::u8, Format::fp8_e4m3, Format::bf16, Format::f32, Format::i64}) {
    for (const int64_t rows : {0, 1, 3, 16, 63, 64, 65, 130}) {
      for (const int64_t columns : {1, 2, 17, 64, 129}) {
        const Tensor x = numbered({rows, columns}, format);
        EXPECT_TRUE(test::same_bits(transpose(x), permute_reference(x, {1, 0}))) << to_string(x);
      }
    }
    const Tensor x = numbered({3, 5, 70, 9}, format);
    for (const Dims& order : {Dims{0, 1, 2, 3}, Dims{0, 2, 1, 3}, Dims{3, 2, 1, 0},
                              Dims{2, 0, 3, 1}, Dims{1, 3, 0, 2}, Dims{0, 3, 1, 2}}) {
      EXPECT_TRUE(test::same_bits(permute(x, order), permute_reference(x, order)))
          << to_string(order);
    }
  }
}

TEST(Transpose, StridesAndThreads) {
  const Tensor wide = numbered({200, 3, 150}, Format::bf16);
  Stream one(Device::cpu(), 1), three(Device::cpu(), 3);
  const Tensor x = wide.slice(2, 5, 134).slice(0, 3, 190);
  for (const Dims& order : {Dims{2, 1, 0}, Dims{1, 0, 2}, Dims{0, 1, 2}}) {
    const Tensor y = permute(x, order, three);
    EXPECT_TRUE(test::same_bits(y, permute_reference(x, order)));
    EXPECT_TRUE(test::same_bits(y, permute(x, order, one)));
  }
  const Tensor turned = wide.transpose(0, 2);  // no dimension of step 1 at the end
  EXPECT_TRUE(test::same_bits(permute(turned, {1, 0, 2}), permute_reference(turned, {1, 0, 2})));
}

TEST(Transpose, TheComparisonSeesOneElement) {
  const Tensor x = numbered({64, 64}, Format::f32);
  Tensor y = transpose(x);
  std::swap(y.data<float>()[5], y.data<float>()[6]);
  EXPECT_FALSE(test::same_bits(y, permute_reference(x, {1, 0})));
}

TEST(Transpose, WrongArgumentsAreNamed) {
  const Tensor x = Tensor::zeros({2, 4}, Format::f32);
  test::expect_error([&] { permute(x, {0, 0}); }, {"order is [0, 0]", "once"});
  test::expect_error([&] { permute(x, {0, 1, 2}); }, {"order", "2 dimensions"});
  test::expect_error([&] { transpose(Tensor::zeros({4}, Format::f32)); }, {"two dimensions"});
  test::expect_error([&] { transpose(Tensor::zeros({2, 4}, Format::mxfp4)); }, {"mxfp4", "packed"});
  Stream stream;
  const PermutePlan p = plan(PermuteProblem{{2, 4}, {1, 0}, Format::f32}, Device::cpu());
  test::expect_error(
      [&] {
        run(p, {x, Tensor::zeros({2, 4}, Format::f32)}, stream);
      },
      {"out", "[4, 2]"});
  test::expect_error([&] { run(p, {x, x.reshape({4, 2})}, stream); }, {"out is x"});
  EXPECT_NE(describe(p).find("permute"), std::string::npos);
}

}  // namespace
}  // namespace halftone
