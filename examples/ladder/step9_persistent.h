// Step 9, persistent: as many blocks as fit stay on the chip and walk over the tiles of C, and what
// one tile still has to write overlaps with the loading of the next.
//
// The loading warp does not notice where a tile ends: it fills the ring for the next one while the
// sums of this one are rounded, stored to shared memory and picked up by the copy engine. The order
// of the tiles keeps the rows and columns in work within the L2.
#pragma once
#include "hw/cluster.h"
#include "hw/copy/tma.h"
#include "pipe/epilogue.h"
#include "pipe/ring.h"
#include "pipe/roles.h"
#include "pipe/schedule.h"
#include "warpgroup_tile.h"

namespace halftone::ladder {

struct Persistent : WgmmaBlock {
  using Params = MappedProduct;
  enum class Worker { load, multiply };
  static constexpr pipe::Roles kRoles{{{"load", 4, 40}, {"multiply", kWarpgroups * 4, 232}}};
  static constexpr uint32_t kThreads = kRoles.threads(), kMinBlocks = 1;
  static constexpr uint32_t kCluster = 2;
  static constexpr uint32_t kShareB = kTileN / kCluster;
  static constexpr uint16_t kAllBlocks = (1 << kCluster) - 1;
  // 8 x 8 tiles of 256 x 256 are in work at a time: 2048 rows of A and of B, a square.
  static constexpr uint32_t kGroup = 8;
  using Stages = pipe::Ring<kStages, kStageBytes, hw::Scope::cluster>;
  using Schedule = pipe::PersistentSchedule<pipe::GemmGrid>;

  // A warp writes its 16 rows of C in pieces of 64 columns, each with a box and a buffer of its
  // own: no warp waits for another. Two buffers, one being filled while the other is read.
  using Store = pipe::WarpStore<kBoxWidth, 2>;
  static constexpr uint32_t kWarps = kWarpgroups * 4;
  static constexpr BoxRows kBox{kTileM, kShareB, Store::kRows};

  // Shared memory: the stages, the buffers of C, the barriers.
  static constexpr uint32_t kPieces = kStages * kStageBytes;
  static constexpr uint32_t kBarriers = kPieces + kWarps * Store::kSharedBytes;
  static constexpr uint32_t kSharedBytes = kBarriers + Stages::kSharedBytes;

  HT_HOST_DEVICE static pipe::GemmGrid tiles(const Product& p) {
    return {ceil_div(p.m, kTileM * kCluster), ceil_div(p.n, kTileN), 1, kGroup};
  }
  // One block for each multiprocessor, fewer where there are fewer tiles.
  static LaunchShape shape(const Product& p, uint32_t multiprocessors) {
    const uint32_t fit = multiprocessors / kCluster, wanted = tiles(p).count();
    return {.grid = {(wanted < fit ? wanted : fit) * kCluster, 1, 1},
            .block = {kThreads, 1, 1},
            .cluster = {kCluster, 1, 1},
            .shared_bytes = kSharedBytes};
  }

  HT_DEVICE static void run(const Params& p) {
    const hw::SharedAddress base = hw::shared_memory_base();
    const Stages ring{base + kBarriers};
    if (hw::thread_index().x == 0) {
      ring.init(1, kCluster * kWarps);
      hw::fence_mbarrier_init();
    }
    hw::cluster_arrive();
    hw::cluster_wait();

    // Both roles walk the same tiles, each by itself.
    const Schedule schedule(tiles(p.product), hw::cluster_index().x, hw::grid_size().x / kCluster);
    const uint32_t rank = hw::cluster_rank();
    if (pipe::enter<kRoles, Worker::load>()) {
      if (hw::thread_index().x == 0) load(p, ring, base, schedule, rank);
    } else if (pipe::enter<kRoles, Worker::multiply>()) {
      multiply(p, ring, base, schedule, rank);
    }
  }

  HT_DEVICE static void load(const Params& p, const Stages& ring, hw::SharedAddress base,
                             Schedule schedule, uint32_t rank) {
    const uint32_t steps = ceil_div(p.product.k, kDepth), share = rank * kShareB;
    auto fill = ring.producer();
    for (pipe::GemmTile t; schedule.next(t);) {
      const int32_t row = static_cast<int32_t>((t.m * kCluster + rank) * kTileM);
      const int32_t col = static_cast<int32_t>(t.n * kTileN + share);
      for (uint32_t step = 0; step < steps; ++step) {
        const pipe::Slot slot = fill.acquire();
        const hw::SharedAddress a = base + slot.stage * kStageBytes, b = a + kBytesA;
        const int32_t k = static_cast<int32_t>(step * kDepth);
        hw::tensor_load(a, &p.a, {k, row}, slot.full);
        hw::tensor_load_multicast(b + share * kRowBytes, &p.b, {k, col}, slot.full, kAllBlocks);
      }
    }
    fill.drain();
  }

  HT_DEVICE static void multiply(const Params& p, const Stages& ring, hw::SharedAddress base,
                                 Schedule schedule, uint32_t rank) {
    const uint32_t steps = ceil_div(p.product.k, kDepth), lane = hw::lane_index();
    const uint32_t warp = hw::warp_index() - 4, my_row = warp / 4 * kRows;
    Store out(base + kPieces + warp * Store::kSharedBytes);
    auto read = ring.consumer();
    WarpgroupTile tile;
    for (pipe::GemmTile t; schedule.next(t);) {
      for (uint32_t step = 0; step < steps; ++step) {
        const hw::SharedAddress a = base + read.wait() * kStageBytes;
        tile.multiply_stage(a + my_row * kRowBytes, a + kBytesA, step == 0);
        if (step == 0) continue;
        hw::wgmma_wait<1>();
        read.release_to(lane, lane < kCluster);
      }
      hw::wgmma_wait<0>();
      hw::hold_registers(tile.sum);
      read.release_to(lane, lane < kCluster);
      out.store(tile.sum, &p.c, (t.m * kCluster + rank) * kTileM + warp * Store::kRows,
                t.n * kTileN, ToBf16());
    }
    out.drain();  // shared memory must outlive the copies
  }
};

}  // namespace halftone::ladder
