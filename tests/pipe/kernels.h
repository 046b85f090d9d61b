// Small kernels that are little but their pipe, for the simulator and the GPU.
#pragma once
#include "hw/convert/convert.h"
#include "pipe/epilogue.h"
#include "pipe/named_barrier.h"
#include "pipe/ring.h"
#include "pipe/roles.h"
#include "pipe/schedule.h"

namespace halftone::test {

// Boxes of a matrix through a ring of tensor copies, doubled, to the same place of another: one
// warp loads, four double. Persistent blocks walk over the tiles.
struct DoubleTiles {
  struct Params {
    hw::TensorMap map;  // boxes of kRows x kColumns
    uint32_t* out;
    uint32_t rows, columns;
  };
  static constexpr uint32_t kRows = 32, kColumns = 32, kStages = 3;
  static constexpr uint32_t kStageBytes = kRows * kColumns * 4;
  enum class Worker { load, add };
  static constexpr pipe::Roles kRoles{{{"load", 4, 40}, {"add", 4, 232}}};
  static constexpr uint32_t kThreads = kRoles.threads(), kMinBlocks = 1;
  using Stages = pipe::Ring<kStages, kStageBytes>;
  static constexpr uint32_t kBarriers = kStages * kStageBytes;
  static constexpr uint32_t kSharedBytes = kBarriers + Stages::kSharedBytes;

  HT_DEVICE static void run(const Params& p) {
    const hw::SharedAddress base = hw::shared_memory_base();
    const Stages ring{base + kBarriers};
    if (hw::thread_index().x == 0) {
      ring.init(1, 4);
      hw::fence_mbarrier_init();
    }
    hw::barrier_sync();
    const pipe::GemmGrid grid{p.rows / kRows, p.columns / kColumns, 1, 2};
    pipe::PersistentSchedule<pipe::GemmGrid> tiles(grid, hw::block_index().x, hw::grid_size().x);
    if (pipe::enter<kRoles, Worker::load>()) {
      if (hw::thread_index().x != 0) return;
      auto fill = ring.producer();
      for (pipe::GemmTile t; tiles.next(t);) {
        const pipe::Slot slot = fill.acquire();
        hw::tensor_load(base + slot.stage * kStageBytes, &p.map,
                        {static_cast<int32_t>(t.n * kColumns), static_cast<int32_t>(t.m * kRows)},
                        slot.full);
      }
      fill.drain();
    } else if (pipe::enter<kRoles, Worker::add>()) {
      const uint32_t warp = hw::warp_index() - kRoles.first_warp(1), lane = hw::lane_index();
      auto read = ring.consumer();
      for (pipe::GemmTile t; tiles.next(t);) {
        const uint32_t box = read.wait() * kStageBytes;
        uint32_t values[8];
        for (uint32_t i = 0; i < 8; ++i) {
          const uint32_t row = warp * 8 + i;
          values[i] = hw::load_shared<uint32_t>(
              base + box + tile::swizzled(tile::Swizzle::b128, row * 128 + lane * 4));
        }
        // By the letter of the PTX: the copy engine overwrites what these threads have read.
        hw::fence_proxy_async_shared();
        hw::warp_sync();
        read.release(lane == 0);
        for (uint32_t i = 0; i < 8; ++i) {
          const uint32_t row = t.m * kRows + warp * 8 + i;
          hw::store_global(p.out + uint64_t{row} * p.columns + t.n * kColumns + lane,
                           2 * values[i]);
        }
      }
    }
  }
};

// A ring that threads fill by stores, and a named barrier: one warp writes numbers, the other adds
// them up in another order.
struct StoreRing {
  struct Params {
    uint32_t* sums;  // 32
    uint32_t steps;
  };
  static constexpr uint32_t kThreads = 64, kMinBlocks = 1, kStages = 2;
  using Stages = pipe::Ring<kStages, 0>;
  static constexpr uint32_t kBarriers = kStages * 128, kResult = kBarriers + Stages::kSharedBytes;
  static constexpr uint32_t kSharedBytes = kResult + 128;
  enum class Barrier { unused, result, count };

  HT_DEVICE static void run(const Params& p) {
    const hw::SharedAddress base = hw::shared_memory_base();
    const uint32_t lane = hw::lane_index();
    const Stages ring{base + kBarriers};
    if (hw::thread_index().x == 0) {
      ring.init(32, 32);
      hw::fence_mbarrier_init();
    }
    hw::barrier_sync();
    if (hw::warp_index() == 0) {
      hw::set_role("write");
      auto fill = ring.producer();
      for (uint32_t i = 0; i < p.steps; ++i) {
        const pipe::Slot slot = fill.wait();
        hw::store_shared(base + slot.stage * 128 + lane * 4, i * 32 + lane);
        fill.commit(slot);
      }
      fill.drain();
      pipe::sync<Barrier::result>(kThreads);
      hw::store_global(p.sums + lane, hw::load_shared<uint32_t>(base + kResult + lane * 4));
    } else {
      hw::set_role("add");
      auto read = ring.consumer();
      uint32_t sum = 0;
      for (uint32_t i = 0; i < p.steps; ++i) {
        const uint32_t stage = read.wait();
        sum += hw::load_shared<uint32_t>(base + stage * 128 + (lane + i) % 32 * 4);
        read.release();
      }
      hw::store_shared(base + kResult + lane * 4, sum);
      pipe::arrive<Barrier::result>(kThreads);
    }
  }
};

// Both ways out of the registers: the element (row, column) is row + column.
struct WriteSums {
  struct Params {
    hw::TensorMap map;  // of `copied`, boxes of the warp's pieces
    uint16_t* direct;
    uint32_t rows, columns;
  };
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1, kTileColumns = 128, kTiles = 2;
  using Store = pipe::WarpStore<>;
  static constexpr uint32_t kSharedBytes = kThreads / 32 * Store::kSharedBytes;

  HT_DEVICE static void run(const Params& p) {
    const uint32_t warp = hw::warp_index();
    const int lane = static_cast<int>(hw::lane_index());
    const auto pack = [](float low, float high) { return hw::cvt_bf16x2(low, high); };
    Store out(hw::shared_memory_base() + warp * Store::kSharedBytes);
    for (uint32_t t = 0; t < kTiles; ++t) {
      const uint32_t row = warp * 16, column = t * kTileColumns;
      float values[kTileColumns / 2];
      HT_UNROLL
      for (int i = 0; i < static_cast<int>(kTileColumns / 2); ++i) {
        const tile::Element e = tile::wgmma_d_element(lane, i);
        values[i] = static_cast<float>(row + column) + static_cast<float>(e.row + e.col);
      }
      out.store(values, &p.map, row, column, pack);
      pipe::store_direct<kTileColumns>(values, p.direct, p.columns, p.rows, p.columns, row, column,
                                       pack);
    }
    out.drain();
  }
};

}  // namespace halftone::test
