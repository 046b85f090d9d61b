// A million keys of which none may be missing: data whose bound notices 4,096 of them, wherever
// they lie. Of random keys each weighs a millionth, and half of them move a result by less than the
// roundings of a sum of a million terms allow.
//
// Every 4,093rd key is a needle: it points along one row of queries, whose other needles have their
// values in other columns. A row's weight lies nearly all in its own needles, so that a column of
// its result is the value of one of them or two: where that is missing at least half is gone, and
// the bound is below a third. Any 4,096 keys in a row hold a needle, and 4,093 is odd, so that
// every 2nd or 16th key hits some.
#pragma once
#include <algorithm>

#include "attention/attention_fixture.h"

namespace halftone::test {

inline constexpr int64_t kMillion = (int64_t{1} << 20) + 37;
inline constexpr int64_t kNeedleStep = 4093, kFirstNeedle = 1000;
inline bool is_needle(int64_t key) {
  return key >= kFirstNeedle && (key - kFirstNeedle) % kNeedleStep == 0;
}
// Probabilities in E4M3 end at 2^-18 of the largest, so that a million keys may hide four of weight
// 1: needles are runs of this many keys there, which 4,096 keys in a row hold whole.
inline constexpr int64_t kFp8Run = 64;

// In f32, [1, queries, heads, head_dim] and [1, keys, 1, head_dim or value_dim]: one sequence and
// one head of keys. The rows of queries times heads share the dimensions of a head among them.
struct Needles {
  Tensor q, k, v;
};
inline Needles needles(const Sizes& s, uint64_t seed, int64_t run = 1) {
  const int64_t dim = s.head_dim, value_dim = s.value_dim == 0 ? dim : s.value_dim;
  const int64_t rows = s.queries * s.heads, own = dim / rows;  // dimensions of a row
  // exp(14) to the 2.4 of the other keys' exponentials: 43 needles of a row to 1,048,576 keys.
  const float magnitude =
      std::sqrt(14 * std::sqrt(static_cast<float>(dim)) / static_cast<float>(own));
  Needles n;
  n.q = Tensor::zeros({1, s.queries, s.heads, dim}, Format::f32);
  for (int64_t row = 0; row < rows; ++row) {
    std::fill_n(n.q.data<float>() + row * dim + row * own, own, magnitude);
  }
  // Drawn once and repeated, a period that is prime: a hundred million draws take long.
  const std::vector<float> drawn = random_values(65537, seed);
  const auto noise = [&](int64_t columns) {
    const Tensor x = Tensor::empty({1, s.keys, 1, columns}, Format::f32);
    for (int64_t i = 0; i < x.numel(); ++i) {
      x.data<float>()[i] = drawn[static_cast<size_t>(i) % drawn.size()];
    }
    return x;
  };
  n.k = noise(dim), n.v = noise(value_dim);
  const int64_t step = run == 1 ? kNeedleStep : 4096 - run - 1;
  for (int64_t key = kFirstNeedle, i = 0; key + run <= s.keys; key += step, ++i) {
    for (int64_t j = key; j < key + run; ++j) {
      float *k = n.k.data<float>() + j * dim, *v = n.v.data<float>() + j * value_dim;
      std::fill_n(k, dim, 0.0f), std::fill_n(v, value_dim, 0.0f);
      std::fill_n(k + i % rows * own, own, magnitude);
      v[i / rows % value_dim] = 16;
    }
  }
  return n;
}

inline Case needle_case(const Sizes& s, AttentionMode mode, Format q, Format kv, uint64_t seed) {
  Case c;
  AttentionProblem& p = c.problem;
  p.batch = 1, p.query_length = s.queries, p.key_length = s.keys;
  p.heads = s.heads, p.kv_heads = 1, p.head_dim = s.head_dim;
  p.value_dim = s.value_dim == 0 ? s.head_dim : s.value_dim;
  p.mode = mode, p.q = q, p.k = p.v = kv, p.out = Format::f32, p.lse = true;
  const Needles n = needles(s, seed);
  c.tensors.q = in_format(n.q, q), c.tensors.k = in_format(n.k, kv);
  c.tensors.v = in_format(n.v, kv);
  return c;
}

}  // namespace halftone::test
