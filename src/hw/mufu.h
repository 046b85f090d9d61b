// The approximations of the special-function unit, one MUFU operation each (two for a pair).
// `_ftz`: subnormal operands and results are zeros. The simulator gives the correctly rounded
// value; the chip's errors are in docs/findings/tensor-core-arithmetic.md.
#pragma once
#include <cstdint>

#include "hw/types.h"
#if !defined(__CUDACC__)
#include "sim/numerics/math.h"
#include "sim/sim.h"
#endif

namespace halftone::hw {

// A function of one float, in both its forms.
#define HT_MUFU(name)                                                                            \
  HT_DEVICE float name##_approx(float x, Site = Site::current()){HT_MUFU_BODY(                   \
      #name ".approx.f32",                                                                       \
      sim::name##_approx(x, false))} HT_DEVICE float name##_approx_ftz(float x,                  \
                                                                       Site = Site::current()) { \
    HT_MUFU_BODY(#name ".approx.ftz.f32", sim::name##_approx(x, true))                           \
  }
#if HT_GPU
#define HT_MUFU_BODY(instruction, model)               \
  float result;                                        \
  asm(instruction " %0, %1;" : "=f"(result) : "f"(x)); \
  return result;
#elif !defined(__CUDACC__)
#define HT_MUFU_BODY(instruction, model) \
  sim::count_mufu();                     \
  return model;
#else
#define HT_MUFU_BODY(instruction, model) return x;
#endif

HT_MUFU(ex2)    // 2^x
HT_MUFU(lg2)    // log2(x)
HT_MUFU(rcp)    // 1 / x
HT_MUFU(rsqrt)  // 1 / sqrt(x)
HT_MUFU(sqrt)
HT_MUFU(sin)
HT_MUFU(cos)
#undef HT_MUFU
#undef HT_MUFU_BODY

HT_DEVICE float tanh_approx(float x, Site = Site::current()) {
  float result = 0;
#if HT_GPU
  asm("tanh.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
#elif !defined(__CUDACC__)
  sim::count_mufu();
  result = sim::tanh_approx(x);
#endif
  return result;
}

#if !defined(__CUDACC__)
namespace model {
template <class Function>
uint32_t pair_of(uint32_t pair, Function function) {
  sim::count_mufu(2);
  return function(static_cast<uint16_t>(pair & 0xffff)) |
         uint32_t{function(static_cast<uint16_t>(pair >> 16))} << 16;
}
}  // namespace model
#endif

HT_DEVICE uint32_t ex2_approx_f16x2(uint32_t pair, Site = Site::current()) {
  uint32_t result = 0;
#if HT_GPU
  asm("ex2.approx.f16x2 %0, %1;" : "=r"(result) : "r"(pair));
#elif !defined(__CUDACC__)
  result = model::pair_of(pair, sim::ex2_approx_f16);
#endif
  return result;
}

template <class Target = ThisTarget>
HT_DEVICE uint32_t ex2_approx_ftz_bf16x2(uint32_t pair, Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "ex2 of bf16 exists from sm_90 on");
  uint32_t result = 0;
#if HT_GPU
  asm("ex2.approx.ftz.bf16x2 %0, %1;" : "=r"(result) : "r"(pair));
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "ex2.approx.ftz.bf16x2", site);
  result = model::pair_of(pair, sim::ex2_approx_ftz_bf16);
#endif
  return result;
}

HT_DEVICE uint32_t tanh_approx_f16x2(uint32_t pair, Site = Site::current()) {
  uint32_t result = 0;
#if HT_GPU
  asm("tanh.approx.f16x2 %0, %1;" : "=r"(result) : "r"(pair));
#elif !defined(__CUDACC__)
  result = model::pair_of(pair, sim::tanh_approx_f16);
#endif
  return result;
}

template <class Target = ThisTarget>
HT_DEVICE uint32_t tanh_approx_bf16x2(uint32_t pair, Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "tanh of bf16 exists from sm_90 on");
  uint32_t result = 0;
#if HT_GPU
  asm("tanh.approx.bf16x2 %0, %1;" : "=r"(result) : "r"(pair));
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "tanh.approx.bf16x2", site);
  result = model::pair_of(pair, sim::tanh_approx_bf16);
#endif
  return result;
}

}  // namespace halftone::hw
