// Barriers of the block (0 to 15). Every warp that takes part counts with all of its 32 lanes; the
// count of threads is a multiple of 32.
#pragma once
#include <cstdint>

#include "hw/target.h"
#if !defined(__CUDACC__)
#include "sim/sim.h"
#endif

namespace halftone::hw {

// All threads of the block, at barrier 0.
HT_DEVICE void barrier_sync(Site site = Site::current()) {
#if HT_GPU
  asm volatile("bar.sync 0;" ::: "memory");
#elif !defined(__CUDACC__)
  sim::barrier_sync(0, 0, site);
#endif
}

HT_DEVICE void barrier_sync(uint32_t barrier, uint32_t threads, Site site = Site::current()) {
#if HT_GPU
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
#elif !defined(__CUDACC__)
  sim::barrier_sync(barrier, threads, site);
#endif
}

// Counts as arrived and goes on.
HT_DEVICE void barrier_arrive(uint32_t barrier, uint32_t threads, Site site = Site::current()) {
#if HT_GPU
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
#elif !defined(__CUDACC__)
  sim::barrier_arrive(barrier, threads, site);
#endif
}

// The number of threads whose predicate holds; as the next two, all threads wait and get it.
HT_DEVICE uint32_t barrier_count(uint32_t barrier, uint32_t threads, bool predicate,
                                 Site site = Site::current()) {
  uint32_t count = 0;
#if HT_GPU
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %3, 0;\nbar.red.popc.u32 %0, %1, %2, p;\n}"
               : "=r"(count)
               : "r"(barrier), "r"(threads), "r"(uint32_t{predicate})
               : "memory");
#elif !defined(__CUDACC__)
  count = sim::barrier_reduce(barrier, threads, predicate, sim::BarrierReduction::population, site);
#endif
  return count;
}

HT_DEVICE bool barrier_all(uint32_t barrier, uint32_t threads, bool predicate,
                           Site site = Site::current()) {
  uint32_t holds = 0;
#if HT_GPU
  asm volatile(
      "{\n.reg .pred p, q;\nsetp.ne.u32 p, %3, 0;\nbar.red.and.pred q, %1, %2, p;\n"
      "selp.u32 %0, 1, 0, q;\n}"
      : "=r"(holds)
      : "r"(barrier), "r"(threads), "r"(uint32_t{predicate})
      : "memory");
#elif !defined(__CUDACC__)
  holds = sim::barrier_reduce(barrier, threads, predicate, sim::BarrierReduction::all, site);
#endif
  return holds != 0;
}

HT_DEVICE bool barrier_any(uint32_t barrier, uint32_t threads, bool predicate,
                           Site site = Site::current()) {
  uint32_t holds = 0;
#if HT_GPU
  asm volatile(
      "{\n.reg .pred p, q;\nsetp.ne.u32 p, %3, 0;\nbar.red.or.pred q, %1, %2, p;\n"
      "selp.u32 %0, 1, 0, q;\n}"
      : "=r"(holds)
      : "r"(barrier), "r"(threads), "r"(uint32_t{predicate})
      : "memory");
#elif !defined(__CUDACC__)
  holds = sim::barrier_reduce(barrier, threads, predicate, sim::BarrierReduction::any, site);
#endif
  return holds != 0;
}

}  // namespace halftone::hw
