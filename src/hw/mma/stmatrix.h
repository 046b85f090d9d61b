// stmatrix: fragments to 8 x 8 matrices of 16-bit elements in shared memory; the reverse of
// ldmatrix.
#pragma once
#include <cstdint>

#include "hw/address.h"
#if !defined(__CUDACC__)
#include "sim/mma/mma_sync.h"
#include "sim/sim.h"
#endif

namespace halftone::hw {

template <class Target = ThisTarget>
HT_DEVICE void stmatrix(SharedAddress row, const uint32_t (&matrices)[1],
                        Site site = Site::current()) {
  static_assert(Target::has(Feature::stmatrix), "stmatrix exists from sm_90 on");
#if HT_GPU
  asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(row.value),
               "r"(matrices[0])
               : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::stmatrix, "stmatrix", site);
  sim::stmatrix(1, false, matrices, row.value, site);
#endif
}

template <class Target = ThisTarget>
HT_DEVICE void stmatrix(SharedAddress row, const uint32_t (&matrices)[2],
                        Site site = Site::current()) {
  static_assert(Target::has(Feature::stmatrix), "stmatrix exists from sm_90 on");
#if HT_GPU
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(row.value),
               "r"(matrices[0]), "r"(matrices[1])
               : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::stmatrix, "stmatrix", site);
  sim::stmatrix(2, false, matrices, row.value, site);
#endif
}

template <class Target = ThisTarget>
HT_DEVICE void stmatrix(SharedAddress row, const uint32_t (&matrices)[4],
                        Site site = Site::current()) {
  static_assert(Target::has(Feature::stmatrix), "stmatrix exists from sm_90 on");
#if HT_GPU
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row.value),
               "r"(matrices[0]), "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
               : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::stmatrix, "stmatrix", site);
  sim::stmatrix(4, false, matrices, row.value, site);
#endif
}

// Each matrix transposed.
template <class Target = ThisTarget>
HT_DEVICE void stmatrix_trans(SharedAddress row, const uint32_t (&matrices)[1],
                              Site site = Site::current()) {
  static_assert(Target::has(Feature::stmatrix), "stmatrix exists from sm_90 on");
#if HT_GPU
  asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(row.value),
               "r"(matrices[0])
               : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::stmatrix, "stmatrix", site);
  sim::stmatrix(1, true, matrices, row.value, site);
#endif
}

template <class Target = ThisTarget>
HT_DEVICE void stmatrix_trans(SharedAddress row, const uint32_t (&matrices)[2],
                              Site site = Site::current()) {
  static_assert(Target::has(Feature::stmatrix), "stmatrix exists from sm_90 on");
#if HT_GPU
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(row.value),
               "r"(matrices[0]), "r"(matrices[1])
               : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::stmatrix, "stmatrix", site);
  sim::stmatrix(2, true, matrices, row.value, site);
#endif
}

template <class Target = ThisTarget>
HT_DEVICE void stmatrix_trans(SharedAddress row, const uint32_t (&matrices)[4],
                              Site site = Site::current()) {
  static_assert(Target::has(Feature::stmatrix), "stmatrix exists from sm_90 on");
#if HT_GPU
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row.value),
      "r"(matrices[0]), "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
      : "memory");
#elif !defined(__CUDACC__)
  sim::require(Feature::stmatrix, "stmatrix", site);
  sim::stmatrix(4, true, matrices, row.value, site);
#endif
}

}  // namespace halftone::hw
