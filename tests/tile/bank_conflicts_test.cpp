#include "tile/bank_conflicts.h"

#include <gtest/gtest.h>

#include <random>

#include "sim/counters.h"
#include "tile/ldmatrix.h"
#include "tile/swizzle.h"

namespace halftone::tile {
namespace {

template <class Rule>
uint32_t count(uint32_t bytes, Rule rule, uint32_t mask = ~0u) {
  uint32_t addresses[32];
  for (uint32_t lane = 0; lane < 32; ++lane) addresses[lane] = rule(lane);
  return wavefronts(addresses, mask, bytes);
}

TEST(BankConflicts, FourByteAccesses) {
  EXPECT_EQ(count(4, [](uint32_t l) { return l * 4; }), 1u);
  EXPECT_EQ(count(4, [](uint32_t) { return 64u; }), 1u);  // all on one word: shared
  EXPECT_EQ(count(4, [](uint32_t l) { return l * 8; }), 2u);
  EXPECT_EQ(count(4, [](uint32_t l) { return l * 128; }), 32u);
  EXPECT_EQ(count(4, [](uint32_t l) { return l * 132; }), 1u);  // a word of padding
  EXPECT_EQ(count(4, [](uint32_t l) { return l % 2 * 128; }), 2u);
}

TEST(BankConflicts, SmallAccessesShareWords) {
  EXPECT_EQ(count(2, [](uint32_t l) { return l * 2; }), 1u);
  EXPECT_EQ(count(1, [](uint32_t l) { return l; }), 1u);
  EXPECT_EQ(count(1, [](uint32_t l) { return l * 128; }), 32u);
}

TEST(BankConflicts, WideAccessesGoInPhases) {
  EXPECT_EQ(count(8, [](uint32_t l) { return l * 8; }), 2u);
  EXPECT_EQ(count(16, [](uint32_t l) { return l * 16; }), 4u);
  EXPECT_EQ(count(16, [](uint32_t l) { return l * 128; }), 32u);    // 8-way in each phase
  EXPECT_EQ(count(16, [](uint32_t l) { return l * 144; }), 4u);     // 16 bytes of padding
  EXPECT_EQ(count(16, [](uint32_t l) { return l * 32; }), 8u);      // every other chunk
  EXPECT_EQ(count(16, [](uint32_t l) { return l / 8 * 16; }), 4u);  // one address a phase
}

TEST(BankConflicts, LanesOutsideTheMaskCostNothing) {
  const auto rows = [](uint32_t l) { return l * 128; };
  EXPECT_EQ(count(4, rows, 1), 1u);
  EXPECT_EQ(count(4, rows, 0xF), 4u);
  EXPECT_EQ(count(4, rows, 0), 0u);
}

// `halftone inspect` and the simulator's counters count the same.
TEST(BankConflicts, TheSimulatorAgrees) {
  std::mt19937 random(7);
  for (const uint32_t bytes : {1, 2, 4, 8, 16}) {
    for (int i = 0; i < 2000; ++i) {
      uint32_t addresses[32];
      const uint32_t range = 64u << i % 8;
      for (uint32_t& a : addresses) a = random() % range / bytes * bytes;
      const uint32_t mask = i % 3 == 0 ? static_cast<uint32_t>(random()) : ~0u;
      ASSERT_EQ(wavefronts(addresses, mask, bytes), sim::wavefronts(addresses, mask, bytes))
          << bytes << " bytes, case " << i;
    }
  }
}

// Where ldmatrix finds the fragment of A, in rows of `pitch` bytes.
uint32_t ldmatrix_wavefronts(Swizzle s, uint32_t pitch) {
  uint32_t addresses[32];
  for (int lane = 0; lane < 32; ++lane) {
    const RowChunk at = ldmatrix_a(lane);
    addresses[lane] =
        swizzled(s, static_cast<uint32_t>(at.row) * pitch + static_cast<uint32_t>(at.chunk) * 16);
  }
  return wavefronts(addresses, ~0u, 16);
}

TEST(BankConflicts, LdmatrixOfKnownLayouts) {
  EXPECT_EQ(ldmatrix_wavefronts(Swizzle::none, 128), 32u);  // 8-way
  EXPECT_EQ(ldmatrix_wavefronts(Swizzle::none, 64), 16u);   // 4-way
  EXPECT_EQ(ldmatrix_wavefronts(Swizzle::none, 32), 8u);    // 2-way
  EXPECT_EQ(ldmatrix_wavefronts(Swizzle::none, 144), 4u);   // 16 bytes of padding: none
  EXPECT_EQ(ldmatrix_wavefronts(Swizzle::b128, 128), 4u);
  EXPECT_EQ(ldmatrix_wavefronts(Swizzle::b64, 64), 4u);
  EXPECT_EQ(ldmatrix_wavefronts(Swizzle::b32, 32), 4u);
  EXPECT_EQ(ldmatrix_wavefronts(Swizzle::b64, 128), 8u);  // the wrong swizzle: 2-way
}

}  // namespace
}  // namespace halftone::tile
