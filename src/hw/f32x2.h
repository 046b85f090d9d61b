// Two FP32 operations in one instruction: add, mul, fma on packed pairs (sm_100a, sm_120a).
#pragma once
#include <cstdint>

#include "hw/math.h"
#if !defined(__CUDACC__)
#include "sim/f32_rounding.h"
#include "sim/sim.h"
#endif

namespace halftone::hw {

// Neighbouring registers, x the lower.
struct F32x2 {
  float x = 0, y = 0;
  constexpr bool operator==(const F32x2&) const = default;
};

// With ftz, subnormal operands and results count as zeros of their sign.
enum class Subnormals : uint8_t { kept, ftz };

template <Rounding>
struct RoundingName;
template <>
struct RoundingName<Rounding::rn> {
  static constexpr char text[] = ".rn";
};
template <>
struct RoundingName<Rounding::rz> {
  static constexpr char text[] = ".rz";
};
template <>
struct RoundingName<Rounding::rm> {
  static constexpr char text[] = ".rm";
};
template <>
struct RoundingName<Rounding::rp> {
  static constexpr char text[] = ".rp";
};
template <Subnormals>
struct SubnormalsName;
template <>
struct SubnormalsName<Subnormals::kept> {
  static constexpr char text[] = "";
};
template <>
struct SubnormalsName<Subnormals::ftz> {
  static constexpr char text[] = ".ftz";
};

template <Rounding rounding = Rounding::rn, Subnormals subnormals = Subnormals::kept,
          class Target = ThisTarget>
HT_DEVICE F32x2 add_f32x2(F32x2 a, F32x2 b, Site site = Site::current()) {
  static_assert(Target::has(Feature::f32x2), "add.f32x2 exists on sm_100a and sm_120a");
  F32x2 d;
#if HT_GPU
  asm("{\n.reg .b64 a, b, d;\nmov.b64 a, {%2, %3};\nmov.b64 b, {%4, %5};\n"
      "add%6%7.f32x2 d, a, b;\nmov.b64 {%0, %1}, d;\n}"
      : "=f"(d.x), "=f"(d.y)
      : "f"(a.x), "f"(a.y), "f"(b.x), "f"(b.y), "C"(RoundingName<rounding>::text),
        "C"(SubnormalsName<subnormals>::text));
#elif !defined(__CUDACC__)
  sim::require(Feature::f32x2, "add.f32x2", site);
  constexpr auto kRound = static_cast<sim::RoundF32>(rounding);
  constexpr bool ftz = subnormals == Subnormals::ftz;
  d = {sim::add_f32(a.x, b.x, kRound, ftz), sim::add_f32(a.y, b.y, kRound, ftz)};
#endif
  return d;
}

template <Rounding rounding = Rounding::rn, Subnormals subnormals = Subnormals::kept,
          class Target = ThisTarget>
HT_DEVICE F32x2 sub_f32x2(F32x2 a, F32x2 b, Site site = Site::current()) {
  static_assert(Target::has(Feature::f32x2), "sub.f32x2 exists on sm_100a and sm_120a");
  F32x2 d;
#if HT_GPU
  asm("{\n.reg .b64 a, b, d;\nmov.b64 a, {%2, %3};\nmov.b64 b, {%4, %5};\n"
      "sub%6%7.f32x2 d, a, b;\nmov.b64 {%0, %1}, d;\n}"
      : "=f"(d.x), "=f"(d.y)
      : "f"(a.x), "f"(a.y), "f"(b.x), "f"(b.y), "C"(RoundingName<rounding>::text),
        "C"(SubnormalsName<subnormals>::text));
#elif !defined(__CUDACC__)
  sim::require(Feature::f32x2, "sub.f32x2", site);
  constexpr auto kRound = static_cast<sim::RoundF32>(rounding);
  constexpr bool ftz = subnormals == Subnormals::ftz;
  d = {sim::add_f32(a.x, -b.x, kRound, ftz), sim::add_f32(a.y, -b.y, kRound, ftz)};
#endif
  return d;
}

template <Rounding rounding = Rounding::rn, Subnormals subnormals = Subnormals::kept,
          class Target = ThisTarget>
HT_DEVICE F32x2 mul_f32x2(F32x2 a, F32x2 b, Site site = Site::current()) {
  static_assert(Target::has(Feature::f32x2), "mul.f32x2 exists on sm_100a and sm_120a");
  F32x2 d;
#if HT_GPU
  asm("{\n.reg .b64 a, b, d;\nmov.b64 a, {%2, %3};\nmov.b64 b, {%4, %5};\n"
      "mul%6%7.f32x2 d, a, b;\nmov.b64 {%0, %1}, d;\n}"
      : "=f"(d.x), "=f"(d.y)
      : "f"(a.x), "f"(a.y), "f"(b.x), "f"(b.y), "C"(RoundingName<rounding>::text),
        "C"(SubnormalsName<subnormals>::text));
#elif !defined(__CUDACC__)
  sim::require(Feature::f32x2, "mul.f32x2", site);
  constexpr auto kRound = static_cast<sim::RoundF32>(rounding);
  constexpr bool ftz = subnormals == Subnormals::ftz;
  d = {sim::mul_f32(a.x, b.x, kRound, ftz), sim::mul_f32(a.y, b.y, kRound, ftz)};
#endif
  return d;
}

// a b + c, rounded once.
template <Rounding rounding = Rounding::rn, Subnormals subnormals = Subnormals::kept,
          class Target = ThisTarget>
HT_DEVICE F32x2 fma_f32x2(F32x2 a, F32x2 b, F32x2 c, Site site = Site::current()) {
  static_assert(Target::has(Feature::f32x2), "fma.f32x2 exists on sm_100a and sm_120a");
  F32x2 d;
#if HT_GPU
  asm("{\n.reg .b64 a, b, c, d;\nmov.b64 a, {%2, %3};\nmov.b64 b, {%4, %5};\n"
      "mov.b64 c, {%6, %7};\nfma%8%9.f32x2 d, a, b, c;\nmov.b64 {%0, %1}, d;\n}"
      : "=f"(d.x), "=f"(d.y)
      : "f"(a.x), "f"(a.y), "f"(b.x), "f"(b.y), "f"(c.x), "f"(c.y),
        "C"(RoundingName<rounding>::text), "C"(SubnormalsName<subnormals>::text));
#elif !defined(__CUDACC__)
  sim::require(Feature::f32x2, "fma.f32x2", site);
  constexpr auto kRound = static_cast<sim::RoundF32>(rounding);
  constexpr bool ftz = subnormals == Subnormals::ftz;
  d = {sim::fma_f32(a.x, b.x, c.x, kRound, ftz), sim::fma_f32(a.y, b.y, c.y, kRound, ftz)};
#endif
  return d;
}

}  // namespace halftone::hw
