// Step 7, wgmma: a warpgroup multiplies straight from shared memory, 64 x 256 x 16 elements an
// instruction, and goes on while the tensor cores work.
//
// Operands no longer pass through registers, which frees them for four times the accumulators, and
// the tensor cores run at the full rate that mma.sync does not reach on this chip.
#pragma once
#include "hw/copy/tma.h"
#include "pipe/ring.h"
#include "warpgroup_tile.h"

namespace halftone::ladder {

struct Wgmma : WgmmaBlock {
  using Params = MappedProduct;
  static constexpr uint32_t kThreads = kWarpgroups * 128, kMinBlocks = 1;
  static constexpr BoxRows kBox{kTileM, kTileN};
  using Stages = pipe::Ring<kStages, kStageBytes>;

  // Shared memory: the stages, then the barriers.
  static constexpr uint32_t kBarriers = kStages * kStageBytes;
  static constexpr uint32_t kSharedBytes = kBarriers + Stages::kSharedBytes;

  static LaunchShape shape(const Product& p) {
    return grid_of_tiles(p.m, p.n, kTileM, kTileN, kThreads, kSharedBytes);
  }

  HT_DEVICE static void run(const Params& p) {
    const uint32_t row = hw::block_index().y * kTileM, col = hw::block_index().x * kTileN;
    const uint32_t steps = ceil_div(p.product.k, kDepth);
    const uint32_t my_row = hw::warp_index() / 4 * kRows;  // of this warpgroup, in the tile
    const hw::SharedAddress base = hw::shared_memory_base();
    const bool loads = hw::thread_index().x == 0, first_lane = hw::lane_index() == 0;

    const Stages ring{base + kBarriers};
    if (loads) {
      ring.init(1, kThreads / 32);
      hw::fence_mbarrier_init();
    }
    hw::barrier_sync();

    auto fill = ring.producer();
    const auto load = [&](uint32_t step) {
      const pipe::Slot slot = fill.acquire();
      const hw::SharedAddress a = base + slot.stage * kStageBytes;
      const int32_t k = static_cast<int32_t>(step * kDepth);
      hw::tensor_load(a, &p.a, {k, static_cast<int32_t>(row)}, slot.full);
      hw::tensor_load(a + kBytesA, &p.b, {k, static_cast<int32_t>(col)}, slot.full);
    };
    if (loads) {
      for (uint32_t step = 0; step < kStages && step < steps; ++step) load(step);
    }

    WarpgroupTile tile;
    auto read = ring.consumer();
    for (uint32_t step = 0; step < steps; ++step) {
      const hw::SharedAddress a = base + read.wait() * kStageBytes;
      tile.multiply_stage(a + my_row * kRowBytes, a + kBytesA, step == 0);
      if (step == 0) continue;
      hw::wgmma_wait<1>();  // the group of the last turn is done, this one goes on
      read.release(first_lane);
      if (loads && step - 1 + kStages < steps) load(step - 1 + kStages);
    }
    hw::wgmma_wait<0>();
    hw::hold_registers(tile.sum);
    tile.store(p.product.c, p.product.m, p.product.n, row + my_row, col);
  }
};

}  // namespace halftone::ladder
