// D = A B^T in BF16 on sm_100a, one tile of 256 x 128 by a pair of blocks: each copies its rows of
// A and half of B's, the even block's barriers count the bytes of both, and one thread of it
// multiplies for the pair.
#pragma once
#include "hw/cluster.h"
#include "hw/copy/tma_sm100.h"
#include "hw/fence.h"
#include "hw/mbarrier.h"
#include "hw/memory.h"
#include "hw/mma/tcgen05_alloc.h"
#include "hw/mma/tcgen05_ld_st.h"
#include "hw/mma/tcgen05_mma.h"
#include "hw/mma/tcgen05_sync.h"
#include "hw/thread.h"
#include "hw/warp.h"

namespace halftone::test {

struct ProductBf16PairSm100 {
  struct Params {
    hw::TensorMap a_map, b_map;  // [256, k], [128, k] bf16, boxes of kTileA and kTileB
    float* d;                    // [256, 128]
    uint32_t k;                  // a multiple of 64
  };
  static constexpr uint32_t kThreads = 192, kMinBlocks = 1, kBlocks = 2;
  static constexpr tile::SharedTile kTileA{tile::Major::k, tile::Swizzle::b128, 16, 128, 64};
  static constexpr tile::SharedTile kTileB{tile::Major::k, tile::Swizzle::b128, 16, 64, 64};
  static constexpr uint32_t kStages = 2, kBytesA = 128 * 128, kBytesB = 64 * 128;
  static constexpr uint32_t kStageBytes = kBytesA + kBytesB;
  static constexpr tile::Tcgen05Instruction kInstruction{.m = 256, .n = 128, .ctas = 2};
  static_assert(kInstruction.valid() && kTileA.valid() && kTileB.valid());
  static constexpr auto kPair = hw::CtaGroup::two;
  static constexpr uint16_t kBoth = 3;  // mask of ranks

  // Shared memory: the stages (A, then B), barriers full and empty of each, done, D's address.
  static constexpr uint32_t kBarriers = kStages * kStageBytes;
  static constexpr uint32_t kSharedBytes = kBarriers + 64;
  HT_DEVICE static hw::Mbarrier full(uint32_t stage) {  // the even block's counts
    return {hw::shared_memory_base() + kBarriers + stage * 16};
  }
  HT_DEVICE static hw::Mbarrier empty(uint32_t stage) {
    return {hw::shared_memory_base() + kBarriers + stage * 16 + 8};
  }
  HT_DEVICE static hw::Mbarrier done() { return {hw::shared_memory_base() + kBarriers + 48}; }
  HT_DEVICE static void pair_sync() {
    hw::cluster_arrive();
    hw::cluster_wait();
  }

  // Warps 0 to 3 each own 32 lanes of D; warp 4 copies; warp 5 owns tensor memory and, in the even
  // block, multiplies.
  HT_DEVICE static void run(const Params& p) {
    using namespace hw;
    const uint32_t warp = warp_index();
    const SharedAddress address = shared_memory_base() + kBarriers + 56;
    if (warp == 5) tcgen05_alloc<kPair>(address, 128);
    if (thread_index().x == 128) {
      for (uint32_t stage = 0; stage < kStages; ++stage) {
        mbarrier_init(full(stage), 1);
        mbarrier_init(empty(stage), 1);
      }
      mbarrier_init(done(), 1);
      fence_mbarrier_init();
    }
    tcgen05_fence_before_thread_sync();
    pair_sync();
    tcgen05_fence_after_thread_sync();
    const TensorAddress d{load_shared<uint32_t>(address)};
    if (warp == 4) {
      if (elect_one()) copy(p);
      warp_sync();
    } else if (warp == 5) {
      if (cluster_rank() == 0 && elect_one()) multiply(p, d);
      warp_sync();
    } else {
      store(p, d.plus(warp * 32, 0));
    }
    tcgen05_fence_before_thread_sync();
    pair_sync();
    if (warp == 5) {
      tcgen05_fence_after_thread_sync();
      tcgen05_relinquish_alloc_permit<kPair>();
      tcgen05_dealloc<kPair>(d, 128);
    }
  }

 private:
  HT_DEVICE static void copy(const Params& p) {
    using namespace hw;
    set_role("copy");
    const uint32_t rank = cluster_rank();
    for (uint32_t step = 0; step < p.k / 64; ++step) {
      const uint32_t stage = step % kStages, round = step / kStages;
      const SharedAddress to = shared_memory_base() + stage * kStageBytes;
      mbarrier_wait(empty(stage), (round & 1) ^ 1);
      // The peer's bytes may come before this arrival: the phase cannot end without it.
      if (rank == 0) mbarrier_arrive_expect_tx(full(stage), 2 * kStageBytes);
      const ClusterAddress leader = map_shared_rank(full(stage).address, 0);
      const auto column = static_cast<int32_t>(step * 64);
      const int32_t a_at[2] = {column, static_cast<int32_t>(rank * 128)};
      const int32_t b_at[2] = {column, static_cast<int32_t>(rank * 64)};
      tensor_load_pair(to, &p.a_map, a_at, leader);
      tensor_load_pair(to + kBytesA, &p.b_map, b_at, leader);
    }
  }

  HT_DEVICE static void multiply(const Params& p, hw::TensorAddress d) {
    using namespace hw;
    set_role("multiply");
    constexpr tile::SharedTile a_tile = kTileA, b_tile = kTileB;
    for (uint32_t step = 0; step < p.k / 64; ++step) {
      const uint32_t stage = step % kStages, round = step / kStages;
      const uint32_t from = shared_memory_base().value + stage * kStageBytes;
      mbarrier_wait<Scope::cluster>(full(stage), round & 1);
      tcgen05_fence_after_thread_sync();
      const auto a = Tcgen05Descriptor::of(a_tile, from);
      const auto b = Tcgen05Descriptor::of(b_tile, from + kBytesA);
      for (uint32_t k = 0; k < 64; k += 16) {
        tcgen05_mma<Tcgen05Kind::f16, kPair>(d, a.advanced(a_tile.advance(0, k)),
                                             b.advanced(b_tile.advance(0, k)),
                                             kInstruction.encode(), step + k > 0);
      }
      tcgen05_commit_multicast<kPair>(empty(stage), kBoth);
    }
    tcgen05_commit_multicast<kPair>(done(), kBoth);
  }

  HT_DEVICE static void store(const Params& p, hw::TensorAddress window) {
    using namespace hw;
    set_role("store");
    mbarrier_wait<Scope::cluster>(done(), 0);
    tcgen05_fence_after_thread_sync();
    float* row = p.d + (cluster_rank() * 128 + thread_index().x) * 128;
    for (uint32_t column = 0; column < 128; column += 32) {
      uint32_t r[32];
      tcgen05_ld<TensorShape::s32x32b, 32>(r, window.plus(0, column));
      tcgen05_wait_ld(r);
      for (uint32_t i = 0; i < 32; i += 4) {
        store_global(reinterpret_cast<Words4*>(row + column + i),
                     Words4{{r[i], r[i + 1], r[i + 2], r[i + 3]}});
      }
    }
  }
};

}  // namespace halftone::test
