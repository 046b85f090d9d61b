// What the tests of a million keys on GPUs lean on: results that miss keys are out of the bound.
#include "attention/million_keys.h"
#include "support/sanitized.h"

#include <functional>

namespace halftone::test {
namespace {

// The result of a kernel without an error that leaves out the keys for which `missing` holds.
std::vector<float> without(const Case& c, const std::function<bool(int64_t)>& missing) {
  const AttentionProblem& p = c.problem;
  const int64_t dim = p.head_dim;
  const double scale = 1 / std::sqrt(static_cast<double>(dim));
  const std::vector<float> q = values_of(c.tensors.q), k = values_of(c.tensors.k);
  const std::vector<float> v = values_of(c.tensors.v);
  std::vector<float> out;
  for (int64_t row = 0; row < p.heads; ++row) {
    double norm = 0;
    std::vector<double> o(static_cast<size_t>(dim));
    for (int64_t j = 0; j < p.key_length; ++j) {
      if (missing(j)) continue;
      double score = 0;
      for (int64_t d = 0; d < dim; ++d) {
        const float x = q[static_cast<size_t>(row * dim + d)];
        if (x != 0) score += double{x} * k[static_cast<size_t>(j * dim + d)];
      }
      const double weight = std::exp(score * scale - 14);
      norm += weight;
      for (int64_t d = 0; d < dim; ++d) {
        o[static_cast<size_t>(d)] += weight * v[static_cast<size_t>(j * dim + d)];
      }
    }
    for (const double x : o) out.push_back(static_cast<float>(x / norm));
  }
  return out;
}

TEST(MillionKeys, MissingKeysBreakTheBound) {
  if (kSanitized) GTEST_SKIP() << "seconds of sums in f64, which sanitizers see nothing in";
  const Case c = needle_case({1, 1, kMillion, 4, 1, 64}, {}, Format::bf16, Format::bf16, 5);
  const Bounded reference = bounded(c);
  const auto fits = [&](const std::function<bool(int64_t)>& missing) {
    return bool{within(without(c, missing), reference.out, reference.out_bound)};
  };
  EXPECT_TRUE(fits([](int64_t) { return false; }));
  EXPECT_FALSE(fits([](int64_t j) { return j >= kMillion / 2; })) << "the last half";
  EXPECT_FALSE(fits([](int64_t j) { return j % 2 == 1; })) << "every second key";
  EXPECT_FALSE(fits([](int64_t j) { return j < kMillion / 16; })) << "the first of 16 splits";
  EXPECT_FALSE(fits([](int64_t j) { return j % 16 == 5; })) << "every 16th key";
  for (const int64_t from : {int64_t{0}, int64_t{500'000}, kMillion - 4096}) {
    EXPECT_FALSE(fits([&](int64_t j) { return j >= from && j < from + 4096; })) << from;
  }
}

// The same of the tensor cores' E4M3, with the bound of one row: whole runs of needles.
TEST(MillionKeys, MissingRunsBreakTheBoundOfFp8) {
  if (kSanitized) GTEST_SKIP() << "as MissingKeysBreakTheBound";
  const Sizes sizes{1, 64, kMillion, 1, 1, 64};
  const Needles all = needles(sizes, 2, kFp8Run);
  Case c;
  AttentionProblem& p = c.problem;
  p.batch = p.query_length = p.heads = p.kv_heads = 1, p.key_length = kMillion;
  p.head_dim = p.value_dim = 64;
  p.q = p.k = p.v = Format::fp8_e4m3, p.mode = {Format::fp8_e4m3, Format::fp8_e4m3};
  const Tensor row = all.q.slice(1, 7, 8).contiguous_copy();
  const Bounded reference =
      bounded_attention(p, to_floats(row), to_floats(all.k), to_floats(all.v), {}, {}, {true, 192});
  c.tensors.q = row, c.tensors.k = all.k, c.tensors.v = all.v;
  const auto fits = [&](int64_t from, int64_t count) {
    const auto missing = [&](int64_t j) { return j >= from && j < from + count; };
    return bool{within(without(c, missing), reference.out, reference.out_bound)};
  };
  EXPECT_TRUE(fits(0, 0));
  EXPECT_FALSE(fits(0, kMillion / 2));
  EXPECT_FALSE(fits(kMillion / 2, kMillion / 2));
  // Of any 4,096 keys those that hold a run of this row.
  const int64_t own = kFirstNeedle + 7 * (4096 - kFp8Run - 1);
  EXPECT_FALSE(fits(own - 2000, 4096));
}

// Any 4,096 keys in a row hold a needle.
TEST(MillionKeys, NeedlesLieClose) {
  int64_t last = -1, most = 0;
  for (int64_t key = 0; key < kMillion; ++key) {
    if (!is_needle(key)) continue;
    most = std::max(most, key - last), last = key;
  }
  EXPECT_LE(most, 4096);
  EXPECT_LE(kMillion - last, 4096);
}

}  // namespace
}  // namespace halftone::test
