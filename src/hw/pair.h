// Arithmetic on pairs of f16 or bf16 in a register, the first in the low half; each is rounded
// once, to nearest even.
#pragma once
#include <cstdint>

#include "hw/types.h"
#if !defined(__CUDACC__)
#include "sim/half_arithmetic.h"
#include "sim/sim.h"
#endif

namespace halftone::hw {

template <Type kType, class Target = ThisTarget>
HT_DEVICE uint32_t add_pair(uint32_t a, uint32_t b, Site site = Site::current()) {
  static_assert(kType == Type::f16x2 || kType == Type::bf16x2, "pairs of f16 or bf16");
  static_assert(kType == Type::f16x2 || Target::has(Feature::mbarrier_tx),
                "add of bf16 exists from sm_90 on");
  uint32_t result = 0;
#if HT_GPU
  asm("add.rn.%3 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b), "C"(TypeName<kType>::text));
#elif !defined(__CUDACC__)
  if (kType == Type::bf16x2) sim::require(Feature::mbarrier_tx, "add.bf16x2", site);
  result = sim::add_pair(kType == Type::bf16x2, a, b);
#endif
  return result;
}

template <Type kType, class Target = ThisTarget>
HT_DEVICE uint32_t sub_pair(uint32_t a, uint32_t b, Site site = Site::current()) {
  static_assert(kType == Type::f16x2 || kType == Type::bf16x2, "pairs of f16 or bf16");
  static_assert(kType == Type::f16x2 || Target::has(Feature::mbarrier_tx),
                "sub of bf16 exists from sm_90 on");
  uint32_t result = 0;
#if HT_GPU
  asm("sub.rn.%3 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b), "C"(TypeName<kType>::text));
#elif !defined(__CUDACC__)
  if (kType == Type::bf16x2) sim::require(Feature::mbarrier_tx, "sub.bf16x2", site);
  result = sim::sub_pair(kType == Type::bf16x2, a, b);
#endif
  return result;
}

template <Type kType, class Target = ThisTarget>
HT_DEVICE uint32_t mul_pair(uint32_t a, uint32_t b, Site site = Site::current()) {
  static_assert(kType == Type::f16x2 || kType == Type::bf16x2, "pairs of f16 or bf16");
  static_assert(kType == Type::f16x2 || Target::has(Feature::mbarrier_tx),
                "mul of bf16 exists from sm_90 on");
  uint32_t result = 0;
#if HT_GPU
  asm("mul.rn.%3 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b), "C"(TypeName<kType>::text));
#elif !defined(__CUDACC__)
  if (kType == Type::bf16x2) sim::require(Feature::mbarrier_tx, "mul.bf16x2", site);
  result = sim::mul_pair(kType == Type::bf16x2, a, b);
#endif
  return result;
}

// a b + c, rounded once.
template <Type kType>
HT_DEVICE uint32_t fma_pair(uint32_t a, uint32_t b, uint32_t c, Site = Site::current()) {
  static_assert(kType == Type::f16x2 || kType == Type::bf16x2, "pairs of f16 or bf16");
  uint32_t result = 0;
#if HT_GPU
  asm("fma.rn.%4 %0, %1, %2, %3;"
      : "=r"(result)
      : "r"(a), "r"(b), "r"(c), "C"(TypeName<kType>::text));
#elif !defined(__CUDACC__)
  result = sim::fma_pair(kType == Type::bf16x2, a, b, c, false);
#endif
  return result;
}

// The same, with negative results (and -0) as 0.
template <Type kType>
HT_DEVICE uint32_t fma_relu_pair(uint32_t a, uint32_t b, uint32_t c, Site = Site::current()) {
  static_assert(kType == Type::f16x2 || kType == Type::bf16x2, "pairs of f16 or bf16");
  uint32_t result = 0;
#if HT_GPU
  asm("fma.rn.relu.%4 %0, %1, %2, %3;"
      : "=r"(result)
      : "r"(a), "r"(b), "r"(c), "C"(TypeName<kType>::text));
#elif !defined(__CUDACC__)
  result = sim::fma_pair(kType == Type::bf16x2, a, b, c, true);
#endif
  return result;
}

// Of a number and a NaN the number.
template <Type kType>
HT_DEVICE uint32_t min_pair(uint32_t a, uint32_t b, Site = Site::current()) {
  static_assert(kType == Type::f16x2 || kType == Type::bf16x2, "pairs of f16 or bf16");
  uint32_t result = 0;
#if HT_GPU
  asm("min.%3 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b), "C"(TypeName<kType>::text));
#elif !defined(__CUDACC__)
  result = sim::min_pair(kType == Type::bf16x2, a, b);
#endif
  return result;
}

// Of a number and a NaN the number.
template <Type kType>
HT_DEVICE uint32_t max_pair(uint32_t a, uint32_t b, Site = Site::current()) {
  static_assert(kType == Type::f16x2 || kType == Type::bf16x2, "pairs of f16 or bf16");
  uint32_t result = 0;
#if HT_GPU
  asm("max.%3 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b), "C"(TypeName<kType>::text));
#elif !defined(__CUDACC__)
  result = sim::max_pair(kType == Type::bf16x2, a, b);
#endif
  return result;
}

// Of a number and a NaN the NaN.
template <Type kType>
HT_DEVICE uint32_t max_nan_pair(uint32_t a, uint32_t b, Site = Site::current()) {
  static_assert(kType == Type::f16x2 || kType == Type::bf16x2, "pairs of f16 or bf16");
  uint32_t result = 0;
#if HT_GPU
  asm("max.NaN.%3 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b), "C"(TypeName<kType>::text));
#elif !defined(__CUDACC__)
  result = sim::max_nan_pair(kType == Type::bf16x2, a, b);
#endif
  return result;
}

}  // namespace halftone::hw
