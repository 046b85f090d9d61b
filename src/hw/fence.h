// Fences: order between the accesses of a thread, and between its proxies. The generic proxy is
// loads, stores, ldmatrix, cp.async; the async proxy is bulk and tensor copies, wgmma and tcgen05
// operands in shared memory.
#pragma once
#include "hw/address.h"
#include "hw/mnemonic.h"
#include "hw/types.h"
#if !defined(__CUDACC__)
#include "sim/memory/memory.h"
#include "sim/sim.h"
#endif

namespace halftone::hw {

// Both ways between the generic and the async proxy, for all memory. Executed by the thread that
// wrote (or read), after its access and before the barrier that releases the issuing thread.
template <class Target = ThisTarget>
HT_DEVICE void fence_proxy_async(Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "the async proxy exists from sm_90 on");
#if HT_GPU
  asm volatile("fence.proxy.async;" ::: "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "fence.proxy.async", site);
  sim::fence_proxy_async(sim::self(), site);
#endif
}

// The same for the block's shared memory only.
template <class Target = ThisTarget>
HT_DEVICE void fence_proxy_async_shared(Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "the async proxy exists from sm_90 on");
#if HT_GPU
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "fence.proxy.async.shared::cta", site);
  sim::fence_proxy_async(sim::self(), site);
#endif
}

// For global memory only.
template <class Target = ThisTarget>
HT_DEVICE void fence_proxy_async_global(Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "the async proxy exists from sm_90 on");
#if HT_GPU
  asm volatile("fence.proxy.async.global;" ::: "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "fence.proxy.async.global", site);
  sim::fence_proxy_async(sim::self(), site);
#endif
}

// Makes the thread's mbarrier_init visible to the cluster and to the async proxy.
template <class Target = ThisTarget>
HT_DEVICE void fence_mbarrier_init(Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "clusters exist from sm_90 on");
#if HT_GPU
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "fence.mbarrier_init", site);
  sim::fence_mbarrier_init(sim::self(), site);
#endif
}

// Orders the thread's accesses to memory for the threads of the scope.
template <Scope kScope>
HT_DEVICE void fence_acq_rel(Site site = Site::current()) {
#if HT_GPU
  asm volatile("fence.acq_rel.%0;" ::"C"(ScopeName<kScope>::text) : "memory");
#elif !defined(__CUDACC__)
  sim::fence_acq_rel(sim::self(), static_cast<sim::MemoryScope>(kScope), site);
#endif
}

// The same, and all such fences have one order that everybody sees.
template <Scope kScope>
HT_DEVICE void fence_sc(Site site = Site::current()) {
#if HT_GPU
  asm volatile("fence.sc.%0;" ::"C"(ScopeName<kScope>::text) : "memory");
#elif !defined(__CUDACC__)
  sim::fence_acq_rel(sim::self(), static_cast<sim::MemoryScope>(kScope), site);
#endif
}

// Releases a tensor map written in global memory by plain stores.
template <Scope kScope = Scope::gpu, class Target = ThisTarget>
HT_DEVICE void fence_tensormap_release(Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "tensor maps exist from sm_90 on");
#if HT_GPU
  asm volatile("fence.proxy.tensormap::generic.release.%0;" ::"C"(ScopeName<kScope>::text)
               : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "fence.proxy.tensormap", site);
  sim::fence_acq_rel(sim::self(), static_cast<sim::MemoryScope>(kScope), site);
#endif
}

// Before a copy uses the tensor map at `map`, which another thread released.
template <Scope kScope = Scope::gpu, class Target = ThisTarget>
HT_DEVICE void fence_tensormap_acquire(const void* map, Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "tensor maps exist from sm_90 on");
#if HT_GPU
  asm volatile("fence.proxy.tensormap::generic.acquire.%1 [%0], 128;" ::"l"(map),
               "C"(ScopeName<kScope>::text)
               : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "fence.proxy.tensormap", site);
  static_cast<void>(map);
  sim::fence_acq_rel(sim::self(), static_cast<sim::MemoryScope>(kScope), site);
  sim::fence_proxy_async(sim::self(), site);
#endif
}

}  // namespace halftone::hw
