// cp.async: copies of 4, 8 or 16 bytes from global to shared memory that a thread does not wait
// for. Groups are each thread's own: a wait makes only the thread's copies visible, and only to
// itself.
#pragma once
#include <cstdint>

#include "hw/address.h"
#if !defined(__CUDACC__)
#include "sim/memory/memory.h"
#include "sim/sim.h"
#endif

namespace halftone::hw {

// Through L1 as well (4, 8, 16 bytes), or through L2 only (16 bytes).
enum class CopyCache : uint8_t { all, global };

template <uint32_t kBytes, CopyCache kCache = kBytes == 16 ? CopyCache::global : CopyCache::all>
HT_DEVICE void cp_async(SharedAddress to, const void* from, Site site = Site::current()) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16, "cp.async copies 4, 8 or 16 bytes");
  static_assert(kCache == CopyCache::all || kBytes == 16, "past L1 only 16 bytes");
#if HT_GPU
  if constexpr (kCache == CopyCache::global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to.value), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to.value), "l"(from), "n"(kBytes)
                 : "memory");
  }
#elif !defined(__CUDACC__)
  sim::cp_async(sim::self(), to.value, from, kBytes, kBytes, site);
#endif
}

// Reads the first `source_bytes` (0 to kBytes) and fills the rest with zeros.
template <uint32_t kBytes, CopyCache kCache = kBytes == 16 ? CopyCache::global : CopyCache::all>
HT_DEVICE void cp_async_zero_fill(SharedAddress to, const void* from, uint32_t source_bytes,
                                  Site site = Site::current()) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16, "cp.async copies 4, 8 or 16 bytes");
  static_assert(kCache == CopyCache::all || kBytes == 16, "past L1 only 16 bytes");
#if HT_GPU
  if constexpr (kCache == CopyCache::global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to.value), "l"(from),
                 "r"(source_bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to.value), "l"(from),
                 "n"(kBytes), "r"(source_bytes)
                 : "memory");
  }
#elif !defined(__CUDACC__)
  sim::cp_async(sim::self(), to.value, from, kBytes, source_bytes, site);
#endif
}

// 16 bytes, with the L2's treatment of the line.
HT_DEVICE void cp_async_hint(SharedAddress to, const void* from, CachePolicy policy,
                             Site site = Site::current()) {
#if HT_GPU
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to.value),
               "l"(from), "l"(policy.bits)
               : "memory");
#elif !defined(__CUDACC__)
  static_cast<void>(policy);
  sim::cp_async(sim::self(), to.value, from, 16, 16, site);
#endif
}

// Closes the group of copies since the last one.
HT_DEVICE void cp_async_commit(Site site = Site::current()) {
#if HT_GPU
  asm volatile("cp.async.commit_group;" ::: "memory");
#elif !defined(__CUDACC__)
  sim::commit_group(sim::self(), sim::Engine::cp_async, site);
#endif
}

// Waits until at most kPending of the latest groups are in flight.
template <uint32_t kPending>
HT_DEVICE void cp_async_wait(Site site = Site::current()) {
#if HT_GPU
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#elif !defined(__CUDACC__)
  sim::wait_group(sim::self(), sim::Engine::cp_async, kPending, false, site);
#endif
}

// Waits for every copy, committed or not.
HT_DEVICE void cp_async_wait_all(Site site = Site::current()) {
#if HT_GPU
  asm volatile("cp.async.wait_all;" ::: "memory");
#elif !defined(__CUDACC__)
  sim::commit_group(sim::self(), sim::Engine::cp_async, site);
  sim::wait_group(sim::self(), sim::Engine::cp_async, 0, false, site);
#endif
}

// An arrival at the barrier once all copies of this thread so far are done. It counts: the barrier
// was initialised with it in its count.
HT_DEVICE void cp_async_mbarrier_arrive_noinc(Mbarrier barrier, Site site = Site::current()) {
#if HT_GPU
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier.address.value)
               : "memory");
#elif !defined(__CUDACC__)
  sim::cp_async_mbarrier_arrive(sim::self(), barrier.address.value, true, site);
#endif
}

// The same, adding one to the pending count first, so that it does not count.
HT_DEVICE void cp_async_mbarrier_arrive(Mbarrier barrier, Site site = Site::current()) {
#if HT_GPU
  asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" ::"r"(barrier.address.value) : "memory");
#elif !defined(__CUDACC__)
  sim::cp_async_mbarrier_arrive(sim::self(), barrier.address.value, false, site);
#endif
}

}  // namespace halftone::hw
