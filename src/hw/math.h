// Arithmetic of f32 with a rounding of choice. No result is flushed to zero.
#pragma once
#include <cstdint>

#include "hw/mnemonic.h"
#include "hw/types.h"
#if !defined(__CUDACC__)
#include "sim/half_arithmetic.h"
#include "sim/sim.h"
#endif

namespace halftone::hw {

// To nearest even, towards zero, down, up.
enum class Rounding : uint8_t { rn, rz, rm, rp };

template <Rounding kRounding>
constexpr auto rounding_name() {
  if constexpr (kRounding == Rounding::rn) return Text("rn");
  if constexpr (kRounding == Rounding::rz) return Text("rz");
  if constexpr (kRounding == Rounding::rm) return Text("rm");
  if constexpr (kRounding == Rounding::rp) return Text("rp");
}

#if !defined(__CUDACC__)
constexpr sim::RoundF32 simulated(Rounding r) { return static_cast<sim::RoundF32>(r); }
#endif

template <Rounding kRounding = Rounding::rn>
HT_DEVICE float add(float a, float b, Site = Site::current()) {
  float sum = 0;
#if HT_GPU
  asm("add.%3.f32 %0, %1, %2;"
      : "=f"(sum)
      : "f"(a), "f"(b), "C"(Mnemonic<rounding_name<kRounding>()>::text));
#elif !defined(__CUDACC__)
  sum = sim::add_f32(a, b, simulated(kRounding), false);
#endif
  return sum;
}

template <Rounding kRounding = Rounding::rn>
HT_DEVICE float mul(float a, float b, Site = Site::current()) {
  float product = 0;
#if HT_GPU
  asm("mul.%3.f32 %0, %1, %2;"
      : "=f"(product)
      : "f"(a), "f"(b), "C"(Mnemonic<rounding_name<kRounding>()>::text));
#elif !defined(__CUDACC__)
  product = sim::mul_f32(a, b, simulated(kRounding), false);
#endif
  return product;
}

// a b + c, rounded once.
template <Rounding kRounding = Rounding::rn>
HT_DEVICE float fma(float a, float b, float c, Site = Site::current()) {
  float sum = 0;
#if HT_GPU
  asm("fma.%4.f32 %0, %1, %2, %3;"
      : "=f"(sum)
      : "f"(a), "f"(b), "f"(c), "C"(Mnemonic<rounding_name<kRounding>()>::text));
#elif !defined(__CUDACC__)
  sum = sim::fma_f32(a, b, c, simulated(kRounding), false);
#endif
  return sum;
}

// The smaller one; of a number and a NaN the number. -0 is smaller than +0.
HT_DEVICE float min(float a, float b, Site = Site::current()) {
  float result = 0;
#if HT_GPU
  asm("min.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
#elif !defined(__CUDACC__)
  result = sim::min_f32(a, b, false);
#endif
  return result;
}

// A NaN if either is one.
HT_DEVICE float min_nan(float a, float b, Site = Site::current()) {
  float result = 0;
#if HT_GPU
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
#elif !defined(__CUDACC__)
  result = sim::min_f32(a, b, true);
#endif
  return result;
}

// The larger one; of a number and a NaN the number. +0 is larger than -0.
HT_DEVICE float max(float a, float b, Site = Site::current()) {
  float result = 0;
#if HT_GPU
  asm("max.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
#elif !defined(__CUDACC__)
  result = sim::max_f32(a, b, false);
#endif
  return result;
}

// A NaN if either is one.
HT_DEVICE float max_nan(float a, float b, Site = Site::current()) {
  float result = 0;
#if HT_GPU
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
#elif !defined(__CUDACC__)
  result = sim::max_f32(a, b, true);
#endif
  return result;
}

}  // namespace halftone::hw
