// Tensor copies that came with sm_100a: four rows gathered or scattered (tile::gather4 exists on
// sm_120a too), and loads whose bytes are signalled at a barrier of either block of a pair.
//
// A gather reads rows at[1] to at[4] of a tensor of two dimensions, from column at[0] on, and lays
// them one after another; the map's box is one row. The barrier gets the bytes of all four.
#pragma once
#include "hw/copy/bulk_copy.h"
#include "hw/copy/tensor_address.h"
#include "hw/copy/tensor_map.h"
#if !defined(__CUDACC__)
#include "sim/memory/tensor_pair_copy.h"
#include "sim/sim.h"
#endif

namespace halftone::hw {

template <class Target = ThisTarget>
HT_DEVICE void tensor_load_gather4(SharedAddress to, const TensorMap* map, const int32_t (&at)[5],
                                   Mbarrier barrier, Site site = Site::current()) {
  static_assert(Target::has(Feature::tma_gather4), "gather4 exists on sm_100a and sm_120a");
#if HT_GPU
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to.value),
      "l"(map), "r"(barrier.address.value), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]),
      "r"(at[4])
      : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::tma_gather4, "cp.async.bulk.tensor.gather4", site);
  sim::tensor_load_gather4(map, at, to.value, barrier.address.value, 0, 1, site);
#endif
}

template <class Target = ThisTarget>
HT_DEVICE void tensor_load_gather4(SharedAddress to, const TensorMap* map, const int32_t (&at)[5],
                                   Mbarrier barrier, CachePolicy policy,
                                   Site site = Site::current()) {
  static_assert(Target::has(Feature::tma_gather4), "gather4 exists on sm_100a and sm_120a");
#if HT_GPU
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%4, %5, %6, %7, %8}], [%2], %3;" ::"r"(to.value),
      "l"(map), "r"(barrier.address.value), "l"(policy.bits), "r"(at[0]), "r"(at[1]), "r"(at[2]),
      "r"(at[3]), "r"(at[4])
      : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::tma_gather4, "cp.async.bulk.tensor.gather4", site);
  static_cast<void>(policy);
  sim::tensor_load_gather4(map, at, to.value, barrier.address.value, 0, 1, site);
#endif
}

// To the same offset in every block of the cluster whose rank's bit is set. For a pair, `barrier`
// may lie in either block: each destination signals the one of its own pair with that rank's
// parity.
template <CtaGroup group, class Target = ThisTarget>
HT_DEVICE void tensor_load_gather4_multicast(SharedAddress to, const TensorMap* map,
                                             const int32_t (&at)[5], ClusterAddress barrier,
                                             uint16_t blocks, Site site = Site::current()) {
  static_assert(Target::has(Feature::tma_cta_group), "it exists on sm_100a only");
#if HT_GPU
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes"
      ".multicast::cluster.%9 [%0], [%1, {%4, %5, %6, %7, %8}], [%2], %3;" ::"r"(to.value),
      "l"(map), "r"(barrier.value), "h"(blocks), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]),
      "r"(at[4]), "C"(CtaGroupName<group>::text)
      : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::tma_cta_group, "cp.async.bulk.tensor.gather4", site);
  sim::tensor_load_gather4(map, at, to.value, barrier.value, blocks, static_cast<uint32_t>(group),
                           site);
#endif
}

// Four rows of shared memory to rows at[1] to at[4] of the tensor; joins the thread's bulk group.
template <class Target = ThisTarget>
HT_DEVICE void tensor_store_scatter4(const TensorMap* map, const int32_t (&at)[5],
                                     SharedAddress from, Site site = Site::current()) {
  static_assert(Target::has(Feature::tma_cta_group), "scatter4 exists on sm_100a only");
#if HT_GPU
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group "
      "[%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(map),
      "r"(from.value), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4])
      : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::tma_cta_group, "cp.async.bulk.tensor.scatter4", site);
  sim::tensor_store_scatter4(map, at, from.value, site);
#endif
}

// Brings the four rows into the L2.
template <class Target = ThisTarget>
HT_DEVICE void tensor_prefetch_gather4(const TensorMap* map, const int32_t (&at)[5],
                                       Site site = Site::current()) {
  static_assert(Target::has(Feature::tma_cta_group), "this prefetch exists on sm_100a only");
#if HT_GPU
  asm volatile(
      "cp.async.bulk.prefetch.tensor.2d.L2.global.tile::gather4 [%0, {%1, %2, %3, %4, %5}];" ::"l"(
          map),
      "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4])
      : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::tma_cta_group, "cp.async.bulk.prefetch.tensor.gather4", site);
  sim::tensor_prefetch_gather4(map, at, site);
#endif
}

#if HT_GPU
// The instruction for the rank of `at`: operands 0 to 4 come first, the coordinates follow.
#define HT_PAIR_LOAD(words, after, ...)                                                         \
  if constexpr (kRank == 1) {                                                                   \
    HT_PAIR_LOAD_RANK("1d", words, "{%5}", after, HT_AT(0), __VA_ARGS__);                       \
  } else if constexpr (kRank == 2) {                                                            \
    HT_PAIR_LOAD_RANK("2d", words, "{%5, %6}", after, HT_AT(0) HT_C HT_AT(1), __VA_ARGS__);     \
  } else if constexpr (kRank == 3) {                                                            \
    HT_PAIR_LOAD_RANK("3d", words, "{%5, %6, %7}", after, HT_AT(0) HT_C HT_AT(1) HT_C HT_AT(2), \
                      __VA_ARGS__);                                                             \
  } else if constexpr (kRank == 4) {                                                            \
    HT_PAIR_LOAD_RANK("4d", words, "{%5, %6, %7, %8}", after,                                   \
                      HT_AT(0) HT_C HT_AT(1) HT_C HT_AT(2) HT_C HT_AT(3), __VA_ARGS__);         \
  } else {                                                                                      \
    HT_PAIR_LOAD_RANK("5d", words, "{%5, %6, %7, %8, %9}", after,                               \
                      HT_AT(0) HT_C HT_AT(1) HT_C HT_AT(2) HT_C HT_AT(3) HT_C HT_AT(4),         \
                      __VA_ARGS__);                                                             \
  }
#define HT_PAIR_LOAD_RANK(rank, words, coordinates, after, at_operands, ...)     \
  asm volatile("cp.async.bulk.tensor." rank                                      \
               ".shared::cluster.global.tile.mbarrier::complete_tx::bytes" words \
               " [%0], [%1, " coordinates "], [%2]" after ";" ::__VA_ARGS__,     \
               at_operands                                                       \
               : "memory")
#define HT_AT(i) "r"(at[i])
#define HT_C ,
#endif

// A tensor copy as tma.h's tensor_load, for a block of a pair: `barrier` may lie in the other
// block.
template <int kRank, class Target = ThisTarget>
HT_DEVICE void tensor_load_pair(SharedAddress to, const TensorMap* map, const int32_t (&at)[kRank],
                                ClusterAddress barrier, CachePolicy policy = kEvictNormal,
                                Site site = Site::current()) {
  static_assert(Target::has(Feature::tma_cta_group), "cta_group::2 exists on sm_100a only");
  static_assert(kRank >= 1 && kRank <= 5);
#if HT_GPU
  HT_PAIR_LOAD(".cta_group::2.L2::cache_hint", ", %3", "r"(to.value), "l"(map), "r"(barrier.value),
               "l"(policy.bits), "n"(0))
#elif !defined(__CUDACC__)
  sim::require(Feature::tma_cta_group, "cp.async.bulk.tensor.cta_group::2", site);
  static_cast<void>(policy);
  sim::tensor_load_pair(map, kRank, at, to.value, barrier.value, 0, site);
#endif
}

// To the same offset in every block of the cluster whose rank's bit is set; each destination
// signals the barrier of its own pair that lies in the block with the parity of `barrier`'s.
template <int kRank, class Target = ThisTarget>
HT_DEVICE void tensor_load_pair_multicast(SharedAddress to, const TensorMap* map,
                                          const int32_t (&at)[kRank], ClusterAddress barrier,
                                          uint16_t blocks, CachePolicy policy = kEvictNormal,
                                          Site site = Site::current()) {
  static_assert(Target::has(Feature::tma_cta_group), "cta_group::2 exists on sm_100a only");
  static_assert(kRank >= 1 && kRank <= 5);
#if HT_GPU
  HT_PAIR_LOAD(".multicast::cluster.cta_group::2.L2::cache_hint", ", %3, %4", "r"(to.value),
               "l"(map), "r"(barrier.value), "h"(blocks), "l"(policy.bits))
#elif !defined(__CUDACC__)
  sim::require(Feature::tma_cta_group, "cp.async.bulk.tensor.cta_group::2", site);
  static_cast<void>(policy);
  sim::tensor_load_pair(map, kRank, at, to.value, barrier.value, blocks, site);
#endif
}

#if HT_GPU
#undef HT_C
#undef HT_AT
#undef HT_PAIR_LOAD_RANK
#undef HT_PAIR_LOAD
#endif

}  // namespace halftone::hw
