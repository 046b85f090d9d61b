// Every function of src/hw called once for each of its variants, so that ptxas sees all of them for
// every architecture that has them: an instruction nobody assembles is an instruction nobody knows
// to exist. A file whose first line is "// Feature: NAME" is assembled for the architectures that
// have the feature, the others for all; for one that lacks it, it must not compile. Nothing here
// runs.
#pragma once
#include <bit>

#include "hw/address.h"

namespace halftone::hw {

// Operands the compiler knows nothing about.
struct Operands {
  uint32_t* memory;
  SharedAddress shared;
  Mbarrier barrier;
  CachePolicy policy;
  ClusterAddress remote;
  uint32_t a, b, c;
  int32_t i;
  float f, g, h;
  uint64_t wide;
  bool flag;
  uint32_t r1[1], r2[2], r3[3], r4[4], r8[8];
  int32_t s4[4];
  float f4[4];
};

// Keeps a result.
template <class T>
__device__ void use(const Operands& o, const T& value) {
  *reinterpret_cast<volatile T*>(o.memory) = value;
}
__device__ inline void use(const Operands& o, ClusterAddress address) { use(o, address.value); }
__device__ inline void use(const Operands& o, SharedAddress address) { use(o, address.value); }
__device__ inline void use(const Operands& o, CachePolicy policy) { use(o, policy.bits); }
template <class T, uint32_t kCount>
__device__ void use(const Operands& o, const T (&values)[kCount]) {
  for (uint32_t i = 0; i < kCount; i++) reinterpret_cast<volatile T*>(o.memory)[i] = values[i];
}

}  // namespace halftone::hw
