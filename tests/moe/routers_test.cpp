// The routers of DeepSeek-V3 and V4, Llama 4 and gpt-oss, and the permutation.
#include <algorithm>
#include <cmath>
#include <utility>

#include "halftone/moe.h"
#include "support/compare.h"

namespace halftone {
namespace {

using namespace test;

std::vector<int32_t> integers(const Tensor& t) {
  return {t.data<int32_t>(), t.data<int32_t>() + t.numel()};
}

double score(Scoring scoring, double x) {
  return scoring == Scoring::sigmoid ? 1 / (1 + std::exp(-x)) : std::sqrt(std::log1p(std::exp(x)));
}

// Worked out here as the models do: bias for the choice, weights from the scores alone.
TEST(Routers, BiasGroupsAndScale) {
  const int64_t tokens = 40, experts = 32;
  for (Scoring scoring : {Scoring::sigmoid, Scoring::sqrt_softplus}) {
    for (int groups : {1, 8}) {
      const Tensor logits = random_tensor({tokens, experts}, Format::f32, 5);
      const Tensor bias = random_tensor({experts}, Format::f32, 6);
      RoutingOptions o;
      o.top_k = 6, o.scoring = scoring, o.scale = 2.5f;
      o.groups = groups, o.groups_kept = groups / 2 + 1, o.group_top = 2;
      if (groups == 1) o.groups_kept = 1;
      const Routing r = route(RoutingTensors{logits, bias, {}, {}}, o);
      const std::vector<float> l = to_floats(logits), b = to_floats(bias);
      for (int64_t t = 0; t < tokens; ++t) {
        std::vector<double> s, key;
        for (int64_t e = 0; e < experts; ++e) {
          s.push_back(score(scoring, l[static_cast<size_t>(t * experts + e)]));
          key.push_back(s.back() + b[static_cast<size_t>(e)]);
        }
        const size_t size = key.size() / static_cast<size_t>(groups);
        std::vector<std::pair<double, size_t>> ranked;
        for (size_t g = 0; g < static_cast<size_t>(groups); ++g) {
          std::vector<double> of(key.begin() + static_cast<int64_t>(g * size),
                                 key.begin() + static_cast<int64_t>((g + 1) * size));
          std::sort(of.rbegin(), of.rend());
          ranked.emplace_back(-(of[0] + of[1]), g);
        }
        std::sort(ranked.begin(), ranked.end());
        std::vector<std::pair<double, int32_t>> best;
        for (int i = 0; i < o.groups_kept; ++i) {
          const size_t g = ranked[static_cast<size_t>(i)].second;
          for (size_t e = g * size; e < (g + 1) * size; ++e) {
            best.emplace_back(-key[e], static_cast<int32_t>(e));
          }
        }
        std::sort(best.begin(), best.end());
        double sum = 0;
        for (int i = 0; i < o.top_k; ++i) {
          sum += s[static_cast<size_t>(best[static_cast<size_t>(i)].second)];
        }
        for (int64_t i = 0; i < o.top_k; ++i) {
          const int32_t e = best[static_cast<size_t>(i)].second;
          EXPECT_EQ(r.experts.data<int32_t>()[t * o.top_k + i], e);
          // exp and log within an ulp or two, the sum of 6, quotient, scale.
          EXPECT_NEAR(r.weights.at({t, i}), s[static_cast<size_t>(e)] / sum * 2.5,
                      16 * 0x1p-24 * 2.5);
        }
      }
      const Routing reference = route_reference({logits, bias, {}, {}}, o);
      EXPECT_EQ(integers(reference.experts), integers(r.experts));
      for (int64_t i = 0; i < r.weights.numel(); ++i) {
        EXPECT_NEAR(r.weights.data<float>()[i], reference.weights.data<float>()[i], 16 * 0x1p-22);
      }
    }
  }
}

TEST(Routers, Llama4AndGptOss) {
  const Tensor logits = Tensor::from({0.5f, 2.0f, -1.0f, 1.0f}, {1, 4});
  RoutingOptions o;
  o.top_k = 1, o.scoring = Scoring::sigmoid, o.renormalize = false;
  const Routing llama = route(logits, o);
  EXPECT_EQ(integers(llama.experts), (std::vector<int32_t>{1}));
  EXPECT_NEAR(llama.weights.at({0, 0}), 1 / (1 + std::exp(-2.0)), 1e-7);
  o.top_k = 2, o.scoring = Scoring::softmax, o.renormalize = true;
  const Routing gpt = route(logits, o);  // softmax over 2.0 and 1.0
  EXPECT_EQ(integers(gpt.experts), (std::vector<int32_t>{1, 3}));
  EXPECT_NEAR(gpt.weights.at({0, 0}), 1 / (1 + std::exp(-1.0)), 1e-6);
}

TEST(Routers, HashTable) {
  const Tensor logits = random_tensor({3, 8}, Format::bf16, 7);
  const int64_t table[] = {7, 1, 0, 2, 5, 3};
  const Tensor ids = Tensor::from<int32_t>(std::vector<int32_t>{2, 0, 2}, {3}, Format::i32);
  const Tensor rows = Tensor::copy_of(table, sizeof table, {3, 2}, Format::i64);
  RoutingOptions o;
  o.scoring = Scoring::sqrt_softplus, o.scale = 1.5f;
  const Routing r = route(RoutingTensors{logits, {}, ids, rows}, o);
  EXPECT_EQ(integers(r.experts), (std::vector<int32_t>{5, 3, 7, 1, 5, 3}));
  for (int64_t t = 0; t < 3; ++t) {
    const double a = score(Scoring::sqrt_softplus, logits.at({t, t == 1 ? 7 : 5}));
    const double b = score(Scoring::sqrt_softplus, logits.at({t, t == 1 ? 1 : 3}));
    EXPECT_NEAR(r.weights.at({t, 0}), 1.5 * a / (a + b), 1e-6);
  }
  expect_error([&] { route(RoutingTensors{logits, {}, ids, {}}, o); }, {"only one of them"});
  const Tensor beyond = Tensor::from<int32_t>(std::vector<int32_t>{2, 3, 2}, {3}, Format::i32);
  expect_error(
      [&] {
        route(RoutingTensors{logits, {}, beyond, rows}, o);
      },
      {"token_ids[1] is 3", "3 rows"});
  rows.data<int64_t>()[5] = 8;
  expect_error(
      [&] {
        route(RoutingTensors{logits, {}, ids, rows}, o);
      },
      {"expert_table[2, 1] is 8"});
}

TEST(Routers, SpecialValuesAndErrors) {
  RoutingOptions o;
  o.scoring = Scoring::sigmoid;
  const Tensor logits = Tensor::from({NAN, -INFINITY, NAN, -INFINITY}, {1, 4});
  const Routing none = route(logits, o);  // all scores 0: nothing to renormalise
  EXPECT_EQ(integers(none.experts), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(to_floats(none.weights), (std::vector<float>{0, 0}));
  const Tensor bias = Tensor::from({NAN, -INFINITY, NAN, 1}, {4});
  EXPECT_EQ(integers(route(RoutingTensors{logits, bias, {}, {}}, o).experts),
            (std::vector<int32_t>{3, 0}));
  o.groups = 3;
  expect_error([&] { route(logits, o); }, {"groups is 3", "experts, 4"});
  o.groups = 4;
  expect_error([&] { route(logits, o); }, {"group_top is 2", "of a group, 1"});
  o.group_top = 1;
  expect_error([&] { route(logits, o); }, {"top_k is 2", "have only 1"});
  o.groups = 1;
  expect_error(
      [&] {
        route(RoutingTensors{logits, Tensor::from({1, 2}, {2}), {}, {}}, o);
      },
      {"selection_bias is f32 [2]", "f32 [4]"});
}

TEST(Permute, CountsOffsetsAndOrder) {
  const Tensor chosen =
      Tensor::from<int32_t>(std::vector<int32_t>{2, 0, 0, 3, 2, 0}, {3, 2}, Format::i32);
  const Permutation p = permute(chosen, 5);
  EXPECT_EQ(integers(p.counts), (std::vector<int32_t>{3, 0, 2, 1, 0}));
  EXPECT_EQ(integers(p.offsets), (std::vector<int32_t>{0, 3, 3, 5, 6, 6}));
  EXPECT_EQ(integers(p.order), (std::vector<int32_t>{1, 2, 5, 0, 4, 3}));
  EXPECT_EQ(integers(p.row_of), (std::vector<int32_t>{3, 0, 1, 5, 4, 2}));
  EXPECT_EQ(integers(permute(chosen.slice(0, 0, 0), 2).offsets), (std::vector<int32_t>{0, 0, 0}));
  expect_error([&] { permute(chosen, 3); }, {"expert_ids[1, 1] is 3", "3 experts"});
}

}  // namespace
}  // namespace halftone
