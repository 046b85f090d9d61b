#include "tile/swizzle.h"

#include <gtest/gtest.h>

#include <set>

namespace halftone::tile {
namespace {

constexpr Swizzle kAll[] = {Swizzle::none, Swizzle::b32,         Swizzle::b64,
                            Swizzle::b128, Swizzle::b128_atom32, Swizzle::b128_atom64};

// Single addresses of the patterns, by hand: the second line of 128 bytes and the last.
static_assert(swizzled(Swizzle::b128, 0x080) == 0x090);
static_assert(swizzled(Swizzle::b128, 0x3F0) == 0x380);
static_assert(swizzled(Swizzle::b128, 0x400) == 0x400);
static_assert(swizzled(Swizzle::b64, 0x080) == 0x090);
static_assert(swizzled(Swizzle::b64, 0x1F0) == 0x1C0);
static_assert(swizzled(Swizzle::b32, 0x080) == 0x090);
static_assert(swizzled(Swizzle::b32, 0x0F0) == 0x0E0);
static_assert(swizzled(Swizzle::b128_atom32, 0x080) == 0x0A0);
static_assert(swizzled(Swizzle::b128_atom32, 0x1E0) == 0x180);
static_assert(swizzled(Swizzle::b128_atom64, 0x080) == 0x0C0);
static_assert(swizzled(Swizzle::none, 0x3F0) == 0x3F0);

TEST(Swizzle, IsItsOwnInverseAndKeepsLinesAndAtoms) {
  for (const Swizzle s : kAll) {
    std::set<uint32_t> seen;
    for (uint32_t a = 0; a < 4096; ++a) {
      const uint32_t b = swizzled(s, a);
      ASSERT_EQ(swizzled(s, b), a) << name(s);
      ASSERT_EQ(a / span(s), b / span(s)) << name(s) << ": leaves its line";
      ASSERT_EQ(a % atom_bytes(s), b % atom_bytes(s)) << name(s) << ": tears an atom";
      ASSERT_EQ(swizzled(s, a + pattern_bytes(s)), b + pattern_bytes(s)) << name(s);
      seen.insert(b);
    }
    EXPECT_EQ(seen.size(), 4096u);
  }
}

TEST(Swizzle, PatternIsNoShorter) {
  for (const Swizzle s : kAll) {
    if (s == Swizzle::none) continue;
    bool differs = false;
    for (uint32_t a = 0, half = pattern_bytes(s) / 2; a < half; ++a)
      differs |= swizzled(s, a + half) != swizzled(s, a) + half;
    EXPECT_TRUE(differs) << name(s);
  }
}

TEST(Swizzle, ChunksAreTheSameMap) {
  for (const Swizzle s : kAll) {
    for (uint32_t row = 0; row < 64; ++row) {
      for (uint32_t chunk = 0; chunk < span(s) / 16; ++chunk) {
        const uint32_t offset = chunk_offset(s, row, chunk);
        ASSERT_EQ(offset, swizzled(s, row * span(s) + chunk * 16));
        ASSERT_EQ(offset, row * span(s) + ((chunk * 16) ^ row_key(s, row)));
      }
    }
  }
}

// What a swizzle is for: chunk c of eight neighbouring lines lies in eight different bank groups.
TEST(Swizzle, EightLinesFillAllBanks) {
  for (const Swizzle s : {Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128}) {
    for (uint32_t chunk = 0; chunk < span(s) / 16; ++chunk) {
      std::set<uint32_t> groups;
      for (uint32_t row = 0; row < 8; ++row) groups.insert(chunk_offset(s, row, chunk) / 16 % 8);
      EXPECT_EQ(groups.size(), 8u) << name(s) << " chunk " << chunk;
    }
  }
}

}  // namespace
}  // namespace halftone::tile
