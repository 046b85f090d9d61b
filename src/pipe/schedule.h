// Which tiles of a problem a block works on, and in which order.
//
// A schedule is a value that every role of a block copies and walks by itself: the roles agree on
// the tiles because they compute the same sequence, and nothing is exchanged. A grid numbers the
// tiles of a problem so that neighbours in the numbering share operands in the L2.
//
//   PersistentSchedule schedule(grid, hw::block_index().x, hw::grid_size().x);
//   for (GemmTile t; schedule.next(t);) ...
//
// With clusters the "block" of a schedule is the cluster and its number.
#pragma once
#include "hw/target.h"

namespace halftone::pipe {

struct GemmTile {
  uint32_t m = 0, n = 0, batch = 0;  // in tiles
  bool operator==(const GemmTile&) const = default;
};

// The output tiles of a GEMM, rasterised in groups: `group` tile rows are walked column by column,
// so that a wave of W CTAs with consecutive indices reads about `group` row panels and W / group
// column panels, and not W panels of one operand.
struct GemmGrid {
  using Tile = GemmTile;
  uint32_t m_tiles = 0, n_tiles = 0, batches = 1;
  uint32_t group = 8;

  HT_HOST_DEVICE uint32_t count() const { return m_tiles * n_tiles * batches; }
  HT_HOST_DEVICE GemmTile tile(uint32_t index) const {
    const uint32_t per_batch = m_tiles * n_tiles, inside = index % per_batch;
    const uint32_t per_group = group * n_tiles, first = inside / per_group * group;
    const uint32_t rows = m_tiles - first < group ? m_tiles - first : group;
    const uint32_t place = inside % per_group;
    return {first + place % rows, place / rows, index / per_batch};
  }
};

// A GemmGrid with tail-wave splitting: the last `tail_tiles` tiles are split in two halves along n.
// CTAs that take equal tiles all wait for the last wave, however few of them have a tile in it;
// with half tiles a wave of few tiles ends in half the time.
struct TailTile : GemmTile {
  enum class Part : uint32_t { whole, first, second };
  Part part = Part::whole;
};
struct TailSplitGrid {
  using Tile = TailTile;
  GemmGrid grid;
  uint32_t tail_tiles = 0;

  HT_HOST_DEVICE uint32_t count() const { return grid.count() + tail_tiles; }
  HT_HOST_DEVICE TailTile tile(uint32_t index) const {
    const uint32_t whole = grid.count() - tail_tiles;
    if (index < whole) return {grid.tile(index), TailTile::Part::whole};
    const uint32_t half = index - whole;
    return {grid.tile(whole + half / 2),
            half % 2 == 0 ? TailTile::Part::first : TailTile::Part::second};
  }
};

// The tiles of attention: one per query tile, head and sequence. Pairs of head and sequence are
// worked on `section` at a time, few enough for their keys and values to stay in the L2; in a
// section pairs are innermost, so that heads that share keys run together. With causal masks a
// later query tile has more keys: `longest_first` starts with those, and the short ones fill the
// gaps.
struct AttentionTile {
  uint32_t query = 0, head = 0, sequence = 0;
  bool operator==(const AttentionTile&) const = default;
};
struct AttentionGrid {
  using Tile = AttentionTile;
  uint32_t query_tiles = 0, heads = 0, sequences = 1;
  bool longest_first = false;
  uint32_t section = 0;  // pairs; 0: all

  HT_HOST_DEVICE uint32_t count() const { return query_tiles * heads * sequences; }
  HT_HOST_DEVICE AttentionTile tile(uint32_t index) const {
    const uint32_t pairs = heads * sequences, wanted = section == 0 ? pairs : section;
    const uint32_t first = index / (wanted * query_tiles) * wanted;
    const uint32_t width = pairs - first < wanted ? pairs - first : wanted;
    const uint32_t inside = index - first * query_tiles;
    const uint32_t query = inside / width, pair = first + inside % width;
    return {longest_first ? query_tiles - 1 - query : query, pair % heads, pair / heads};
  }
};

// Each of `blocks` resident blocks takes every blocks-th tile.
template <class Grid>
class PersistentSchedule {
 public:
  HT_HOST_DEVICE PersistentSchedule(const Grid& grid, uint32_t block, uint32_t blocks)
      : grid_(grid), next_(block), blocks_(blocks) {}
  HT_HOST_DEVICE bool next(typename Grid::Tile& tile) {
    if (next_ >= grid_.count()) return false;
    tile = grid_.tile(next_);
    next_ += blocks_;
    return true;
  }
  // How many tiles this block still gets.
  HT_HOST_DEVICE uint32_t left() const {
    return next_ >= grid_.count() ? 0 : (grid_.count() - next_ + blocks_ - 1) / blocks_;
  }

 private:
  Grid grid_;
  uint32_t next_, blocks_;
};

// The tiles of attention two by two, the first with the last, so that under a causal mask every
// item is as long as the others: blocks that take every blocks-th item end together. A middle tile
// is an item of its own. The grid is given each time: what a kernel's parameters say need not be
// kept in registers.
class PairedSchedule {
 public:
  HT_HOST_DEVICE static uint32_t items(const AttentionGrid& grid) {
    return half_grid(grid).count();
  }
  HT_HOST_DEVICE PairedSchedule(uint32_t block, uint32_t blocks) : item_(block), blocks_(blocks) {}
  HT_HOST_DEVICE bool next(const AttentionGrid& grid, AttentionTile& tile) {
    if (item_ >= items(grid)) return false;
    tile = half_grid(grid).tile(item_);
    const uint32_t other = grid.query_tiles - 1 - tile.query;  // the longer one, and the first
    second_ = !second_ && other != tile.query;
    if (second_) {
      tile.query = other;
    } else {
      item_ += blocks_;
    }
    return true;
  }

 private:
  HT_HOST_DEVICE static AttentionGrid half_grid(AttentionGrid grid) {
    grid.query_tiles = (grid.query_tiles + 1) / 2;
    return grid;
  }
  uint32_t item_, blocks_;
  bool second_ = false;  // of the item, the other tile is still to come
};

}  // namespace halftone::pipe
