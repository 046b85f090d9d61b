// Step 8, warp roles and clusters: a warp of its own loads, and two blocks that need the same
// columns of B load half of them each and send it to both.
//
// The loading thread no longer waits behind the multiplying ones, and runs ahead as far as the ring
// allows; it gives its registers to them. The cluster halves what is read of B from the L2.
#pragma once
#include "hw/cluster.h"
#include "hw/copy/tma.h"
#include "pipe/ring.h"
#include "pipe/roles.h"
#include "warpgroup_tile.h"

namespace halftone::ladder {

struct WarpRoles : WgmmaBlock {
  using Params = MappedProduct;
  enum class Worker { load, multiply };
  // setmaxnreg works on whole warpgroups, so the loading warp has three idle companions. 232
  // registers hold 128 accumulators with ease; 40 x 128 + 232 x 256 is what the launch has.
  static constexpr pipe::Roles kRoles{{{"load", 4, 40}, {"multiply", kWarpgroups * 4, 232}}};
  static constexpr uint32_t kThreads = kRoles.threads(), kMinBlocks = 1;
  static constexpr uint32_t kCluster = 2;                 // blocks, one below the other in C
  static constexpr uint32_t kShareB = kTileN / kCluster;  // columns of B that each one loads
  static constexpr uint16_t kAllBlocks = (1 << kCluster) - 1;
  static constexpr BoxRows kBox{kTileM, kShareB};
  using Stages = pipe::Ring<kStages, kStageBytes, hw::Scope::cluster>;

  // Shared memory: the stages, then the barriers.
  static constexpr uint32_t kBarriers = kStages * kStageBytes;
  static constexpr uint32_t kSharedBytes = kBarriers + Stages::kSharedBytes;

  static LaunchShape shape(const Product& p) {
    // The last cluster may have a block without rows: it helps to load, and writes nothing.
    return {.grid = {ceil_div(p.n, kTileN), ceil_div(p.m, kTileM * kCluster) * kCluster, 1},
            .block = {kThreads, 1, 1},
            .cluster = {1, kCluster, 1},
            .shared_bytes = kSharedBytes};
  }

  HT_DEVICE static void run(const Params& p) {
    const uint32_t row = hw::block_index().y * kTileM, col = hw::block_index().x * kTileN;
    const uint32_t steps = ceil_div(p.product.k, kDepth);
    const hw::SharedAddress base = hw::shared_memory_base();

    const Stages ring{base + kBarriers};
    if (hw::thread_index().x == 0) {
      // A stage is free when the multiplying warps of both blocks have left it.
      ring.init(1, kCluster * kWarpgroups * 4);
      hw::fence_mbarrier_init();
    }
    hw::cluster_arrive();
    hw::cluster_wait();

    if (pipe::enter<kRoles, Worker::load>()) {
      if (hw::thread_index().x == 0) load(p, ring, base, row, col, steps);
    } else if (pipe::enter<kRoles, Worker::multiply>()) {
      multiply(p, ring, base, row, col, steps);
    }
  }

  HT_DEVICE static void load(const Params& p, const Stages& ring, hw::SharedAddress base,
                             uint32_t row, uint32_t col, uint32_t steps) {
    const uint32_t share = hw::cluster_rank() * kShareB;
    auto fill = ring.producer();
    for (uint32_t step = 0; step < steps; ++step) {
      const pipe::Slot slot = fill.acquire();
      const hw::SharedAddress a = base + slot.stage * kStageBytes, b = a + kBytesA;
      const int32_t k = static_cast<int32_t>(step * kDepth);
      hw::tensor_load(a, &p.a, {k, static_cast<int32_t>(row)}, slot.full);
      hw::tensor_load_multicast(b + share * kRowBytes, &p.b, {k, static_cast<int32_t>(col + share)},
                                slot.full, kAllBlocks);
    }
    fill.drain();  // the other block must not send to, or release at, one that has ended
  }

  HT_DEVICE static void multiply(const Params& p, const Stages& ring, hw::SharedAddress base,
                                 uint32_t row, uint32_t col, uint32_t steps) {
    const uint32_t my_row = (hw::warp_index() / 4 - 1) * kRows;
    const uint32_t lane = hw::lane_index();
    WarpgroupTile tile;
    auto read = ring.consumer();
    for (uint32_t step = 0; step < steps; ++step) {
      const hw::SharedAddress a = base + read.wait() * kStageBytes;
      tile.multiply_stage(a + my_row * kRowBytes, a + kBytesA, step == 0);
      if (step == 0) continue;
      hw::wgmma_wait<1>();
      read.release_to(lane, lane < kCluster);  // a lane for each block that fills this stage
    }
    hw::wgmma_wait<0>();
    hw::hold_registers(tile.sum);
    read.release_to(lane, lane < kCluster);
    tile.store(p.product.c, p.product.m, p.product.n, row + my_row, col);
  }
};

}  // namespace halftone::ladder
