// D = A B^T in BF16 on sm_100a, one tile of 128 x 128: tensor copies fill a ring of stages, one
// thread multiplies from shared into tensor memory, four warps bring D home.
#pragma once
#include "hw/barrier.h"
#include "hw/copy/tma.h"
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

struct ProductBf16Sm100 {
  struct Params {
    hw::TensorMap a_map, b_map;  // [128, k] bf16 each, boxes of kTile
    float* d;                    // [128, 128]
    uint32_t k;                  // a multiple of 64
  };
  static constexpr uint32_t kThreads = 192, kMinBlocks = 1;
  // The K of a stage is what one line of the 128-byte swizzle holds.
  static constexpr tile::SharedTile kTile{tile::Major::k, tile::Swizzle::b128, 16, 128, 64};
  static constexpr uint32_t kStages = 2, kTileBytes = 128 * 128, kStageBytes = 2 * kTileBytes;
  static constexpr tile::Tcgen05Instruction kInstruction{.m = 128, .n = 128};
  static_assert(kInstruction.valid() && kTile.valid() && kTile.bytes() == kTileBytes);

  // Shared memory: the stages (A, then B), barriers full and empty of each, done, D's address.
  static constexpr uint32_t kBarriers = kStages * kStageBytes;
  static constexpr uint32_t kSharedBytes = kBarriers + 64;
  HT_DEVICE static hw::Mbarrier full(uint32_t stage) {
    return {hw::shared_memory_base() + kBarriers + stage * 16};
  }
  HT_DEVICE static hw::Mbarrier empty(uint32_t stage) {
    return {hw::shared_memory_base() + kBarriers + stage * 16 + 8};
  }
  HT_DEVICE static hw::Mbarrier done() { return {hw::shared_memory_base() + kBarriers + 48}; }

  // Warps 0 to 3 each own 32 lanes of D; warp 4 copies, warp 5 multiplies and owns tensor memory.
  HT_DEVICE static void run(const Params& p) {
    using namespace hw;
    const uint32_t warp = warp_index();
    const SharedAddress address = shared_memory_base() + kBarriers + 56;
    if (warp == 5) tcgen05_alloc<CtaGroup::one>(address, 128);
    if (thread_index().x == 128) {
      for (uint32_t stage = 0; stage < kStages; ++stage) {
        mbarrier_init(full(stage), 1);
        mbarrier_init(empty(stage), 1);
      }
      mbarrier_init(done(), 1);
      fence_mbarrier_init();
    }
    // The allocation is a tcgen05 instruction of another thread.
    tcgen05_fence_before_thread_sync();
    barrier_sync();
    tcgen05_fence_after_thread_sync();
    const TensorAddress d{load_shared<uint32_t>(address)};
    if (warp == 4) {
      if (elect_one()) copy(p);
      warp_sync();
    } else if (warp == 5) {
      if (elect_one()) multiply(p, d);
      warp_sync();
    } else {
      store(p, d.plus(warp * 32, 0));
    }
    tcgen05_fence_before_thread_sync();
    barrier_sync();
    if (warp == 5) {
      tcgen05_fence_after_thread_sync();
      tcgen05_relinquish_alloc_permit<CtaGroup::one>();
      tcgen05_dealloc<CtaGroup::one>(d, 128);
    }
  }

 private:
  HT_DEVICE static void copy(const Params& p) {
    hw::set_role("copy");
    for (uint32_t step = 0; step < p.k / kTile.k; ++step) {
      const uint32_t stage = step % kStages, round = step / kStages;
      const hw::SharedAddress to = hw::shared_memory_base() + stage * kStageBytes;
      hw::mbarrier_wait(empty(stage), (round & 1) ^ 1);
      hw::mbarrier_arrive_expect_tx(full(stage), kStageBytes);
      const int32_t at[2] = {static_cast<int32_t>(step * kTile.k), 0};
      hw::tensor_load(to, &p.a_map, at, full(stage));
      hw::tensor_load(to + kTileBytes, &p.b_map, at, full(stage));
    }
  }

  HT_DEVICE static void multiply(const Params& p, hw::TensorAddress d) {
    using namespace hw;
    set_role("multiply");
    constexpr tile::SharedTile tile = kTile;  // device code has no address of a static member
    for (uint32_t step = 0; step < p.k / kTile.k; ++step) {
      const uint32_t stage = step % kStages, round = step / kStages;
      const uint32_t from = shared_memory_base().value + stage * kStageBytes;
      mbarrier_wait(full(stage), round & 1);
      tcgen05_fence_after_thread_sync();
      const auto a = Tcgen05Descriptor::of(tile, from);
      const auto b = Tcgen05Descriptor::of(tile, from + kTileBytes);
      for (uint32_t k = 0; k < kTile.k; k += 16) {
        const uint32_t along = tile.advance(0, k);
        tcgen05_mma<Tcgen05Kind::f16, CtaGroup::one>(d, a.advanced(along), b.advanced(along),
                                                     kInstruction.encode(), step + k > 0);
      }
      tcgen05_commit<CtaGroup::one>(empty(stage));
    }
    tcgen05_commit<CtaGroup::one>(done());
  }

  HT_DEVICE static void store(const Params& p, hw::TensorAddress window) {
    using namespace hw;
    set_role("store");
    mbarrier_wait(done(), 0);
    tcgen05_fence_after_thread_sync();
    float* row = p.d + thread_index().x * 128;
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
