// Tensor copies (cp.async.bulk.tensor) of boxes of rank 1 to 5, by a tensor map. `at` holds the
// coordinates of the box, dimension 0 (the fastest) first: tensor_load(to, &map, {x, y}, barrier).
// Shared memory is aligned to 128 bytes, for swizzled boxes to the pattern (1024, 512, 256). Loads
// complete the whole box's bytes at an mbarrier, also where it leaves the tensor; stores join the
// thread's bulk group (bulk_copy.h: bulk_commit, bulk_wait, bulk_wait_read).
#pragma once
#include "hw/copy/bulk_copy.h"
#include "hw/copy/bulk_reduce.h"
#include "hw/copy/tensor_map.h"

namespace halftone::hw {

#if HT_GPU
// The instruction for the rank of `at`. The operands given come first; the coordinates follow them
// as numbers c0 to c4.
#define HT_TENSOR_COPY(name, before, after, c0, c1, c2, c3, c4, ...)                               \
  if constexpr (kRank == 1) {                                                                      \
    asm volatile(name ".1d" before "{%" #c0 "}" after ::__VA_ARGS__, "r"(at[0]) : "memory");       \
  } else if constexpr (kRank == 2) {                                                               \
    asm volatile(name ".2d" before "{%" #c0 ", %" #c1 "}" after ::__VA_ARGS__, "r"(at[0]),         \
                 "r"(at[1])                                                                        \
                 : "memory");                                                                      \
  } else if constexpr (kRank == 3) {                                                               \
    asm volatile(name ".3d" before "{%" #c0 ", %" #c1 ", %" #c2 "}" after ::__VA_ARGS__,           \
                 "r"(at[0]), "r"(at[1]), "r"(at[2])                                                \
                 : "memory");                                                                      \
  } else if constexpr (kRank == 4) {                                                               \
    asm volatile(name ".4d" before "{%" #c0 ", %" #c1 ", %" #c2 ", %" #c3 "}" after ::__VA_ARGS__, \
                 "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])                                    \
                 : "memory");                                                                      \
  } else {                                                                                         \
    asm volatile(name ".5d" before "{%" #c0 ", %" #c1 ", %" #c2 ", %" #c3 ", %" #c4                \
                      "}" after ::__VA_ARGS__,                                                     \
                 "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4])                        \
                 : "memory");                                                                      \
  }
#endif

// Global to shared memory.
template <int kRank, class Target = ThisTarget>
HT_DEVICE void tensor_load(SharedAddress to, const TensorMap* map, const int32_t (&at)[kRank],
                           Mbarrier barrier, Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "tensor copies exist from sm_90 on");
  static_assert(kRank >= 1 && kRank <= 5, "a tensor copy has 1 to 5 dimensions");
#if HT_GPU
  HT_TENSOR_COPY("cp.async.bulk.tensor",
                 ".shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, ",
                 "], [%2];", 3, 4, 5, 6, 7, "r"(to.value), "l"(map), "r"(barrier.address.value))
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "cp.async.bulk.tensor", site);
  sim::tensor_load(sim::self(), model::simulated(map), at, to.value, barrier.address.value, 0,
                   site);
#endif
}

template <int kRank, class Target = ThisTarget>
HT_DEVICE void tensor_load(SharedAddress to, const TensorMap* map, const int32_t (&at)[kRank],
                           Mbarrier barrier, CachePolicy policy, Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "tensor copies exist from sm_90 on");
  static_assert(kRank >= 1 && kRank <= 5, "a tensor copy has 1 to 5 dimensions");
#if HT_GPU
  HT_TENSOR_COPY("cp.async.bulk.tensor",
                 ".shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
                 "[%1, ",
                 "], [%2], %3;", 4, 5, 6, 7, 8, "r"(to.value), "l"(map), "r"(barrier.address.value),
                 "l"(policy.bits))
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "cp.async.bulk.tensor", site);
  static_cast<void>(policy);
  sim::tensor_load(sim::self(), model::simulated(map), at, to.value, barrier.address.value, 0,
                   site);
#endif
}

// To the same offset in every block of the cluster whose rank's bit is set; each one's barrier, at
// the same offset, gets the bytes of the whole box.
template <int kRank, class Target = ThisTarget>
HT_DEVICE void tensor_load_multicast(SharedAddress to, const TensorMap* map,
                                     const int32_t (&at)[kRank], Mbarrier barrier, uint16_t blocks,
                                     Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "tensor copies exist from sm_90 on");
  static_assert(kRank >= 1 && kRank <= 5, "a tensor copy has 1 to 5 dimensions");
#if HT_GPU
  HT_TENSOR_COPY("cp.async.bulk.tensor",
                 ".shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, ",
                 "], [%2], %3;", 4, 5, 6, 7, 8, "r"(to.value), "l"(map), "r"(barrier.address.value),
                 "h"(blocks))
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "cp.async.bulk.tensor", site);
  sim::tensor_load(sim::self(), model::simulated(map), at, to.value, barrier.address.value, blocks,
                   site);
#endif
}

template <int kRank, class Target = ThisTarget>
HT_DEVICE void tensor_load_multicast(SharedAddress to, const TensorMap* map,
                                     const int32_t (&at)[kRank], Mbarrier barrier, uint16_t blocks,
                                     CachePolicy policy, Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "tensor copies exist from sm_90 on");
  static_assert(kRank >= 1 && kRank <= 5, "a tensor copy has 1 to 5 dimensions");
#if HT_GPU
  HT_TENSOR_COPY("cp.async.bulk.tensor",
                 ".shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
                 ".L2::cache_hint [%0], [%1, ",
                 "], [%2], %3, %4;", 5, 6, 7, 8, 9, "r"(to.value), "l"(map),
                 "r"(barrier.address.value), "h"(blocks), "l"(policy.bits))
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "cp.async.bulk.tensor", site);
  static_cast<void>(policy);
  sim::tensor_load(sim::self(), model::simulated(map), at, to.value, barrier.address.value, blocks,
                   site);
#endif
}

// Shared to global memory; what lies outside the tensor is not written.
template <int kRank, class Target = ThisTarget>
HT_DEVICE void tensor_store(const TensorMap* map, const int32_t (&at)[kRank], SharedAddress from,
                            Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "tensor copies exist from sm_90 on");
  static_assert(kRank >= 1 && kRank <= 5, "a tensor copy has 1 to 5 dimensions");
#if HT_GPU
  HT_TENSOR_COPY("cp.async.bulk.tensor", ".global.shared::cta.tile.bulk_group [%0, ", "], [%1];", 2,
                 3, 4, 5, 6, "l"(map), "r"(from.value))
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "cp.async.bulk.tensor", site);
  sim::tensor_store(sim::self(), model::simulated(map), at, from.value, sim::TensorReduction::none,
                    site);
#endif
}

template <int kRank, class Target = ThisTarget>
HT_DEVICE void tensor_store(const TensorMap* map, const int32_t (&at)[kRank], SharedAddress from,
                            CachePolicy policy, Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "tensor copies exist from sm_90 on");
  static_assert(kRank >= 1 && kRank <= 5, "a tensor copy has 1 to 5 dimensions");
#if HT_GPU
  HT_TENSOR_COPY("cp.async.bulk.tensor", ".global.shared::cta.tile.bulk_group.L2::cache_hint [%0, ",
                 "], [%1], %2;", 3, 4, 5, 6, 7, "l"(map), "r"(from.value), "l"(policy.bits))
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "cp.async.bulk.tensor", site);
  static_cast<void>(policy);
  sim::tensor_store(sim::self(), model::simulated(map), at, from.value, sim::TensorReduction::none,
                    site);
#endif
}

// The tensor becomes itself combined with the box, element by element, each one atomically; the
// map's type says what the elements are.
template <BulkReduction kReduction, int kRank, class Target = ThisTarget>
HT_DEVICE void tensor_reduce(const TensorMap* map, const int32_t (&at)[kRank], SharedAddress from,
                             Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "tensor copies exist from sm_90 on");
  static_assert(kRank >= 1 && kRank <= 5, "a tensor copy has 1 to 5 dimensions");
#if HT_GPU
  HT_TENSOR_COPY("cp.reduce.async.bulk.tensor", ".global.shared::cta.%2.tile.bulk_group [%0, ",
                 "], [%1];", 3, 4, 5, 6, 7, "l"(map), "r"(from.value),
                 "C"(Mnemonic<reduction_name<kReduction>()>::text))
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "cp.reduce.async.bulk.tensor", site);
  sim::tensor_store(sim::self(), model::simulated(map), at, from.value,
                    model::simulated(kReduction), site);
#endif
}

template <BulkReduction kReduction, int kRank, class Target = ThisTarget>
HT_DEVICE void tensor_reduce(const TensorMap* map, const int32_t (&at)[kRank], SharedAddress from,
                             CachePolicy policy, Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "tensor copies exist from sm_90 on");
  static_assert(kRank >= 1 && kRank <= 5, "a tensor copy has 1 to 5 dimensions");
#if HT_GPU
  HT_TENSOR_COPY("cp.reduce.async.bulk.tensor",
                 ".global.shared::cta.%3.tile.bulk_group.L2::cache_hint [%0, ", "], [%1], %2;", 4,
                 5, 6, 7, 8, "l"(map), "r"(from.value), "l"(policy.bits),
                 "C"(Mnemonic<reduction_name<kReduction>()>::text))
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "cp.reduce.async.bulk.tensor", site);
  static_cast<void>(policy);
  sim::tensor_store(sim::self(), model::simulated(map), at, from.value,
                    model::simulated(kReduction), site);
#endif
}

// Brings the box into the L2.
template <int kRank, class Target = ThisTarget>
HT_DEVICE void tensor_prefetch(const TensorMap* map, const int32_t (&at)[kRank],
                               Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "tensor copies exist from sm_90 on");
  static_assert(kRank >= 1 && kRank <= 5, "a tensor copy has 1 to 5 dimensions");
#if HT_GPU
  HT_TENSOR_COPY("cp.async.bulk.prefetch.tensor", ".L2.global.tile [%0, ", "];", 1, 2, 3, 4, 5,
                 "l"(map))
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "cp.async.bulk.tensor", site);
  sim::tensor_prefetch(sim::self(), model::simulated(map), at, site);
#endif
}

#if HT_GPU
#undef HT_TENSOR_COPY
#endif

}  // namespace halftone::hw
