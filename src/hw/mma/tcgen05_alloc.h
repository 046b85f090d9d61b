// Allocation of tensor memory (sm_100a). One warp allocates and the same block frees all of it;
// with two blocks, one warp of each takes part and may wait for the other.
#pragma once
#include "hw/address.h"
#include "hw/copy/tensor_address.h"

#if !defined(__CUDACC__)
#include "sim/memory/memory.h"
#include "sim/sim.h"
#endif

namespace halftone::hw {

// Writes the address of `columns` (a power of two, 32 to 512) columns to shared memory; waits until
// they are free. All lanes of the warp call it.
template <CtaGroup group, class Target = ThisTarget>
HT_DEVICE void tcgen05_alloc(SharedAddress destination, uint32_t columns,
                             Site site = Site::current()) {
  static_assert(Target::has(Feature::tcgen05), "tcgen05.alloc exists on sm_100a only");
#if HT_GPU
  asm volatile("tcgen05.alloc.%2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(destination.value),
               "r"(columns), "C"(CtaGroupName<group>::text)
               : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::tcgen05, "tcgen05.alloc", site);
  sim::tensor_alloc(sim::self(), static_cast<uint32_t>(group), destination.value, columns, site);
#endif
}

// Frees exactly what one tcgen05_alloc gave.
template <CtaGroup group, class Target = ThisTarget>
HT_DEVICE void tcgen05_dealloc(TensorAddress address, uint32_t columns,
                               Site site = Site::current()) {
  static_assert(Target::has(Feature::tcgen05), "tcgen05.dealloc exists on sm_100a only");
#if HT_GPU
  asm volatile("tcgen05.dealloc.%2.sync.aligned.b32 %0, %1;" ::"r"(address.value), "r"(columns),
               "C"(CtaGroupName<group>::text)
               : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::tcgen05, "tcgen05.dealloc", site);
  sim::tensor_dealloc(sim::self(), static_cast<uint32_t>(group), address.value, columns, site);
#endif
}

// The block will not allocate again: another block of the multiprocessor may.
template <CtaGroup group, class Target = ThisTarget>
HT_DEVICE void tcgen05_relinquish_alloc_permit(Site site = Site::current()) {
  static_assert(Target::has(Feature::tcgen05), "tcgen05.relinquish exists on sm_100a only");
#if HT_GPU
  asm volatile("tcgen05.relinquish_alloc_permit.%0.sync.aligned;" ::"C"(CtaGroupName<group>::text)
               : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::tcgen05, "tcgen05.relinquish_alloc_permit", site);
  sim::tensor_relinquish(sim::self(), static_cast<uint32_t>(group), site);
#endif
}

}  // namespace halftone::hw
