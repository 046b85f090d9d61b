// Asynchronous copies end when they end: who reads must have waited, for the right barrier, the
// right bytes and the right threads.
#pragma once
#include <bit>

#include "bug.h"
#include "hw/barrier.h"
#include "hw/copy/cp_async.h"
#include "hw/copy/tma.h"
#include "hw/fence.h"
#include "hw/mbarrier.h"
#include "hw/memory.h"
#include "hw/mma/wgmma.h"
#include "hw/thread.h"
#include "hw/warp.h"
#include "tile/descriptor.h"

namespace halftone::bugs {

// cp.async groups are each thread's own: waiting for mine says nothing of my neighbour's.
template <bool kFixed>
struct CopyOfAnotherThread {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 64, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t thread = hw::thread_index().x;
    const hw::SharedAddress row = hw::shared_memory_base();
    hw::cp_async<4>(row + thread * 4, p.in + thread);  // [copy-of-another-thread]
    hw::cp_async_commit();
    hw::cp_async_wait<0>();
    if constexpr (kFixed) hw::barrier_sync();
    const uint32_t from = 63 - thread;
    const uint32_t word = hw::load_shared<uint32_t>(row + from * 4);  // [copy-of-another-thread]
    hw::store_global(p.out + thread, word);
  }
};

// The tile is read although nobody waited for its full barrier.
template <bool kFixed>
struct MissingFullWait {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 64, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t thread = hw::thread_index().x;
    const hw::SharedAddress tile = hw::shared_memory_base();
    const hw::Mbarrier full{tile + 8192};
    if (thread == 0) {
      hw::mbarrier_init(full, 1);
      hw::fence_mbarrier_init();
    }
    hw::barrier_sync();
    if (thread == 0) {
      hw::mbarrier_arrive_expect_tx(full, 8192);
      hw::tensor_load(tile, &p.rows, {0, 0}, full);  // [missing-full-wait]
    }
    if constexpr (kFixed) hw::mbarrier_wait(full, 0);
    const uint32_t word = hw::load_shared<uint32_t>(tile + thread * 4);  // [missing-full-wait]
    hw::store_global(p.out + thread, word);
    if constexpr (!kFixed) hw::mbarrier_wait(full, 0);
  }
};

// A box of 64 columns of bf16 is 8192 bytes, not 64 * 64 elements.
template <bool kFixed>
struct WrongByteCount {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 32, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t thread = hw::thread_index().x;
    const hw::SharedAddress tile = hw::shared_memory_base();
    const hw::Mbarrier full{tile + 8192};
    if (thread == 0) {
      hw::mbarrier_init(full, 1);
      hw::fence_mbarrier_init();
      hw::mbarrier_arrive_expect_tx(full, kFixed ? 8192 : 4096);
      hw::tensor_load(tile, &p.rows, {0, 0}, full);  // [wrong-byte-count]
    }
    hw::warp_sync();
    hw::mbarrier_wait(full, 0);
    hw::store_global(p.out + thread, hw::load_shared<uint32_t>(tile + thread * 4));
  }
};

// The second round waits with the parity of the first, which is long over.
template <bool kFixed>
struct StaleParity {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 32, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t thread = hw::thread_index().x;
    const hw::SharedAddress tile = hw::shared_memory_base();
    const hw::Mbarrier full{tile + 8192};
    if (thread == 0) {
      hw::mbarrier_init(full, 1);
      hw::fence_mbarrier_init();
    }
    hw::warp_sync();
    for (uint32_t round = 0; round < 2; ++round) {
      if (thread == 0) {
        hw::mbarrier_arrive_expect_tx(full, 8192);
        hw::tensor_load(tile, &p.rows, {0, 0}, full);  // [stale-parity]
      }
      hw::mbarrier_wait(full, kFixed ? round & 1 : 0);
      const uint32_t word = hw::load_shared<uint32_t>(tile + thread * 4);  // [stale-parity]
      hw::store_global(p.out + round * 32 + thread, word);
      hw::fence_proxy_async_shared();
      hw::warp_sync();
    }
    if constexpr (!kFixed) hw::mbarrier_wait(full, 1);
  }
};

// A tensor copy checks that the map's base belongs to somebody, even when the box does not start
// there: shifting the base back and the coordinates forward faults.
template <bool kFixed>
struct UnmappedBase {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 32, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t thread = hw::thread_index().x;
    const hw::SharedAddress tile = hw::shared_memory_base();
    const hw::Mbarrier full{tile + 8192};
    if (thread == 0) {
      hw::mbarrier_init(full, 1);
      hw::fence_mbarrier_init();
      hw::mbarrier_arrive_expect_tx(full, 8192);
      const hw::TensorMap* map = kFixed ? &p.rows : &p.unmapped;
      hw::tensor_load(tile, map, {0, kFixed ? 0 : 32}, full);  // [unmapped-base]
    }
    hw::warp_sync();
    hw::mbarrier_wait(full, 0);
    hw::store_global(p.out + thread, hw::load_shared<uint32_t>(tile + thread * 4));
  }
};

// The operand is 64 rows, the copy brought 32: the tensor cores multiply what was there before.
template <bool kFixed>
struct OperandOverread {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t thread = hw::thread_index().x;
    const hw::SharedAddress tile = hw::shared_memory_base();
    const hw::Mbarrier full{tile + 8192};
    if (thread == 0) {
      hw::mbarrier_init(full, 1);
      hw::fence_mbarrier_init();
    }
    hw::barrier_sync();
    if (thread == 0) {
      constexpr uint32_t kBytes = kFixed ? 8192 : 4096;
      hw::mbarrier_arrive_expect_tx(full, kBytes);
      hw::bulk_load(tile, p.in, kBytes, full);
    }
    hw::mbarrier_wait(full, 0);
    constexpr tile::SharedTile kOperand{.mn = 64, .k = 64};
    const auto rows = tile::WgmmaDescriptor::of(kOperand, tile.value);
    float sums[4] = {};
    hw::wgmma_fence();
    hw::wgmma<hw::Type::bf16>(sums, rows, rows, false);  // [operand-overread]
    hw::wgmma_commit();
    hw::wgmma_wait<0>();
    hw::store_global(p.out + thread, std::bit_cast<uint32_t>(sums[0]));
  }
};

// A swizzled tile begins at 128 bytes: the pattern repeats every 1024.
template <bool kFixed>
struct MisalignedSwizzle {
  using Params = bugs::Params;
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t thread = hw::thread_index().x;
    const hw::SharedAddress base = hw::shared_memory_base();
    const hw::SharedAddress tile = base + (kFixed ? 1024 : 128);
    const hw::Mbarrier full{base};
    if (thread == 0) {
      hw::mbarrier_init(full, 1);
      hw::fence_mbarrier_init();
    }
    hw::barrier_sync();
    if (thread == 0) {
      hw::mbarrier_arrive_expect_tx(full, 8192);
      hw::tensor_load(tile, &p.rows, {0, 0}, full);
    }
    hw::mbarrier_wait(full, 0);
    constexpr tile::SharedTile kOperand{.mn = 64, .k = 64};
    const auto rows = tile::WgmmaDescriptor::of(kOperand, tile.value);
    float sums[4] = {};
    hw::wgmma_fence();
    hw::wgmma<hw::Type::bf16>(sums, rows, rows, false);  // [misaligned-swizzle]
    hw::wgmma_commit();
    hw::wgmma_wait<0>();
    hw::store_global(p.out + thread, std::bit_cast<uint32_t>(sums[0]));
  }
};

}  // namespace halftone::bugs
