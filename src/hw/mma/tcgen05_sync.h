// Order among tcgen05 instructions of several threads (sm_100a): commits to an mbarrier and the two
// thread-synchronisation fences; and the shift of tensor memory.
#pragma once
#include "hw/address.h"
#include "hw/copy/tensor_address.h"

#if !defined(__CUDACC__)
#include "sim/memory/memory.h"
#include "sim/mma/tcgen05.h"
#include "sim/sim.h"
#endif

namespace halftone::hw {

// One arrival on `barrier` when all mma, cp and shift of this thread so far, of this group, are
// done. A fence before_thread_sync is implied.
template <CtaGroup group, class Target = ThisTarget>
HT_DEVICE void tcgen05_commit(Mbarrier barrier, Site site = Site::current()) {
  static_assert(Target::has(Feature::tcgen05), "tcgen05.commit exists on sm_100a only");
#if HT_GPU
  asm volatile("tcgen05.commit.%1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
                   barrier.address.value),
               "C"(CtaGroupName<group>::text)
               : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::tcgen05, "tcgen05.commit", site);
  sim::tcgen05_commit(sim::self(), static_cast<uint32_t>(group), barrier.address.value, 0, site);
#endif
}

// The same on the mbarrier at this offset in every block of the cluster whose rank's bit is set.
template <CtaGroup group, class Target = ThisTarget>
HT_DEVICE void tcgen05_commit_multicast(Mbarrier barrier, uint16_t blocks,
                                        Site site = Site::current()) {
  static_assert(Target::has(Feature::tcgen05), "tcgen05.commit exists on sm_100a only");
#if HT_GPU
  asm volatile(
      "tcgen05.commit.%2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::
          "r"(barrier.address.value),
      "h"(blocks), "C"(CtaGroupName<group>::text)
      : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::tcgen05, "tcgen05.commit", site);
  sim::tcgen05_commit(sim::self(), static_cast<uint32_t>(group), barrier.address.value, blocks,
                      site);
#endif
}

// Before the synchronisation that hands what this thread's tcgen05 instructions did to another one.
template <class Target = ThisTarget>
HT_DEVICE void tcgen05_fence_before_thread_sync(Site site = Site::current()) {
  static_assert(Target::has(Feature::tcgen05), "tcgen05.fence exists on sm_100a only");
#if HT_GPU
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::tcgen05, "tcgen05.fence", site);
  sim::tcgen05_fence_before(sim::self(), site);
#endif
}

// After the synchronisation, before this thread's tcgen05 instructions that build on it.
template <class Target = ThisTarget>
HT_DEVICE void tcgen05_fence_after_thread_sync(Site site = Site::current()) {
  static_assert(Target::has(Feature::tcgen05), "tcgen05.fence exists on sm_100a only");
#if HT_GPU
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::tcgen05, "tcgen05.fence", site);
  sim::tcgen05_fence_after(sim::self(), site);
#endif
}

// Moves 32 bytes of each row to the row below, for all rows but the last; the lane of `address` is
// a multiple of 32. The simulator refuses it: which neighbour is "below", and whether the shift
// ends at 32 lanes, is written nowhere that could be checked.
template <CtaGroup group, class Target = ThisTarget>
HT_DEVICE void tcgen05_shift_down(TensorAddress address, Site site = Site::current()) {
  static_assert(Target::has(Feature::tcgen05), "tcgen05.shift exists on sm_100a only");
#if HT_GPU
  asm volatile("tcgen05.shift.%1.down [%0];" ::"r"(address.value), "C"(CtaGroupName<group>::text)
               : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::tcgen05, "tcgen05.shift", site);
  static_cast<void>(address);
  sim::tcgen05_shift_down(site);
#endif
}

}  // namespace halftone::hw
