#include "engine/tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

namespace halftone {
namespace {

// The definition: join the pair of lowest rank, the leftmost of equals, until none is left.
std::vector<int32_t> by_definition(std::vector<int32_t> symbols, const MergeTable& table) {
  for (;;) {
    size_t best = symbols.size();
    Merge merge;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const Merge m = table.find(symbols[i], symbols[i + 1]);
      if (m.rank >= 0 && (merge.rank < 0 || m.rank < merge.rank)) best = i, merge = m;
    }
    if (best == symbols.size()) return symbols;
    symbols[best] = merge.result;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

MergeTable random_table(std::mt19937& random, int32_t alphabet, int merges, bool equal_ranks) {
  MergeTable table;
  for (int32_t i = 0; i < merges; ++i) {
    const auto any = [&] { return static_cast<int32_t>(random()) & 0x7fffffff; };
    const int32_t left = any() % (alphabet + i), right = any() % (alphabet + i);
    table.insert(left, right, {equal_ranks ? any() % 4 : i, alphabet + i});
  }
  return table;
}

TEST(Bpe, ShortAndLongWordsFollowTheDefinition) {
  std::mt19937 random(5);
  for (int round = 0; round < 1500; ++round) {
    const MergeTable table = random_table(random, 3, 40, round % 2 == 0);
    std::vector<int32_t> symbols(random() % 120);  // both sides of the switch between the ways
    for (int32_t& s : symbols) s = static_cast<int32_t>(random() % 3);
    const std::vector<int32_t> expected = by_definition(symbols, table);
    merge_pairs(symbols, table);
    ASSERT_EQ(symbols, expected) << "round " << round;
  }
}

TEST(Bpe, TableKeepsTheFirstOfEqualPairs) {
  MergeTable table;
  for (int32_t i = 0; i < 5000; ++i) table.insert(i, i * 7, {i, i + 1});
  table.insert(3, 21, {9, 9});
  for (int32_t i = 0; i < 5000; ++i) ASSERT_EQ(table.find(i, i * 7).rank, i);
  EXPECT_LT(table.find(7, 3).rank, 0);
}

// A million symbols in one word: seconds would mean quadratic time (hours, in fact).
TEST(Bpe, OneLongWordIsNotQuadratic) {
  std::mt19937 random(6);
  MergeTable table;  // all pairs of letters, then pairs of pairs
  for (int32_t i = 0; i < 26 * 26; ++i) table.insert(i / 26, i % 26, {i, 26 + i});
  for (int32_t i = 0; i < 100'000; ++i) {
    const auto pair = [&] { return 26 + static_cast<int32_t>(random() % 676); };
    table.insert(pair(), pair(), {676 + i, 702 + i});
  }
  std::vector<int32_t> symbols(1'000'000);
  for (int32_t& s : symbols) s = static_cast<int32_t>(random() % 26);
  const auto start = std::chrono::steady_clock::now();
  merge_pairs(symbols, table);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  EXPECT_LT(symbols.size(), 600'000u);
  EXPECT_LT(elapsed.count(), 30);  // about 0.4 s; sanitizers and busy machines take longer
}

}  // namespace
}  // namespace halftone
