// Ordinary stores and the copy engine or the tensor cores see shared memory through different
// proxies: a barrier orders threads, only a fence orders proxies.
#pragma once
#include <bit>

#include "bug.h"
#include "hw/barrier.h"
#include "hw/copy/bulk_copy.h"
#include "hw/fence.h"
#include "hw/mbarrier.h"
#include "hw/memory.h"
#include "hw/mma/wgmma.h"
#include "hw/thread.h"
#include "tile/descriptor.h"

namespace halftone::bugs {

// Stores, barrier, bulk copy: the copy may read what was there before.
template <bool kFixed>
struct MissingProxyFence {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t thread = hw::thread_index().x;
    const hw::SharedAddress row = hw::shared_memory_base();
    hw::store_shared(row + thread * 4, thread);  // [missing-proxy-fence]
    if constexpr (kFixed) hw::fence_proxy_async_shared();
    hw::barrier_sync();
    if (thread == 0) {
      hw::bulk_store(p.out, row, 512);  // [missing-proxy-fence]
      hw::bulk_commit();
      hw::bulk_wait<0>();
    }
  }
};

// The fence is there, the barrier is not: one thread's fence says nothing of the other threads.
template <bool kFixed>
struct MissingBarrierBeforeCopy {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t thread = hw::thread_index().x;
    const hw::SharedAddress row = hw::shared_memory_base();
    hw::store_shared(row + thread * 4, thread);  // [missing-barrier-before-copy]
    hw::fence_proxy_async_shared();
    if constexpr (kFixed) hw::barrier_sync();
    if (thread == 0) {
      hw::bulk_store(p.out, row, 512);  // [missing-barrier-before-copy]
      hw::bulk_commit();
      hw::bulk_wait<0>();
    }
  }
};

// A staging buffer is filled again while the copy of its last contents may still be reading.
template <bool kFixed>
struct StagingReused {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 32, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t thread = hw::thread_index().x;
    const hw::SharedAddress row = hw::shared_memory_base();
    for (uint32_t tile = 0; tile < 2; ++tile) {
      hw::store_shared(row + thread * 4, tile * 32 + thread);  // [staging-reused]
      hw::fence_proxy_async_shared();
      hw::barrier_sync();
      if (thread == 0) {
        hw::bulk_store(p.out + tile * 32, row, 128);  // [staging-reused]
        hw::bulk_commit();
        if constexpr (kFixed) hw::bulk_wait_read<0>();
      }
      hw::barrier_sync();
    }
    if (thread == 0) hw::bulk_wait<0>();
  }
};

// Threads write the operand of wgmma, which reads through the async proxy.
template <bool kFixed>
struct OperandWithoutFence {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t thread = hw::thread_index().x;
    const hw::SharedAddress tile = hw::shared_memory_base();
    for (uint32_t word = thread; word < 64 * 32; word += 128) {
      hw::store_shared(tile + word * 4, 0x3f803f80u);  // [operand-without-fence]
    }
    if constexpr (kFixed) hw::fence_proxy_async_shared();
    hw::barrier_sync();
    constexpr tile::SharedTile kOperand{.mn = 64, .k = 64};
    const auto rows = tile::WgmmaDescriptor::of(kOperand, tile.value);
    float sums[4] = {};
    hw::wgmma_fence();
    hw::wgmma<hw::Type::bf16>(sums, rows, rows, false);  // [operand-without-fence]
    hw::wgmma_commit();
    hw::wgmma_wait<0>();
    hw::store_global(p.out + thread, std::bit_cast<uint32_t>(sums[0]));
  }
};

}  // namespace halftone::bugs
