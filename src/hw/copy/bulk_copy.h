// cp.async.bulk: copies of bytes (a multiple of 16, both ends aligned to 16) by the copy engine, in
// the async proxy. Loads complete their bytes at an mbarrier; stores join the thread's bulk group.
#pragma once
#include <cstdint>

#include "hw/address.h"
#include "hw/target.h"
#if !defined(__CUDACC__)
#include "sim/memory/memory.h"
#include "sim/sim.h"
#endif

namespace halftone::hw {

// Global to shared memory.
template <class Target = ThisTarget>
HT_DEVICE void bulk_load(SharedAddress to, const void* from, uint32_t bytes, Mbarrier barrier,
                         Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "bulk copies exist from sm_90 on");
#if HT_GPU
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to.value),
      "l"(from), "r"(bytes), "r"(barrier.address.value)
      : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "cp.async.bulk", site);
  sim::bulk_load(sim::self(), to.value, from, bytes, barrier.address.value, 0, site);
#endif
}

template <class Target = ThisTarget>
HT_DEVICE void bulk_load(SharedAddress to, const void* from, uint32_t bytes, Mbarrier barrier,
                         CachePolicy policy, Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "bulk copies exist from sm_90 on");
#if HT_GPU
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], "
      "%2, [%3], %4;" ::"r"(to.value),
      "l"(from), "r"(bytes), "r"(barrier.address.value), "l"(policy.bits)
      : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "cp.async.bulk", site);
  static_cast<void>(policy);
  sim::bulk_load(sim::self(), to.value, from, bytes, barrier.address.value, 0, site);
#endif
}

// To the same offset in every block of the cluster whose rank's bit is set, each block's barrier at
// the same offset.
template <class Target = ThisTarget>
HT_DEVICE void bulk_load_multicast(SharedAddress to, const void* from, uint32_t bytes,
                                   Mbarrier barrier, uint16_t blocks, Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "bulk copies exist from sm_90 on");
#if HT_GPU
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1], %2, [%3], %4;" ::"r"(to.value),
      "l"(from), "r"(bytes), "r"(barrier.address.value), "h"(blocks)
      : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "cp.async.bulk", site);
  sim::bulk_load(sim::self(), to.value, from, bytes, barrier.address.value, blocks, site);
#endif
}

template <class Target = ThisTarget>
HT_DEVICE void bulk_load_multicast(SharedAddress to, const void* from, uint32_t bytes,
                                   Mbarrier barrier, uint16_t blocks, CachePolicy policy,
                                   Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "bulk copies exist from sm_90 on");
#if HT_GPU
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      ".L2::cache_hint [%0], [%1], %2, [%3], %4, %5;" ::"r"(to.value),
      "l"(from), "r"(bytes), "r"(barrier.address.value), "h"(blocks), "l"(policy.bits)
      : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "cp.async.bulk", site);
  static_cast<void>(policy);
  sim::bulk_load(sim::self(), to.value, from, bytes, barrier.address.value, blocks, site);
#endif
}

// Shared memory of this block to that of another one, with a barrier of that one.
template <class Target = ThisTarget>
HT_DEVICE void bulk_send(ClusterAddress to, SharedAddress from, uint32_t bytes,
                         ClusterAddress barrier, Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "bulk copies exist from sm_90 on");
#if HT_GPU
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(to.value),
      "r"(from.value), "r"(bytes), "r"(barrier.value)
      : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "cp.async.bulk", site);
  sim::bulk_send(sim::self(), to.value, from.value, bytes, barrier.value, site);
#endif
}

// Shared to global memory.
template <class Target = ThisTarget>
HT_DEVICE void bulk_store(void* to, SharedAddress from, uint32_t bytes,
                          Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "bulk copies exist from sm_90 on");
#if HT_GPU
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(from.value), "r"(bytes)
               : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "cp.async.bulk", site);
  sim::bulk_store(sim::self(), to, from.value, bytes, site);
#endif
}

template <class Target = ThisTarget>
HT_DEVICE void bulk_store(void* to, SharedAddress from, uint32_t bytes, CachePolicy policy,
                          Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "bulk copies exist from sm_90 on");
#if HT_GPU
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(to),
      "r"(from.value), "r"(bytes), "l"(policy.bits)
      : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "cp.async.bulk", site);
  static_cast<void>(policy);
  sim::bulk_store(sim::self(), to, from.value, bytes, site);
#endif
}

// Closes the group of bulk stores since the last one.
template <class Target = ThisTarget>
HT_DEVICE void bulk_commit(Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "bulk copies exist from sm_90 on");
#if HT_GPU
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "cp.async.bulk", site);
  sim::commit_group(sim::self(), sim::Engine::bulk, site);
#endif
}

// Waits until all but the kPending latest groups are done: their writes are visible.
template <uint32_t kPending, class Target = ThisTarget>
HT_DEVICE void bulk_wait(Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "bulk copies exist from sm_90 on");
#if HT_GPU
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "cp.async.bulk", site);
  sim::wait_group(sim::self(), sim::Engine::bulk, kPending, false, site);
#endif
}

// Waits until all but the kPending latest groups have read their sources, which may then be reused.
template <uint32_t kPending, class Target = ThisTarget>
HT_DEVICE void bulk_wait_read(Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "bulk copies exist from sm_90 on");
#if HT_GPU
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "cp.async.bulk", site);
  sim::wait_group(sim::self(), sim::Engine::bulk, kPending, true, site);
#endif
}

// Brings the bytes into the L2.
template <class Target = ThisTarget>
HT_DEVICE void bulk_prefetch(const void* from, uint32_t bytes, Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "bulk copies exist from sm_90 on");
#if HT_GPU
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "cp.async.bulk", site);
  static_cast<void>(from);
  static_cast<void>(bytes);
#endif
}

}  // namespace halftone::hw
