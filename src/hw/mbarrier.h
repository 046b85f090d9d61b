// mbarrier: a barrier in shared memory that counts arrivals and bytes; the phase ends when no
// arrival and no byte is pending. Waits name the parity of the phase they wait for: the first phase
// is 0, and on a fresh barrier a wait for parity 1 returns at once. Arrivals release, waits
// acquire; the scope is the block unless named otherwise. Data handed to another block of the
// cluster needs Scope::cluster on both sides.
#pragma once
#include <cstdint>

#include "hw/address.h"
#include "hw/mbarrier_wait.h"
#include "hw/types.h"

namespace halftone::hw {

// Expects `count` arrivals a phase. Visible to other threads after a barrier; to other blocks and
// to the async proxy after fence_mbarrier_init (fence.h) too.
HT_DEVICE void mbarrier_init(Mbarrier barrier, uint32_t count, Site site = Site::current()) {
#if HT_GPU
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier.address.value), "r"(count)
               : "memory");
#elif !defined(__CUDACC__)
  sim::mbarrier_init(sim::self(), barrier.address.value, count, site);
#endif
}

// Names the barrier "name[index]" in reports of the simulator; no instruction.
HT_DEVICE void name_mbarrier(Mbarrier barrier, const char* name, uint32_t index) {
#if HT_GPU
  static_cast<void>(barrier), static_cast<void>(name), static_cast<void>(index);
#elif !defined(__CUDACC__)
  sim::name_barrier(sim::self(), barrier.address.value,
                    std::string(name) + "[" + std::to_string(index) + "]");
#endif
}

// The memory is no barrier any longer.
HT_DEVICE void mbarrier_inval(Mbarrier barrier, Site site = Site::current()) {
#if HT_GPU
  asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(barrier.address.value) : "memory");
#elif !defined(__CUDACC__)
  sim::mbarrier_inval(sim::self(), barrier.address.value, site);
#endif
}

HT_DEVICE void mbarrier_arrive(Mbarrier barrier, Site site = Site::current()) {
#if HT_GPU
  asm volatile(
      "{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(barrier.address.value)
      : "memory");
#elif !defined(__CUDACC__)
  sim::mbarrier_arrive(sim::self(), barrier.address.value, {}, site);
#endif
}

// `count` arrivals at once.
template <class Target = ThisTarget>
HT_DEVICE void mbarrier_arrive(Mbarrier barrier, uint32_t count, Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "arrivals by count exist from sm_90 on");
#if HT_GPU
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier.address.value),
               "r"(count)
               : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "mbarrier.arrive with a count", site);
  sim::mbarrier_arrive(sim::self(), barrier.address.value, {.count = count}, site);
#endif
}

// Arrives, and this phase and the later ones expect one arrival less.
HT_DEVICE void mbarrier_arrive_drop(Mbarrier barrier, Site site = Site::current()) {
#if HT_GPU
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive_drop.shared.b64 state, [%0];\n}" ::"r"(
                   barrier.address.value)
               : "memory");
#elif !defined(__CUDACC__)
  sim::mbarrier_arrive(sim::self(), barrier.address.value, {.drop = true}, site);
#endif
}

// The phase waits for `bytes` more bytes, and one arrival less.
template <class Target = ThisTarget>
HT_DEVICE void mbarrier_arrive_expect_tx(Mbarrier barrier, uint32_t bytes,
                                         Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "mbarrier counts bytes from sm_90 on");
#if HT_GPU
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier.address.value),
      "r"(bytes)
      : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "mbarrier.arrive.expect_tx", site);
  sim::mbarrier_arrive(sim::self(), barrier.address.value, {.expect_bytes = bytes}, site);
#endif
}

template <class Target = ThisTarget>
HT_DEVICE void mbarrier_expect_tx(Mbarrier barrier, uint32_t bytes, Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "mbarrier counts bytes from sm_90 on");
#if HT_GPU
  asm volatile(
      "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier.address.value),
      "r"(bytes)
      : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "mbarrier.expect_tx", site);
  sim::mbarrier_expect_tx(sim::self(), barrier.address.value, bytes, site);
#endif
}

// What a copy does at its end: `bytes` fewer are pending.
template <class Target = ThisTarget>
HT_DEVICE void mbarrier_complete_tx(Mbarrier barrier, uint32_t bytes, Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "mbarrier counts bytes from sm_90 on");
#if HT_GPU
  asm volatile(
      "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier.address.value),
      "r"(bytes)
      : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "mbarrier.complete_tx", site);
  sim::mbarrier_complete_tx(sim::self(), barrier.address.value, bytes, site);
#endif
}

// At a barrier of any block of the cluster; releases to the cluster.
template <class Target = ThisTarget>
HT_DEVICE void mbarrier_arrive_cluster(ClusterAddress barrier, uint32_t count = 1,
                                       Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "clusters exist from sm_90 on");
#if HT_GPU
  asm volatile(
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(barrier.value),
      "r"(count)
      : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "mbarrier.arrive.shared::cluster", site);
  sim::mbarrier_arrive(sim::self(), barrier.value,
                       {.count = count, .scope = sim::MemoryScope::cluster}, site);
#endif
}

// Without the release: says that the caller is done with memory that it has only read, and whose
// reads are complete (wgmma after wgmma_wait); hands no writes over. The releasing form is a fence
// of the whole GPU (MEMBAR.ALL.GPU): in the main loop of a product it cost a quarter of the time.
template <class Target = ThisTarget>
HT_DEVICE void mbarrier_arrive_cluster_relaxed(ClusterAddress barrier, uint32_t count = 1,
                                               Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "clusters exist from sm_90 on");
#if HT_GPU
  asm volatile(
      "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(barrier.value),
      "r"(count)
      : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "mbarrier.arrive.relaxed.shared::cluster", site);
  sim::mbarrier_arrive(
      sim::self(), barrier.value,
      {.count = count, .order = sim::Order::relaxed, .scope = sim::MemoryScope::cluster}, site);
#endif
}

template <class Target = ThisTarget>
HT_DEVICE void mbarrier_arrive_expect_tx_cluster(ClusterAddress barrier, uint32_t bytes,
                                                 Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "clusters exist from sm_90 on");
#if HT_GPU
  asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(
                   barrier.value),
               "r"(bytes)
               : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "mbarrier.arrive.expect_tx.shared::cluster", site);
  sim::mbarrier_arrive(sim::self(), barrier.value,
                       {.expect_bytes = bytes, .scope = sim::MemoryScope::cluster}, site);
#endif
}

}  // namespace halftone::hw
