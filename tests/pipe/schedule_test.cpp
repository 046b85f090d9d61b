#include "pipe/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

namespace halftone::pipe {
namespace {

static_assert(GemmGrid{4, 4, 1, 2}.tile(0) == GemmTile{0, 0, 0});
static_assert(GemmGrid{4, 4, 1, 2}.tile(1) == GemmTile{1, 0, 0});
static_assert(GemmGrid{4, 4, 1, 2}.tile(2) == GemmTile{0, 1, 0});
static_assert(GemmGrid{4, 4, 1, 2}.tile(8) == GemmTile{2, 0, 0});
static_assert(GemmGrid{5, 3, 2, 2}.tile(14) == GemmTile{4, 2, 0});  // a group of one row
static_assert(GemmGrid{5, 3, 2, 2}.tile(15) == GemmTile{0, 0, 1});
static_assert(AttentionGrid{3, 2, 1, true}.tile(0) == AttentionTile{2, 0, 0});
static_assert(AttentionGrid{3, 2, 2, false}.tile(7) == AttentionTile{1, 1, 1});

using Key = std::tuple<uint32_t, uint32_t, uint32_t>;
Key key(const GemmTile& t) { return {t.m, t.n, t.batch}; }
Key key(const AttentionTile& t) { return {t.query, t.head, t.sequence}; }

template <class Grid, class Make>
void expect_each_tile_once(const Grid& grid, uint32_t blocks, Make make, uint32_t item = 1) {
  std::set<Key> seen;
  uint32_t taken = 0, least = ~0u, most = 0;
  for (uint32_t block = 0; block < blocks; ++block) {
    auto schedule = make(block);
    uint32_t own = 0;
    for (typename Grid::Tile t; schedule.next(t); ++own) seen.insert(key(t));
    typename Grid::Tile t;
    EXPECT_FALSE(schedule.next(t)) << "a schedule that has ended stays ended";
    taken += own, least = std::min(least, own), most = std::max(most, own);
  }
  EXPECT_EQ(taken, grid.count());
  EXPECT_EQ(seen.size(), grid.count());
  EXPECT_LE(most - least, item);  // tiles that blocks take at once
}

// Halves of a tile are two tiles here, and whole ones both.
TEST(Schedule, HalvedTilesCoverTheirHalves) {
  using Part = TailTile::Part;
  for (const uint32_t halved : {0, 1, 5, 35}) {
    const TailSplitGrid grid{{5, 7, 1, 2}, halved};
    for (const uint32_t blocks : {1, 13, 132}) {
      std::multiset<Key> seen;
      uint32_t halves = 0;
      for (uint32_t b = 0; b < blocks; ++b) {
        PersistentSchedule<TailSplitGrid> schedule(grid, b, blocks);
        for (TailTile t; schedule.next(t);) {
          halves += t.part != Part::whole ? 1 : 0;
          if (t.part != Part::second) seen.insert({t.m, 2 * t.n, t.batch});
          if (t.part != Part::first) seen.insert({t.m, 2 * t.n + 1, t.batch});
        }
      }
      EXPECT_EQ(halves, 2 * halved);
      EXPECT_EQ(seen.size(), 70);
      EXPECT_EQ(std::set<Key>(seen.begin(), seen.end()).size(), 70);
    }
  }
}

TEST(Schedule, EachProductTileOnce) {
  for (const uint32_t m : {1, 5, 16}) {
    for (const uint32_t n : {1, 7, 32}) {
      for (const uint32_t group : {1, 2, 8, 100}) {
        const GemmGrid grid{m, n, 2, group};
        for (uint32_t i = 0; i < grid.count(); ++i) {
          const GemmTile t = grid.tile(i);
          ASSERT_TRUE(t.m < m && t.n < n && t.batch < 2);
        }
        for (const uint32_t blocks : {1, 13, 132}) {
          expect_each_tile_once(grid, blocks, [&](uint32_t b) {
            return PersistentSchedule<GemmGrid>(grid, b, blocks);
          });
        }
      }
    }
  }
}

struct Pairs {
  AttentionGrid grid;
  PairedSchedule schedule;
  bool next(AttentionTile& t) { return schedule.next(grid, t); }
};

TEST(Schedule, EachAttentionTileOnce) {
  for (const AttentionGrid grid :
       {AttentionGrid{9, 5, 3, false}, AttentionGrid{9, 5, 3, true},
        AttentionGrid{8, 5, 3, false, 4}, AttentionGrid{9, 5, 3, true, 1},
        AttentionGrid{1, 5, 3, false, 99}}) {
    for (const uint32_t blocks : {1, 4, 7, 200}) {
      expect_each_tile_once(
          grid, blocks,
          [&](uint32_t b) {
            return Pairs{grid, PairedSchedule(b, blocks)};
          },
          2);
      expect_each_tile_once(grid, blocks, [&](uint32_t b) {
        return PersistentSchedule<AttentionGrid>(grid, b, blocks);
      });
    }
  }
}

// All tiles of the first pairs of head and sequence come before those of the next.
TEST(Schedule, SectionsOfPairsComeOneAfterTheOther) {
  const AttentionGrid grid{6, 4, 2, false, 3};
  uint32_t before = 0;
  for (uint32_t i = 0; i < grid.count(); ++i) {
    const AttentionTile t = grid.tile(i);
    const uint32_t section = (t.sequence * 4 + t.head) / 3;
    EXPECT_GE(section, before);
    before = section;
  }
  EXPECT_EQ(before, 2u);
}

// Under a causal mask every two tiles are as long as every other two.
TEST(Schedule, PairsAreOfOneLength) {
  const AttentionGrid grid{8, 3, 2, false, 2};
  Pairs schedule{grid, PairedSchedule(0, 1)};
  EXPECT_EQ(PairedSchedule::items(grid), 4u * 6u);
  for (AttentionTile a, b; schedule.next(a) && schedule.next(b);) {
    EXPECT_EQ(a.query + b.query, 7u);
    EXPECT_GT(a.query, b.query);
    EXPECT_EQ(a.head, b.head);
    EXPECT_EQ(a.sequence, b.sequence);
  }
}

TEST(Schedule, CountsWhatIsLeft) {
  const GemmGrid grid{7, 3};
  for (uint32_t block = 0; block < 8; ++block) {
    PersistentSchedule<GemmGrid> schedule(grid, block, 8);
    uint32_t left = schedule.left();
    for (GemmTile t; schedule.next(t);) EXPECT_EQ(schedule.left(), --left);
    EXPECT_EQ(left, 0u);
  }
}

TEST(Schedule, NoTilesNoWork) {
  GemmTile t;
  EXPECT_FALSE((PersistentSchedule<GemmGrid>({0, 5}, 0, 4).next(t)));
  EXPECT_FALSE((PersistentSchedule<GemmGrid>({5, 0}, 0, 4).next(t)));
  EXPECT_FALSE((PersistentSchedule<GemmGrid>({5, 5, 0}, 0, 4).next(t)));
}

// One wave of 132 blocks over 64 x 64 tiles: the operand panels it reads.
uint32_t panels_of_a_wave(uint32_t group) {
  const GemmGrid grid{64, 64, 1, group};
  std::set<uint32_t> rows, columns;
  for (uint32_t i = 0; i < 132; ++i) {
    rows.insert(grid.tile(i).m);
    columns.insert(grid.tile(i).n);
  }
  return static_cast<uint32_t>(rows.size() + columns.size());
}

TEST(Schedule, GroupsShareOperands) {
  EXPECT_EQ(panels_of_a_wave(1), 3u + 64u);  // row by row: all columns
  EXPECT_EQ(panels_of_a_wave(8), 8u + 17u);  // 8 rows, 17 columns
  EXPECT_EQ(panels_of_a_wave(16), 16u + 9u);
}

// The time until the last block is done, in key tiles, of causal attention.
template <class Make>
uint32_t makespan(const AttentionGrid& grid, uint32_t blocks, Make make) {
  uint32_t longest = 0;
  for (uint32_t block = 0; block < blocks; ++block) {
    auto schedule = make(grid, block, blocks);
    uint32_t work = 0;
    for (AttentionTile t; schedule.next(t);) work += t.query + 1;
    longest = std::max(longest, work);
  }
  return longest;
}

TEST(Schedule, PairsEvenOutCausalWork) {
  AttentionGrid grid{64, 8, 1, true};
  const uint32_t blocks = 132;
  const uint32_t total = 8 * 64 * 65 / 2, fair = (total + blocks - 1) / blocks;
  const auto pairs = [](const AttentionGrid& g, uint32_t b, uint32_t n) {
    return Pairs{g, PairedSchedule(b, n)};
  };
  const auto plain = [](const AttentionGrid& g, uint32_t b, uint32_t n) {
    return PersistentSchedule<AttentionGrid>(g, b, n);
  };
  const uint32_t paired = makespan(grid, blocks, pairs);
  EXPECT_LE(paired, fair + fair / 10) << "fair share " << fair;
  EXPECT_GT(makespan(grid, blocks, plain), paired);
  grid.longest_first = false;
  EXPECT_GT(makespan(grid, blocks, plain), paired);
}

}  // namespace
}  // namespace halftone::pipe
