// Small kernels of the tests that need sm_90a.
#pragma once
#include "hw/griddep.h"
#include "hw/memory.h"
#include "hw/thread.h"

namespace halftone::test {

// Rank and size of the cluster, by block.
struct Ranks {
  struct Params {
    uint32_t* ranks;
  };
  static constexpr uint32_t kThreads = 32, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    if (hw::thread_index().x != 0) return;
    hw::store_global(p.ranks + hw::block_index().x, hw::cluster_rank() + 100 * hw::cluster_size());
  }
};

// out = 2 in + 1, after the kernel ahead in the stream has written `in`.
struct Step {
  struct Params {
    const uint32_t* in;
    uint32_t* out;
  };
  static constexpr uint32_t kThreads = 64, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    hw::griddepcontrol_launch_dependents();
    hw::griddepcontrol_wait();
    const uint32_t i = hw::block_index().x * kThreads + hw::thread_index().x;
    hw::store_global(p.out + i, 2 * hw::load_global(p.in + i) + 1);
  }
};

}  // namespace halftone::test
