// Conversions of pairs to and from FP4, FP6 and UE8M0 (sm_100a, sm_120a). The first element of a
// pair is in the low bits. All saturate: beyond the largest number, infinity too, gives the
// largest.
#pragma once
#include "hw/types.h"
#if !defined(__CUDACC__)
#include "sim/numerics/convert.h"
#include "sim/sim.h"
#endif

namespace halftone::hw {

#if !defined(__CUDACC__)
namespace model {
inline uint8_t cvt_narrow(Type type, float x, bool relu) {
  return type == Type::e2m1   ? sim::cvt_e2m1(x, relu)
         : type == Type::e2m3 ? sim::cvt_e2m3(x, relu)
                              : sim::cvt_e3m2(x, relu);
}
inline uint16_t cvt_f16_narrow(Type type, uint8_t code, bool relu) {
  return type == Type::e2m1   ? sim::cvt_f16_e2m1(code, relu)
         : type == Type::e2m3 ? sim::cvt_f16_e2m3(code, relu)
                              : sim::cvt_f16_e3m2(code, relu);
}
// Without .satfinite, what rounds above 2^127 is NaN.
inline uint8_t cvt_ue8m0(float x, bool up, bool finite) {
  const uint32_t magnitude = std::bit_cast<uint32_t>(x) & 0x7fffffffu;
  const bool beyond = magnitude >= 0x7f800000u || (up && magnitude > 0x7f000000u);
  if (beyond && !finite) return 0xff;
  return up ? sim::cvt_ue8m0_up(x) : sim::cvt_ue8m0_zero(x);
}
}  // namespace model
#endif

enum class Relu : uint8_t { no, yes };  // negative numbers and NaN become 0
template <Relu>
struct ReluName;
template <>
struct ReluName<Relu::no> {
  static constexpr char text[] = "";
};
template <>
struct ReluName<Relu::yes> {
  static constexpr char text[] = ".relu";
};

// Two FP32 to two FP4, in the low byte.
template <Relu relu = Relu::no, class Target = ThisTarget>
HT_DEVICE uint8_t cvt_e2m1x2(float low, float high, Site site = Site::current()) {
  static_assert(Target::has(Feature::fp4_convert), "cvt to e2m1 exists from sm_100a on");
  uint32_t pair = 0;
#if HT_GPU
  asm("{\n.reg .b8 pair;\ncvt.rn.satfinite%3.e2m1x2.f32 pair, %2, %1;\n"
      "cvt.u32.u8 %0, pair;\n}"
      : "=r"(pair)
      : "f"(low), "f"(high), "C"(ReluName<relu>::text));
#elif !defined(__CUDACC__)
  sim::require(Feature::fp4_convert, "cvt", site);
  constexpr bool kRelu = relu == Relu::yes;
  pair = uint32_t{sim::cvt_e2m1(low, kRelu)} | uint32_t{sim::cvt_e2m1(high, kRelu)} << 4;
#endif
  return static_cast<uint8_t>(pair);
}

// Two FP16 to two FP4.
template <Relu relu = Relu::no, class Target = ThisTarget>
HT_DEVICE uint8_t cvt_e2m1x2_f16x2(uint32_t halves, Site site = Site::current()) {
  static_assert(Target::has(Feature::fp4_convert), "cvt to e2m1 exists from sm_100a on");
  uint32_t pair = 0;
#if HT_GPU
  asm("{\n.reg .b8 pair;\ncvt.rn.satfinite%2.e2m1x2.f16x2 pair, %1;\ncvt.u32.u8 %0, pair;\n}"
      : "=r"(pair)
      : "r"(halves), "C"(ReluName<relu>::text));
#elif !defined(__CUDACC__)
  sim::require(Feature::fp4_convert, "cvt", site);
  constexpr bool kRelu = relu == Relu::yes;
  const float low = decode_f16(static_cast<uint16_t>(halves));
  const float high = decode_f16(static_cast<uint16_t>(halves >> 16));
  pair = uint32_t{sim::cvt_e2m1(low, kRelu)} | uint32_t{sim::cvt_e2m1(high, kRelu)} << 4;
#endif
  return static_cast<uint8_t>(pair);
}

// Two FP32 to two FP6 (e2m3 or e3m2), a byte each.
template <Type type, Relu relu = Relu::no, class Target = ThisTarget>
HT_DEVICE uint16_t cvt_fp6x2(float low, float high, Site site = Site::current()) {
  static_assert(Target::has(Feature::fp4_convert), "cvt to FP6 exists from sm_100a on");
  static_assert(type == Type::e2m3 || type == Type::e3m2);
  uint16_t pair = 0;
#if HT_GPU
  asm("cvt.rn.satfinite%3.%4x2.f32 %0, %2, %1;"
      : "=h"(pair)
      : "f"(low), "f"(high), "C"(ReluName<relu>::text), "C"(TypeName<type>::text));
#elif !defined(__CUDACC__)
  sim::require(Feature::fp4_convert, "cvt", site);
  constexpr bool kRelu = relu == Relu::yes;
  pair = static_cast<uint16_t>(model::cvt_narrow(type, low, kRelu) |
                               model::cvt_narrow(type, high, kRelu) << 8);
#endif
  return pair;
}

// Two FP4 (in a byte) to two FP16; exact.
template <Relu relu = Relu::no, class Target = ThisTarget>
HT_DEVICE uint32_t cvt_f16x2_e2m1x2(uint8_t pair, Site site = Site::current()) {
  static_assert(Target::has(Feature::fp4_convert), "cvt from e2m1 exists from sm_100a on");
  uint32_t halves = 0;
#if HT_GPU
  asm("{\n.reg .b8 pair;\ncvt.u8.u32 pair, %1;\ncvt.rn%2.f16x2.e2m1x2 %0, pair;\n}"
      : "=r"(halves)
      : "r"(uint32_t{pair}), "C"(ReluName<relu>::text));
#elif !defined(__CUDACC__)
  sim::require(Feature::fp4_convert, "cvt", site);
  constexpr bool kRelu = relu == Relu::yes;
  halves = uint32_t{sim::cvt_f16_e2m1(pair & 15, kRelu)} |
           uint32_t{sim::cvt_f16_e2m1(pair >> 4, kRelu)} << 16;
#endif
  return halves;
}

// Two FP6 (a byte each) to two FP16; exact.
template <Type type, Relu relu = Relu::no, class Target = ThisTarget>
HT_DEVICE uint32_t cvt_f16x2_fp6x2(uint16_t pair, Site site = Site::current()) {
  static_assert(Target::has(Feature::fp4_convert), "cvt from FP6 exists from sm_100a on");
  static_assert(type == Type::e2m3 || type == Type::e3m2);
  uint32_t halves = 0;
#if HT_GPU
  asm("cvt.rn%2.f16x2.%3x2 %0, %1;"
      : "=r"(halves)
      : "h"(pair), "C"(ReluName<relu>::text), "C"(TypeName<type>::text));
#elif !defined(__CUDACC__)
  sim::require(Feature::fp4_convert, "cvt", site);
  constexpr bool kRelu = relu == Relu::yes;
  halves = uint32_t{model::cvt_f16_narrow(type, pair & 63, kRelu)} |
           uint32_t{model::cvt_f16_narrow(type, pair >> 8 & 63, kRelu)} << 16;
#endif
  return halves;
}

// To a power of two, 2^(byte - 127): down in magnitude (rz) or up (rp). Without finite, what is
// beyond 2^127 becomes NaN (0xff); with it, 2^127.
enum class PowerRounding : uint8_t { rz, rp };
enum class PowerOverflow : uint8_t { nan, finite };
template <PowerRounding, PowerOverflow>
struct PowerName;
template <>
struct PowerName<PowerRounding::rz, PowerOverflow::nan> {
  static constexpr char text[] = "rz";
};
template <>
struct PowerName<PowerRounding::rz, PowerOverflow::finite> {
  static constexpr char text[] = "rz.satfinite";
};
template <>
struct PowerName<PowerRounding::rp, PowerOverflow::nan> {
  static constexpr char text[] = "rp";
};
template <>
struct PowerName<PowerRounding::rp, PowerOverflow::finite> {
  static constexpr char text[] = "rp.satfinite";
};

template <PowerRounding rounding, PowerOverflow overflow, class Target = ThisTarget>
HT_DEVICE uint16_t cvt_ue8m0x2(float low, float high, Site site = Site::current()) {
  static_assert(Target::has(Feature::fp4_convert), "cvt to ue8m0 exists from sm_100a on");
  uint16_t pair = 0;
#if HT_GPU
  asm("cvt.%3.ue8m0x2.f32 %0, %2, %1;"
      : "=h"(pair)
      : "f"(low), "f"(high), "C"(PowerName<rounding, overflow>::text));
#elif !defined(__CUDACC__)
  sim::require(Feature::fp4_convert, "cvt", site);
  constexpr bool kUp = rounding == PowerRounding::rp;
  constexpr bool kFinite = overflow == PowerOverflow::finite;
  pair = static_cast<uint16_t>(model::cvt_ue8m0(low, kUp, kFinite) |
                               model::cvt_ue8m0(high, kUp, kFinite) << 8);
#endif
  return pair;
}

template <PowerRounding rounding, PowerOverflow overflow, class Target = ThisTarget>
HT_DEVICE uint16_t cvt_ue8m0x2_bf16x2(uint32_t pair_of_bf16, Site site = Site::current()) {
  static_assert(Target::has(Feature::fp4_convert), "cvt to ue8m0 exists from sm_100a on");
  uint16_t pair = 0;
#if HT_GPU
  asm("cvt.%2.ue8m0x2.bf16x2 %0, %1;"
      : "=h"(pair)
      : "r"(pair_of_bf16), "C"(PowerName<rounding, overflow>::text));
#elif !defined(__CUDACC__)
  sim::require(Feature::fp4_convert, "cvt", site);
  constexpr bool kUp = rounding == PowerRounding::rp;
  constexpr bool kFinite = overflow == PowerOverflow::finite;
  const float low = std::bit_cast<float>(pair_of_bf16 << 16);
  const float high = std::bit_cast<float>(pair_of_bf16 & 0xffff0000u);
  pair = static_cast<uint16_t>(model::cvt_ue8m0(low, kUp, kFinite) |
                               model::cvt_ue8m0(high, kUp, kFinite) << 8);
#endif
  return pair;
}

// Exact: 2^-127 is a subnormal of BF16.
template <class Target = ThisTarget>
HT_DEVICE uint32_t cvt_bf16x2_ue8m0x2(uint16_t pair, Site site = Site::current()) {
  static_assert(Target::has(Feature::fp4_convert), "cvt from ue8m0 exists from sm_100a on");
  uint32_t pair_of_bf16 = 0;
#if HT_GPU
  asm("cvt.rn.bf16x2.ue8m0x2 %0, %1;" : "=r"(pair_of_bf16) : "h"(pair));
#elif !defined(__CUDACC__)
  sim::require(Feature::fp4_convert, "cvt", site);
  pair_of_bf16 =
      uint32_t{sim::cvt_bf16_ue8m0(pair & 0xff)} | uint32_t{sim::cvt_bf16_ue8m0(pair >> 8)} << 16;
#endif
  return pair_of_bf16;
}

}  // namespace halftone::hw
