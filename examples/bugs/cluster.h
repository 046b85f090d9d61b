// Blocks that hand data to each other: through the shared memory of a cluster, or through global
// memory.
#pragma once
#include "bug.h"
#include "hw/atomic.h"
#include "hw/barrier.h"
#include "hw/cluster.h"
#include "hw/copy/tma.h"
#include "hw/fence.h"
#include "hw/mbarrier.h"
#include "hw/memory.h"
#include "hw/thread.h"

namespace halftone::bugs {

// A barrier is used by the other block before its initialisation was made visible to it.
template <bool kFixed>
struct InitNotVisible {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 32, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const hw::Mbarrier ready{hw::shared_memory_base()};
    const uint32_t thread = hw::thread_index().x, rank = hw::cluster_rank();
    if (thread == 0) {
      hw::mbarrier_init(ready, 1);  // [init-not-visible]
      if constexpr (kFixed) hw::fence_mbarrier_init();
    }
    hw::cluster_arrive_relaxed();
    hw::cluster_wait();
    if (rank == 1 && thread == 0) {
      const hw::ClusterAddress peer = hw::map_shared_rank(ready.address, 0);
      hw::mbarrier_arrive_cluster(peer);  // [init-not-visible]
    }
    if (rank == 0) {
      hw::mbarrier_wait<hw::Scope::cluster>(ready, 0);
      hw::store_global(p.out + thread, 1u);
    }
    hw::cluster_arrive();
    hw::cluster_wait();
  }
};

// The data comes from another block; the wait acquires for its own block only.
template <bool kFixed>
struct BlockScopeWait {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 32, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const hw::SharedAddress base = hw::shared_memory_base();
    const hw::Mbarrier ready{base + 128};
    const uint32_t thread = hw::thread_index().x, rank = hw::cluster_rank();
    if (thread == 0) {
      hw::mbarrier_init(ready, 32);
      hw::fence_mbarrier_init();
    }
    hw::cluster_arrive();
    hw::cluster_wait();
    if (rank == 1) {
      const hw::ClusterAddress row = hw::map_shared_rank(base, 0);
      hw::store_cluster(row + thread * 4, thread);  // [block-scope-wait]
      hw::mbarrier_arrive_cluster(hw::map_shared_rank(ready.address, 0));
    } else {
      hw::mbarrier_wait<kFixed ? hw::Scope::cluster : hw::Scope::cta>(ready, 0);
      const uint32_t word = hw::load_shared<uint32_t>(base + thread * 4);  // [block-scope-wait]
      hw::store_global(p.out + thread, word);
    }
    hw::cluster_arrive();
    hw::cluster_wait();
  }
};

// Both blocks expect the multicast tile; the mask names one of them.
template <bool kFixed>
struct MulticastMask {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 32, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const hw::SharedAddress tile = hw::shared_memory_base();
    const hw::Mbarrier full{tile + 8192};
    const uint32_t thread = hw::thread_index().x;
    if (thread == 0) {
      hw::name_mbarrier(full, "full", 0);
      hw::mbarrier_init(full, 1);
      hw::fence_mbarrier_init();
      hw::mbarrier_arrive_expect_tx(full, 8192);
    }
    hw::cluster_arrive();
    hw::cluster_wait();
    if (hw::cluster_rank() == 0 && thread == 0) {
      hw::tensor_load_multicast(tile, &p.rows, {0, 0}, full, kFixed ? 3 : 1);
    }
    hw::mbarrier_wait<hw::Scope::cluster>(full, 0);  // [multicast-mask]
    hw::store_global(p.out + thread, hw::load_shared<uint32_t>(tile + thread * 4));
    hw::cluster_arrive();
    hw::cluster_wait();
  }
};

// A block leaves while the other still reads its shared memory.
template <bool kFixed>
struct EarlyExit {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 32, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const hw::SharedAddress base = hw::shared_memory_base();
    const uint32_t thread = hw::thread_index().x;
    hw::store_shared(base + thread * 4, thread);
    hw::cluster_arrive();
    hw::cluster_wait();
    if (hw::cluster_rank() == 1) {
      hw::nanosleep(1000);
      const hw::ClusterAddress row = hw::map_shared_rank(base, 0);
      const uint32_t word = hw::load_cluster<uint32_t>(row + thread * 4);  // [early-exit]
      hw::store_global(p.out + thread, word);
    }
    if constexpr (kFixed) {
      hw::cluster_arrive();
      hw::cluster_wait();
    }
  }
};

// Each block leaves a partial sum and counts; the last one adds them up. A relaxed count says
// nothing of the sums.
template <bool kFixed>
struct LastBlockGate {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 32, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t block = hw::block_index().x, blocks = hw::grid_size().x;
    if (hw::thread_index().x != 0) return;
    hw::store_global(p.out + block, block + 1);  // [last-block-gate]
    constexpr hw::Order kOrder = kFixed ? hw::Order::acq_rel : hw::Order::relaxed;
    const uint32_t before = hw::atomic_global<hw::Atomic::add, kOrder>(p.flags, 1u);
    if (before + 1 != blocks) return;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < blocks; ++i) {
      sum += hw::load_global(p.out + i);  // [last-block-gate]
    }
    hw::store_global(p.out + blocks, sum);
  }
};

}  // namespace halftone::bugs
