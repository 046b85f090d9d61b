// setmaxnreg: registers move between the warpgroups of a block. All warps of a warpgroup execute
// it.
#pragma once
#include "hw/target.h"
#if !defined(__CUDACC__)
#include "sim/sim.h"
#endif

namespace halftone::hw {

// At most kRegisters a thread from here on; the rest goes back to the block's pool.
template <uint32_t kRegisters, class Target = ThisTarget>
HT_DEVICE void setmaxnreg_dec(Site site = Site::current()) {
  static_assert(Target::has(Feature::setmaxnreg), "setmaxnreg exists from sm_90a on");
  static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0,
                "setmaxnreg takes 24 to 256 registers, a multiple of 8");
#if HT_GPU
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters) : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::setmaxnreg, "setmaxnreg.dec", site);
  sim::setmaxnreg(kRegisters, false, site);
#endif
}

// kRegisters a thread from here on; waits until the pool has them.
template <uint32_t kRegisters, class Target = ThisTarget>
HT_DEVICE void setmaxnreg_inc(Site site = Site::current()) {
  static_assert(Target::has(Feature::setmaxnreg), "setmaxnreg exists from sm_90a on");
  static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0,
                "setmaxnreg takes 24 to 256 registers, a multiple of 8");
#if HT_GPU
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters) : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::setmaxnreg, "setmaxnreg.inc", site);
  sim::setmaxnreg(kRegisters, true, site);
#endif
}

}  // namespace halftone::hw
