// Step 6, TMA ring: one thread asks the tensor memory accelerator for whole boxes; barriers in
// shared memory say when a stage has come and when it is free.
//
// The 16 address computations and copies a thread made for every stage are gone: the copy engine
// walks the box, applies the swizzle and fills what lies outside with zeros. No barrier of the
// whole block is left in the loop, so warps drift apart by up to a stage.
#pragma once
#include "hw/copy/tma.h"
#include "hw/fence.h"
#include "hw/warp.h"
#include "pipe/ring.h"
#include "warp_tile.h"

namespace halftone::ladder {

struct TmaRing : MmaBlock {
  using Params = MappedProduct;
  static constexpr uint32_t kStages = 3;
  static constexpr BoxRows kBox{kTile, kTile};
  using Stages = pipe::Ring<kStages, kStageBytes>;

  // Shared memory: the stages (each A, then B), then the barriers.
  static constexpr uint32_t kBarriers = kStages * kStageBytes;
  static constexpr uint32_t kSharedBytes = kBarriers + Stages::kSharedBytes;

  static LaunchShape shape(const Product& p) {
    return grid_of_tiles(p.m, p.n, kTile, kTile, kThreads, kSharedBytes);
  }

  HT_DEVICE static void run(const Params& p) {
    const uint32_t row = hw::block_index().y * kTile, col = hw::block_index().x * kTile;
    const uint32_t steps = ceil_div(p.product.k, kDepth);
    const hw::SharedAddress base = hw::shared_memory_base();
    const bool loads = hw::thread_index().x == 0, first_lane = hw::lane_index() == 0;

    const Stages ring{base + kBarriers};
    if (loads) {
      ring.init(1, kThreads / 32);  // one thread fills a stage, four warps leave it
      hw::fence_mbarrier_init();
    }
    hw::barrier_sync();

    auto fill = ring.producer();
    const auto load = [&](uint32_t step) {
      const pipe::Slot slot = fill.acquire();
      const hw::SharedAddress a = base + slot.stage * kStageBytes;
      const int32_t k = static_cast<int32_t>(step * kDepth);
      hw::tensor_load(a, &p.a, {k, static_cast<int32_t>(row)}, slot.full);
      hw::tensor_load(a + kOperandBytes, &p.b, {k, static_cast<int32_t>(col)}, slot.full);
    };
    if (loads) {
      for (uint32_t step = 0; step < kStages - 1 && step < steps; ++step) load(step);
    }

    WarpTile tile;
    auto read = ring.consumer();
    for (uint32_t step = 0; step < steps; ++step) {
      // The stage that was read in the last turn, once every warp has left it.
      if (loads && step + kStages - 1 < steps) load(step + kStages - 1);
      const hw::SharedAddress a = base + read.wait() * kStageBytes;
      tile.multiply_stage(a, a + kOperandBytes);
      // The copy engine overwrites the stage through the async proxy, after what ldmatrix has read
      // through the generic one; and all lanes have read before one says so.
      hw::fence_proxy_async_shared();
      hw::warp_sync();
      read.release(first_lane);
    }
    tile.store(p.product.c, p.product.m, p.product.n, row, col);
  }
};

}  // namespace halftone::ladder
