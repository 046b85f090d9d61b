// Tiles of attention handed out by a counter in global memory: a block that is done takes the next,
// so that lengths which no host knows even out. Which block has a tile does not change its bits.
//
// One thread of the block leads: it asks the counter and passes the number on through a ring in
// shared memory; every warp, the leader's too, reads it. The first tile is the block's own number,
// so a grid of no more tiles than blocks never touches the counter.
//
//   using Schedule = pipe::DynamicSchedule;
//   Schedule::init(shared, warps);                        // one thread, then a fence and a barrier
//   Schedule schedule(shared, counter, block, blocks);
//   for (AttentionTile t; schedule.next(grid, t); schedule.lead(grid)) ...   // the leader's role
//   for (AttentionTile t; schedule.next(grid, t);) ...                       // the others
//
// The counter is 0 before and after: there are as many questions as tiles, and the last of them
// turns it over.
#pragma once
#include "hw/atomic.h"
#include "hw/memory.h"
#include "pipe/ring.h"
#include "pipe/schedule.h"
#include "pipe/uniform.h"

namespace halftone::pipe {

class DynamicSchedule {
  using Numbers = Ring<2, 0>;

 public:
  static constexpr uint32_t kSharedBytes = Numbers::kSharedBytes + 2 * 4;

  HT_HOST_DEVICE static uint32_t items(const AttentionGrid& grid) { return grid.count(); }
  HT_DEVICE static void init(hw::SharedAddress shared, uint32_t warps) {
    const Numbers numbers{shared};
    numbers.init(1, warps);
    numbers.name("tile full", "tile empty");
  }
  HT_DEVICE DynamicSchedule(hw::SharedAddress shared, uint32_t* counter, uint32_t block,
                            uint32_t blocks)
      : shared_(shared),
        counter_(counter),
        blocks_(blocks),
        item_(block),
        fill_(Numbers{shared}),
        read_(Numbers{shared}) {}

  // All threads of a warp together.
  HT_DEVICE bool next(const AttentionGrid& grid, AttentionTile& tile,
                      hw::Site site = hw::Site::current()) {
    if (!first_) {
      if (grid.count() <= blocks_) return false;
      const uint32_t stage = read_.wait(site);
      item_ = uniform(hw::load_shared<uint32_t>(number(stage), site), site);
      hw::warp_sync(hw::kFullWarp, site);
      read_.release(hw::lane_index(site) == 0, site);
    }
    first_ = false;
    if (item_ >= grid.count()) return false;
    tile = grid.tile(item_);
    return true;
  }
  // Asks for the tile after the one at hand: by the leader alone, once for each tile.
  HT_DEVICE void lead(const AttentionGrid& grid, hw::Site site = hw::Site::current()) {
    if (grid.count() <= blocks_) return;
    const Slot slot = fill_.wait(site);
    const uint32_t asked = hw::atomic_global<hw::Atomic::inc>(counter_, grid.count() - 1, site);
    hw::store_shared(number(slot.stage), blocks_ + asked, site);
    fill_.commit(slot, site);
  }

 private:
  HT_DEVICE hw::SharedAddress number(uint32_t stage) const {
    return shared_ + (Numbers::kSharedBytes + stage * 4);
  }

  hw::SharedAddress shared_;
  uint32_t* counter_;
  uint32_t blocks_, item_;
  bool first_ = true;
  Numbers::Producer fill_;
  Numbers::Consumer read_;
};

}  // namespace halftone::pipe
