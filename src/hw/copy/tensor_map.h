// The object that tensor copies are made by. Host code makes it (pipe/tensor_map.h); a kernel takes
// it as a parameter, whole, or finds it in global memory.
#pragma once
#include <cstdint>

#include "hw/target.h"
#if !defined(__CUDACC__)
#include "sim/memory/memory.h"
#include "sim/sim.h"
#endif

namespace halftone::hw {

// As the driver's CUtensorMap, opaque. Simulated devices keep sim::TensorMap in it.
struct alignas(64) TensorMap {
  uint64_t words[16];
};

#if !defined(__CUDACC__)
namespace model {
inline const sim::TensorMap* simulated(const TensorMap* map) {
  return reinterpret_cast<const sim::TensorMap*>(map);
}
}  // namespace model
#endif

// Asks for the map at `map` before the first copy needs it.
template <class Target = ThisTarget>
HT_DEVICE void prefetch_tensor_map(const TensorMap* map, Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "tensor maps exist from sm_90 on");
#if HT_GPU
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "prefetch.tensormap", site);
  static_cast<void>(map);
#endif
}

}  // namespace halftone::hw
