// The memory of a simulated cluster as hw bodies see it: shared and global memory, atomics, fences.
// mbarriers are in mbarrier.h, asynchronous work in async.h, tensor memory in tensor_memory.h,
// tensor maps in tensor_map.h; this header includes them all.
//
// Every access is made by an Agent. A thread is one (the generic proxy): pass sim::self(), or
// warp.thread(lane) from the model of a collective. A piece of asynchronous work is another: its
// effect receives the Agent to use. The agent decides what the access must be ordered after.
//
// Shared addresses: below 1 << 24 they mean the agent's own block; (rank + 1) << 24 | offset is
// shared memory of block `rank` of the cluster, as mapa makes it. An address that is out of range
// or not aligned to the access ends the launch; anything else is recorded and the access is made.
//
// Orders and scopes have the enumerators and values of hw::Order and hw::Scope: cast them.
#pragma once
#include <cstdint>

#include "base/function_ref.h"
#include "sim/execution/thread.h"
#include "sim/memory/async.h"
#include "sim/memory/mbarrier.h"
#include "sim/memory/order.h"
#include "sim/memory/tensor_map.h"
#include "sim/memory/tensor_memory.h"

namespace halftone::sim {

// ---- Shared memory ------------------------------------------------------------------------------

// Where the dynamic shared memory of a block begins: not 0, aligned to 1024. Addresses below it
// are not the kernel's.
uint32_t shared_memory_base(const Block&);
uint32_t shared_memory_bytes(const Block&);
// mapa: the address of the same byte in the shared memory of block `rank`; fatal beyond the
// cluster.
uint32_t map_shared_rank(const Thread&, uint32_t address, uint32_t rank, const Site&);
// getctarank.
uint32_t shared_rank(const Agent&, uint32_t address);

// Weak accesses. Up to 16 bytes must be aligned to their size (a power of two); more than 16 bytes
// is an engine's and must be aligned to 4.
void read_shared(Agent&, uint32_t address, void* to, uint32_t bytes, const Site&);
void write_shared(Agent&, uint32_t address, const void* from, uint32_t bytes, const Site&);
template <class T>
T read_shared(Agent& agent, uint32_t address, const Site& site) {
  T value;
  read_shared(agent, address, &value, sizeof(T), site);
  return value;
}
template <class T>
void write_shared(Agent& agent, uint32_t address, const T& value, const Site& site) {
  write_shared(agent, address, &value, sizeof(T), site);
}

// ld / st with an order other than weak: they synchronise (acquire, release) and never race with
// each other or with atomics.
void read_shared_ordered(Agent&, uint32_t address, void* to, uint32_t bytes, Order, MemoryScope,
                         const Site&);
void write_shared_ordered(Agent&, uint32_t address, const void* from, uint32_t bytes, Order,
                          MemoryScope, const Site&);
// atom / red: `update` finds the old value behind the pointer and leaves the new one there.
//   uint32_t old;
//   sim::atomic_shared(me, address, 4, order, scope, [&](void* at) { ... }, site);
using AtomicUpdate = FunctionRef<void(void* value)>;
void atomic_shared(Agent&, uint32_t address, uint32_t bytes, Order, MemoryScope, AtomicUpdate,
                   const Site&);

// ---- Global memory ------------------------------------------------------------------------------
// Must lie in one allocation of the device (sim/memory/device_memory.h) or in the kernel's
// parameters.

void read_global(Agent&, const void* from, void* to, uint32_t bytes, const Site&);
void write_global(Agent&, void* to, const void* from, uint32_t bytes, const Site&);
template <class T>
T read_global(Agent& agent, const T* from, const Site& site) {
  T value;
  read_global(agent, from, &value, sizeof(T), site);
  return value;
}
template <class T>
void write_global(Agent& agent, T* to, const T& value, const Site& site) {
  write_global(agent, to, &value, sizeof(T), site);
}
void read_global_ordered(Agent&, const void* from, void* to, uint32_t bytes, Order, MemoryScope,
                         const Site&);
void write_global_ordered(Agent&, void* to, const void* from, uint32_t bytes, Order, MemoryScope,
                          const Site&);
void atomic_global(Agent&, void* address, uint32_t bytes, Order, MemoryScope, AtomicUpdate,
                   const Site&);

// ---- Fences -------------------------------------------------------------------------------------

// fence.acq_rel / __threadfence: makes the relaxed accesses around it release and acquire.
void fence_acq_rel(Thread&, MemoryScope, const Site&);
// fence.proxy.async: what this thread did or has acquired in the generic proxy is ordered before
// asynchronous work that is issued after this fence (by it, or by who synchronises with it).
void fence_proxy_async(Thread&, const Site&);
// fence.mbarrier_init.release.cluster: mbarriers this thread has initialised may be used by others
// of the cluster, and by asynchronous work, after a cluster barrier.
void fence_mbarrier_init(Thread&, const Site&);
// tcgen05.fence::before_thread_sync, ::after_thread_sync.
void tcgen05_fence_before(Thread&, const Site&);
void tcgen05_fence_after(Thread&, const Site&);

}  // namespace halftone::sim
