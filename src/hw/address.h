// Addresses of shared memory. A kernel never holds a C++ pointer to it: the simulator could not see
// what goes through one.
#pragma once
#include <compare>
#include <cstdint>

#include "hw/target.h"
#if !defined(__CUDACC__)
#include "sim/memory/memory.h"
#include "sim/sim.h"
#endif

namespace halftone::hw {

// A byte address in the window of the block's own shared memory (shared::cta).
struct SharedAddress {
  uint32_t value = 0;
  constexpr bool operator==(const SharedAddress&) const = default;
};
HT_HOST_DEVICE SharedAddress operator+(SharedAddress address, uint32_t bytes) {
  return {address.value + bytes};
}
HT_HOST_DEVICE uint32_t operator-(SharedAddress end, SharedAddress begin) {
  return end.value - begin.value;
}

// A byte address in the shared memory of any block of the cluster (shared::cluster). The block's
// own addresses are valid as they are; `map_shared_rank` (cluster.h) makes those of the others.
struct ClusterAddress {
  uint32_t value = 0;
  constexpr ClusterAddress() = default;
  HT_HOST_DEVICE explicit ClusterAddress(uint32_t address) : value(address) {}
  HT_HOST_DEVICE ClusterAddress(SharedAddress own) : value(own.value) {}
  constexpr bool operator==(const ClusterAddress&) const = default;
};
HT_HOST_DEVICE ClusterAddress operator+(ClusterAddress address, uint32_t bytes) {
  return ClusterAddress(address.value + bytes);
}

// An mbarrier: 8 bytes of shared memory, aligned to 8. Its instructions are in mbarrier.h.
struct Mbarrier {
  SharedAddress address;
  constexpr bool operator==(const Mbarrier&) const = default;
};

// How long the L2 keeps what an access touches: the 64-bit operand of `.L2::cache_hint`.
struct CachePolicy {
  uint64_t bits = 0;
  constexpr bool operator==(const CachePolicy&) const = default;
};
// What createpolicy.fractional makes for all accesses (fraction 1).
inline constexpr CachePolicy kEvictFirst{0x12F0000000000000};
inline constexpr CachePolicy kEvictNormal{0x16F0000000000000};
inline constexpr CachePolicy kEvictLast{0x14F0000000000000};

// The kernel's dynamic shared memory, aligned to 1024 bytes.
HT_DEVICE SharedAddress shared_memory_base(Site = Site::current()) {
  SharedAddress base;
#if HT_GPU
  extern __shared__ __align__(1024) uint8_t dynamic_shared_memory[];
  base.value = static_cast<uint32_t>(__cvta_generic_to_shared(dynamic_shared_memory));
#elif !defined(__CUDACC__)
  base.value = sim::shared_memory_base(*sim::self().block);
#endif
  return base;
}

}  // namespace halftone::hw
