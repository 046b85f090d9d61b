// Tensor memory of sm_100a: allocated by hand, written asynchronously, ordered by fences of its
// own.
#pragma once
#include "bug.h"
#include "hw/barrier.h"
#include "hw/fence.h"
#include "hw/mbarrier.h"
#include "hw/memory.h"
#include "hw/mma/tcgen05_alloc.h"
#include "hw/mma/tcgen05_ld_st.h"
#include "hw/mma/tcgen05_sync.h"
#include "hw/thread.h"
#include "hw/warp.h"

namespace halftone::bugs {

using hw::CtaGroup;
inline constexpr auto kLanes = tile::TensorShape::s32x32b;

// The allocating warp frees tensor memory while the other warps still read it.
template <bool kFixed>
struct FreedEarly {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t warp = hw::warp_index();
    const hw::SharedAddress slot = hw::shared_memory_base();
    if (warp == 0) {
      hw::tcgen05_alloc<CtaGroup::one>(slot, 32);
      hw::tcgen05_relinquish_alloc_permit<CtaGroup::one>();
    }
    hw::barrier_sync();
    const hw::TensorAddress memory{hw::load_shared<uint32_t>(slot)};
    const hw::TensorAddress mine = memory.plus(warp * 32, 0);
    uint32_t words[1] = {hw::thread_index().x};
    hw::tcgen05_st<kLanes, 1>(mine, words);
    hw::tcgen05_wait_st();
    hw::tcgen05_ld<kLanes, 1>(words, mine);
    hw::tcgen05_wait_ld();
    hw::store_global(p.out + hw::thread_index().x, words[0]);
    if constexpr (kFixed) {
      hw::tcgen05_fence_before_thread_sync();
      hw::barrier_sync();
      hw::tcgen05_fence_after_thread_sync();
    }
    if (warp == 0) hw::tcgen05_dealloc<CtaGroup::one>(memory, 32);  // [freed-early]
  }
};

// One warp writes an accumulator, another reads it: the barrier between needs both fences.
template <bool kFixed>
struct MissingTcgen05Fence {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 256, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t warp = hw::warp_index();
    const hw::SharedAddress slot = hw::shared_memory_base();
    if (warp == 0) {
      hw::tcgen05_alloc<CtaGroup::one>(slot, 32);
      hw::tcgen05_relinquish_alloc_permit<CtaGroup::one>();
    }
    hw::barrier_sync();
    const hw::TensorAddress memory{hw::load_shared<uint32_t>(slot)};
    const hw::TensorAddress mine = memory.plus(warp % 4 * 32, 0);
    uint32_t words[1] = {hw::thread_index().x};
    if (warp < 4) {
      hw::set_role("writer");
      hw::tcgen05_st<kLanes, 1>(mine, words);  // [missing-tcgen05-fence]
      hw::tcgen05_wait_st();
      if constexpr (kFixed) hw::tcgen05_fence_before_thread_sync();
    }
    hw::barrier_sync();
    if (warp >= 4) {
      hw::set_role("reader");
      if constexpr (kFixed) hw::tcgen05_fence_after_thread_sync();
      hw::tcgen05_ld<kLanes, 1>(words, mine);  // [missing-tcgen05-fence]
      hw::tcgen05_wait_ld();
      hw::store_global(p.out + hw::thread_index().x, words[0]);
      hw::tcgen05_fence_before_thread_sync();
    }
    hw::barrier_sync();
    if (warp == 0) {
      hw::tcgen05_fence_after_thread_sync();
      hw::tcgen05_dealloc<CtaGroup::one>(memory, 32);
    }
  }
};

// 512 columns are all there are: the second allocation waits for the first one's end.
template <bool kFixed>
struct TensorMemoryOverallocated {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 32, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const hw::SharedAddress slots = hw::shared_memory_base();
    constexpr uint32_t kColumns = kFixed ? 256 : 512;
    hw::tcgen05_alloc<CtaGroup::one>(slots, kColumns);
    hw::tcgen05_alloc<CtaGroup::one>(slots + 4, kColumns);  // [tensor-memory-overallocated]
    hw::warp_sync();
    for (uint32_t i = 0; i < 2; ++i) {
      const hw::TensorAddress memory{hw::load_shared<uint32_t>(slots + 4 * i)};
      hw::tcgen05_dealloc<CtaGroup::one>(memory, kColumns);
    }
    hw::store_global(p.out + hw::thread_index().x, 1u);
  }
};

// Tensor memory is read before tcgen05.wait::st says that it was written.
template <bool kFixed>
struct StoreNotWaited {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t warp = hw::warp_index();
    const hw::SharedAddress slot = hw::shared_memory_base();
    if (warp == 0) hw::tcgen05_alloc<CtaGroup::one>(slot, 32);
    hw::barrier_sync();
    const hw::TensorAddress memory{hw::load_shared<uint32_t>(slot)};
    const hw::TensorAddress mine = memory.plus(warp * 32, 0);
    uint32_t words[1] = {hw::thread_index().x};
    hw::tcgen05_st<kLanes, 1>(mine, words);  // [store-not-waited]
    if constexpr (kFixed) hw::tcgen05_wait_st();
    hw::tcgen05_ld<kLanes, 1>(words, mine);  // [store-not-waited]
    hw::tcgen05_wait_ld();
    if constexpr (!kFixed) hw::tcgen05_wait_st();
    hw::store_global(p.out + hw::thread_index().x, words[0]);
    hw::tcgen05_fence_before_thread_sync();
    hw::barrier_sync();
    hw::tcgen05_fence_after_thread_sync();
    if (warp == 0) hw::tcgen05_dealloc<CtaGroup::one>(memory, 32);
  }
};

}  // namespace halftone::bugs
