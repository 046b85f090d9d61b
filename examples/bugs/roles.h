// Warps with different roles must agree: on how many tiles there are, how often each barrier is
// arrived at, and who gives back which registers.
#pragma once
#include "bug.h"
#include "hw/barrier.h"
#include "hw/copy/tma.h"
#include "hw/fence.h"
#include "hw/mbarrier.h"
#include "hw/memory.h"
#include "hw/mma/setmaxnreg.h"
#include "hw/thread.h"
#include "hw/warp.h"

namespace halftone::bugs {

// One warp loads tiles, one uses them: the pipeline of every warp-specialised kernel. The consumer
// skips the release of tile 3, so the producer waits for ever for an empty stage.
template <bool kFixed>
struct SkippedRelease {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 64, kMinBlocks = 1;
  static constexpr uint32_t kStages = 2, kTiles = 6;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t lane = hw::lane_index();
    const hw::SharedAddress tiles = hw::shared_memory_base();
    const hw::SharedAddress barriers = tiles + kStages * 8192;
    const hw::Mbarrier full[] = {{barriers}, {barriers + 8}};
    const hw::Mbarrier empty[] = {{barriers + 16}, {barriers + 24}};
    if (hw::thread_index().x == 0) {
      hw::name_mbarrier(full[0], "full", 0);
      hw::name_mbarrier(full[1], "full", 1);
      hw::name_mbarrier(empty[0], "empty", 0);
      hw::name_mbarrier(empty[1], "empty", 1);
      for (const hw::Mbarrier barrier : full) hw::mbarrier_init(barrier, 1);
      for (const hw::Mbarrier barrier : empty) hw::mbarrier_init(barrier, 1);
      hw::fence_mbarrier_init();
    }
    hw::barrier_sync();
    if (hw::warp_index() == 0) {
      hw::set_role("producer");
      if (lane != 0) return;
      for (uint32_t tile = 0; tile < kTiles; ++tile) {
        const uint32_t stage = tile % kStages, round = tile / kStages;
        hw::mbarrier_wait(empty[stage], ~round & 1);  // [skipped-release]
        hw::mbarrier_arrive_expect_tx(full[stage], 8192);
        hw::tensor_load(tiles + stage * 8192, &p.rows, {0, 0}, full[stage]);
      }
    } else {
      hw::set_role("consumer");
      uint32_t sum = 0;
      for (uint32_t tile = 0; tile < kTiles; ++tile) {
        const uint32_t stage = tile % kStages, round = tile / kStages;
        hw::mbarrier_wait(full[stage], round & 1);  // [skipped-release]
        sum += hw::load_shared<uint32_t>(tiles + stage * 8192 + lane * 4);
        hw::fence_proxy_async_shared();
        hw::warp_sync();
        if (lane == 0 && (kFixed || tile != 3)) hw::mbarrier_arrive(empty[stage]);
      }
      hw::store_global(p.out + lane, sum);
    }
  }
};

// The loader skips an empty range, the consumer waits for its first tile all the same.
template <bool kFixed>
struct EmptyRange {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 64, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t lane = hw::lane_index();
    const hw::SharedAddress tile = hw::shared_memory_base();
    const hw::Mbarrier full{tile + 8192};
    if (hw::thread_index().x == 0) {
      hw::name_mbarrier(full, "full", 0);
      hw::mbarrier_init(full, 1);
      hw::fence_mbarrier_init();
    }
    hw::barrier_sync();
    const uint32_t tiles = hw::load_global(p.flags);  // zero of them
    if (hw::warp_index() == 0) {
      hw::set_role("load");
      if (tiles > 0 && lane == 0) {
        hw::mbarrier_arrive_expect_tx(full, 8192);
        hw::tensor_load(tile, &p.rows, {0, 0}, full);
      }
    } else {
      hw::set_role("softmax");
      if (!kFixed || tiles > 0) {
        hw::mbarrier_wait(full, 0);  // [empty-range]
        hw::store_global(p.out + lane, hw::load_shared<uint32_t>(tile + lane * 4));
      }
    }
  }
};

// Two consumer warps share an empty barrier that expects both; one leaves out tiles it has no rows
// in, arrival included.
template <bool kFixed>
struct ArrivalCount {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 96, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t lane = hw::lane_index(), warp = hw::warp_index();
    const hw::SharedAddress tile = hw::shared_memory_base();
    const hw::Mbarrier full{tile + 8192}, empty{tile + 8200};
    if (hw::thread_index().x == 0) {
      hw::name_mbarrier(full, "full", 0);
      hw::name_mbarrier(empty, "empty", 0);
      hw::mbarrier_init(full, 1);
      hw::mbarrier_init(empty, 2);
      hw::fence_mbarrier_init();
    }
    hw::barrier_sync();
    if (warp == 0) {
      hw::set_role("load");
      for (uint32_t round = 0; lane == 0 && round < 3; ++round) {
        hw::mbarrier_wait(empty, ~round & 1);  // [arrival-count]
        hw::mbarrier_arrive_expect_tx(full, 8192);
        hw::tensor_load(tile, &p.rows, {0, 0}, full);
      }
      return;
    }
    hw::set_role(warp == 1 ? "upper rows" : "lower rows");
    for (uint32_t round = 0; round < 3; ++round) {
      const bool has_rows = warp == 1 || round == 0;
      if (!has_rows && !kFixed) continue;
      hw::mbarrier_wait(full, round & 1);
      hw::warp_sync();
      if (lane == 0) hw::mbarrier_arrive(empty);
    }
  }
};

// A worker stops when its index equals the end; a range that begins beyond its end never does, and
// the page it holds is never released.
template <bool kFixed>
struct NeverReleased {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 64, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const hw::Mbarrier page{hw::shared_memory_base()};
    if (hw::thread_index().x == 0) {
      hw::name_mbarrier(page, "page released", 0);
      hw::mbarrier_init(page, 1);
    }
    hw::barrier_sync();
    const uint32_t end = hw::load_global(p.flags);  // 0
    const uint32_t begin = end + 1;
    if (hw::warp_index() == 0) {
      hw::set_role("worker");
      const bool done = kFixed ? begin >= end : begin == end;
      if (done && hw::lane_index() == 0) hw::mbarrier_arrive(page);
    } else {
      hw::set_role("page manager");
      hw::mbarrier_wait(page, 0);  // [never-released]
    }
  }
};

// One thread decides and hands a byte to the others, who read a word.
template <bool kFixed>
struct BoolBroadcast {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 64, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const hw::SharedAddress valid = hw::shared_memory_base();
    if (hw::thread_index().x == 0) {
      if constexpr (kFixed) {
        hw::store_shared(valid, uint32_t{1});
      } else {
        hw::store_shared(valid, uint8_t{1});
      }
    }
    hw::barrier_sync();
    const uint32_t go = hw::load_shared<uint32_t>(valid);  // [bool-broadcast]
    if (go == 1) hw::store_global(p.out + hw::thread_index().x, go);
  }
};

// The producer warpgroup gives registers back, but one of its warps went home without.
template <bool kFixed>
struct IdleWarpKeepsRegisters {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 384, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t warp = hw::warp_index();
    if (warp < 4) {
      hw::set_role(warp == 3 ? "idle" : "producer");
      if (!kFixed && warp == 3) {
        hw::barrier_sync(1, 384);
        return;
      }
      hw::setmaxnreg_dec<24>();
    } else {
      hw::set_role("consumer");
      hw::setmaxnreg_inc<240>();  // [idle-warp-keeps-registers]
      hw::store_global(p.out + hw::thread_index().x, warp);
    }
    hw::barrier_sync(1, 384);
  }
};

// 24 and 240 registers fit two consumer warpgroups; with three there are not enough.
template <bool kFixed>
struct RegistersOversubscribed {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 512, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    if (hw::warp_index() < 4) {
      hw::set_role("producer");
      hw::setmaxnreg_dec<24>();
    } else {
      hw::set_role("consumer");
      hw::setmaxnreg_inc<kFixed ? 160 : 240>();  // [registers-oversubscribed]
    }
    hw::store_global(p.out + hw::thread_index().x, 1u);
  }
};

// A named barrier is entered with two different counts.
template <bool kFixed>
struct BarrierCounts {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 96, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t warp = hw::warp_index();
    if (warp == 0) {
      hw::barrier_sync(1, kFixed ? 96 : 64);  // [barrier-counts]
    } else {
      hw::barrier_sync(1, 96);  // [barrier-counts]
    }
    hw::store_global(p.out + hw::thread_index().x, warp);
  }
};

}  // namespace halftone::bugs
