// Blocks of a cluster: barrier, each other's shared memory, and stores that signal a barrier.
#pragma once
#include "hw/access.h"
#include "hw/address.h"
#include "hw/mnemonic.h"
#include "hw/types.h"

namespace halftone::hw {

// All threads of all blocks of the cluster arrive once and wait once, in that order. The arrival
// releases, the wait acquires.
template <class Target = ThisTarget>
HT_DEVICE void cluster_arrive(Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "clusters exist from sm_90 on");
#if HT_GPU
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "barrier.cluster.arrive", site);
  sim::cluster_arrive(true, site);
#endif
}

// Without the release: nothing written before is handed over.
template <class Target = ThisTarget>
HT_DEVICE void cluster_arrive_relaxed(Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "clusters exist from sm_90 on");
#if HT_GPU
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "barrier.cluster.arrive.relaxed", site);
  sim::cluster_arrive(false, site);
#endif
}

template <class Target = ThisTarget>
HT_DEVICE void cluster_wait(Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "clusters exist from sm_90 on");
#if HT_GPU
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "barrier.cluster.wait", site);
  sim::cluster_wait(site);
#endif
}

// The address in block `rank` of the cluster that corresponds to `own` in this one.
template <class Target = ThisTarget>
HT_DEVICE ClusterAddress map_shared_rank(SharedAddress own, uint32_t rank,
                                         Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "clusters exist from sm_90 on");
  ClusterAddress address;
#if HT_GPU
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address.value) : "r"(own.value), "r"(rank));
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "mapa", site);
  address.value = sim::map_shared_rank(sim::self(), own.value, rank, site);
#endif
  return address;
}

// The rank of the block that the address belongs to.
template <class Target = ThisTarget>
HT_DEVICE uint32_t rank_of(ClusterAddress address, Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "clusters exist from sm_90 on");
  uint32_t rank = 0;
#if HT_GPU
  asm("getctarank.shared::cluster.u32 %0, %1;" : "=r"(rank) : "r"(address.value));
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "getctarank", site);
  rank = sim::shared_rank(sim::self(), address.value);
#endif
  return rank;
}

template <class T, class Target = ThisTarget>
HT_DEVICE T load_cluster(ClusterAddress from, Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "clusters exist from sm_90 on");
  T value{};
#if HT_GPU
  value = load_form<T, "ld.shared::cluster">(from.value);
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "ld.shared::cluster", site);
  value = sim::read_shared<T>(sim::self(), from.value, site);
#endif
  return value;
}

template <class T, class Target = ThisTarget>
HT_DEVICE void store_cluster(ClusterAddress to, const T& value, Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "clusters exist from sm_90 on");
#if HT_GPU
  store_form<T, "st.shared::cluster">(to.value, value);
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "st.shared::cluster", site);
  sim::write_shared(sim::self(), to.value, value, site);
#endif
}

// A store (4, 8 or 16 bytes) that completes its bytes at a barrier of the block it goes to.
template <class T, class Target = ThisTarget>
HT_DEVICE void st_async(ClusterAddress to, const T& value, ClusterAddress barrier,
                        Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "st.async exists from sm_90 on");
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16,
                "st.async stores 4, 8 or 16 bytes");
#if HT_GPU
  if constexpr (sizeof(T) == 4) {
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to.value),
        "r"(std::bit_cast<uint32_t>(value)), "r"(barrier.value)
        : "memory");
  } else if constexpr (sizeof(T) == 8) {
    const auto words = std::bit_cast<Vector<uint32_t, 2>>(value);
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(
            to.value),
        "r"(words.at[0]), "r"(words.at[1]), "r"(barrier.value)
        : "memory");
  } else {
    const auto words = std::bit_cast<Words4>(value);
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
        "[%5];" ::"r"(to.value),
        "r"(words.at[0]), "r"(words.at[1]), "r"(words.at[2]), "r"(words.at[3]), "r"(barrier.value)
        : "memory");
  }
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "st.async", site);
  sim::store_async(sim::self(), to.value, &value, sizeof(T), barrier.value, site);
#endif
}

}  // namespace halftone::hw
