#include <cmath>

#include "halftone/moe.h"
#include "support/compare.h"

namespace halftone {
namespace {

using namespace test;

std::vector<int32_t> experts_of(const Routing& r) {
  return {r.experts.data<int32_t>(), r.experts.data<int32_t>() + r.experts.numel()};
}

RoutingOptions options(int top_k, bool renormalize) {
  RoutingOptions o;
  o.top_k = top_k;
  o.renormalize = renormalize;
  return o;
}

TEST(Route, AgainstFp64) {
  for (Format format : {Format::f32, Format::f16, Format::bf16}) {
    for (bool renormalize : {true, false}) {
      const int64_t tokens = 33, experts = 20, k = 3;
      const Tensor logits = random_tensor({tokens, experts}, format, 5);
      const std::vector<float> l = to_floats(logits);
      const Routing r = route(logits, options(k, renormalize));
      for (int64_t t = 0; t < tokens; ++t) {
        double sum = 0;
        for (int64_t e = 0; e < experts; ++e)
          sum += std::exp(l[static_cast<size_t>(t * experts + e)]);
        double total = 0, previous = INFINITY;
        for (int64_t i = 0; i < k; ++i) {
          const int32_t e = r.experts.data<int32_t>()[t * k + i];
          const double x = l[static_cast<size_t>(t * experts + e)];
          EXPECT_LE(x, previous);
          previous = x;
          total += std::exp(x) / sum;
        }
        int64_t above = 0;  // every expert above the last one chosen was chosen
        for (int64_t e = 0; e < experts; ++e)
          above += l[static_cast<size_t>(t * experts + e)] > previous;
        EXPECT_LT(above, k);
        for (int64_t i = 0; i < k; ++i) {
          const int32_t e = r.experts.data<int32_t>()[t * k + i];
          const double p = std::exp(l[static_cast<size_t>(t * experts + e)]) / sum;
          // 3 roundings in each term and one for each sum over the experts.
          EXPECT_NEAR(r.weights.at({t, i}), renormalize ? p / total : p, (experts + 8) * 0x1p-24);
        }
      }
    }
  }
}

TEST(Route, TiesGoToTheLowerIndex) {
  const Routing r = route(Tensor::from({1, 2, 2, 1, 2}, {1, 5}), options(4, true));
  EXPECT_EQ(experts_of(r), (std::vector<int32_t>{1, 2, 4, 0}));
  EXPECT_FLOAT_EQ(r.weights.at({0, 0}), r.weights.at({0, 2}));
}

TEST(Route, SpecialValues) {
  const float inf = INFINITY, nan = NAN;
  const Tensor logits = Tensor::from({nan,  1,    nan, 0,   inf, 3,   inf,  nan, -inf, -inf,
                                      -inf, -inf, nan, nan, nan, nan, -inf, 2,   -inf, nan},
                                     {5, 4});
  const Routing r = route(logits, options(2, true));
  EXPECT_EQ(experts_of(r), (std::vector<int32_t>{1, 3, 0, 2, 0, 1, 0, 1, 1, 0}));
  for (float w : to_floats(r.weights)) EXPECT_TRUE(std::isfinite(w));
  EXPECT_FLOAT_EQ(r.weights.at({1, 0}), 0.5f);
  EXPECT_FLOAT_EQ(r.weights.at({3, 1}), 0.5f);
  EXPECT_EQ(r.weights.at({4, 0}), 1.0f);
  EXPECT_EQ(r.weights.at({4, 1}), 0.0f);
}

TEST(Route, StridesThreadsAndEmpty) {
  const Tensor wide = random_tensor({300, 40}, Format::f32, 9);
  const Tensor logits = wide.slice(1, 4, 36);
  const Routing whole = route(logits, {});
  Stream one(Device::cpu(), 1);
  const Routing again = route(logits.contiguous_copy(), {}, one);
  EXPECT_EQ(experts_of(whole), experts_of(again));
  EXPECT_EQ(to_floats(whole.weights), to_floats(again.weights));
  EXPECT_EQ(route(Tensor::empty({0, 8}, Format::f32), {}).experts.shape(), (Shape{0, 2}));
}

TEST(Route, Errors) {
  const Tensor logits = Tensor::zeros({2, 4}, Format::f32);
  expect_error([&] { route(logits, options(5, true)); }, {"top_k is 5", "experts, 4"});
  expect_error([&] { route(logits, options(0, true)); }, {"top_k is 0"});
  expect_error([&] { route(Tensor::zeros({4}, Format::f32), {}); }, {"two dimensions"});
  expect_error([&] { route(Tensor::zeros({2, 4}, Format::int8), {}); }, {"logits are int8"});
}

}  // namespace
}  // namespace halftone
