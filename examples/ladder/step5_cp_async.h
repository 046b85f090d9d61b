// Step 5, stages: cp.async copies the next tiles while this one is multiplied.
//
// A thread no longer waits for what it loads, nor holds it in registers: three stages are in shared
// memory, one being read and two on their way, and two blocks share a multiprocessor.
#pragma once
#include "hw/barrier.h"
#include "hw/copy/cp_async.h"
#include "warp_tile.h"

namespace halftone::ladder {

struct Stages : MmaBlock {
  using Params = Product;
  static constexpr uint32_t kStages = 3;  // two blocks of 96 KB fit on a multiprocessor

  static LaunchShape shape(const Product& p) {
    return grid_of_tiles(p.m, p.n, kTile, kTile, kThreads, kStages * kStageBytes);
  }

  // Starts the copy of 128 rows of 64 elements; what lies outside the matrix is filled with zeros.
  HT_DEVICE static void copy(hw::SharedAddress to, const uint16_t* matrix, uint32_t row,
                             uint32_t rows, uint32_t k, uint32_t depth) {
    const uint32_t thread = hw::thread_index().x, chunk = thread % 8;
    HT_UNROLL
    for (uint32_t i = 0; i < kTile; i += kThreads / 8) {
      const uint32_t tile_row = i + thread / 8, element = k + chunk * 8;
      const bool inside = row + tile_row < rows && element < depth;
      const uint64_t offset = inside ? uint64_t{row + tile_row} * depth + element : 0;
      hw::cp_async_zero_fill<16>(to + tile::chunk_offset(tile::Swizzle::b128, tile_row, chunk),
                                 matrix + offset, inside ? 16 : 0);
    }
  }

  HT_DEVICE static void run(const Params& p) {
    const uint32_t row = hw::block_index().y * kTile, col = hw::block_index().x * kTile;
    const hw::SharedAddress base = hw::shared_memory_base();
    const uint32_t steps = ceil_div(p.k, kDepth);

    // One group of copies for every step, empty ones past the end: then "all but the newest group
    // are done" always means that the stage to be read has come.
    const auto fill = [&](uint32_t step, uint32_t stage) {
      if (step < steps) {
        copy(base + stage * kStageBytes, p.a, row, p.m, step * kDepth, p.k);
        copy(base + stage * kStageBytes + kOperandBytes, p.b, col, p.n, step * kDepth, p.k);
      }
      hw::cp_async_commit();
    };

    WarpTile tile;
    for (uint32_t i = 0; i < kStages - 1; ++i) fill(i, i);
    uint32_t stage = 0;
    for (uint32_t step = 0; step < steps; ++step) {
      hw::cp_async_wait<kStages - 2>();  // this thread's copies of the stage, ...
      hw::barrier_sync();  // ... everybody's, and nobody reads the stage before any more
      fill(step + kStages - 1, stage == 0 ? kStages - 1 : stage - 1);
      const hw::SharedAddress a = base + stage * kStageBytes;
      tile.multiply_stage(a, a + kOperandBytes);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    tile.store(p.c, p.m, p.n, row, col);
  }
};

}  // namespace halftone::ladder
