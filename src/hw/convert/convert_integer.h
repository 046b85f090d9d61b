// Conversions between f32 and integers. What is out of range stops at its ends; NaN gives 0.
#pragma once
#include <cstdint>

#include "hw/convert/convert.h"

namespace halftone::hw {

// To the nearest (ties to even), towards zero, down, up.
enum class IntegerRounding : uint8_t { rni, rzi, rmi, rpi };

template <IntegerRounding kRounding>
constexpr auto integer_rounding_name() {
  if constexpr (kRounding == IntegerRounding::rni) return Text("rni");
  if constexpr (kRounding == IntegerRounding::rzi) return Text("rzi");
  if constexpr (kRounding == IntegerRounding::rmi) return Text("rmi");
  if constexpr (kRounding == IntegerRounding::rpi) return Text("rpi");
}

#if !defined(__CUDACC__)
constexpr sim::RoundInteger simulated(IntegerRounding r) {
  return static_cast<sim::RoundInteger>(r);
}
#endif

template <IntegerRounding kRounding = IntegerRounding::rni>
HT_DEVICE int32_t cvt_s32(float x, Site = Site::current()) {
  int32_t value = 0;
#if HT_GPU
  asm("cvt.%2.s32.f32 %0, %1;"
      : "=r"(value)
      : "f"(x), "C"(Mnemonic<integer_rounding_name<kRounding>()>::text));
#elif !defined(__CUDACC__)
  value = sim::cvt_s32(x, simulated(kRounding));
#endif
  return value;
}

template <IntegerRounding kRounding = IntegerRounding::rni>
HT_DEVICE uint32_t cvt_u32(float x, Site = Site::current()) {
  uint32_t value = 0;
#if HT_GPU
  asm("cvt.%2.u32.f32 %0, %1;"
      : "=r"(value)
      : "f"(x), "C"(Mnemonic<integer_rounding_name<kRounding>()>::text));
#elif !defined(__CUDACC__)
  value = sim::cvt_u32(x, simulated(kRounding));
#endif
  return value;
}

// To a byte with sign, -128 to 127.
template <IntegerRounding kRounding = IntegerRounding::rni>
HT_DEVICE int8_t cvt_s8(float x, Site = Site::current()) {
  int32_t value = 0;
#if HT_GPU
  asm("cvt.%2.s8.f32 %0, %1;"
      : "=r"(value)
      : "f"(x), "C"(Mnemonic<integer_rounding_name<kRounding>()>::text));
#elif !defined(__CUDACC__)
  value = sim::cvt_s8(x, simulated(kRounding));
#endif
  return static_cast<int8_t>(value);
}

// To a byte, 0 to 255.
template <IntegerRounding kRounding = IntegerRounding::rni>
HT_DEVICE uint8_t cvt_u8(float x, Site = Site::current()) {
  uint32_t value = 0;
#if HT_GPU
  asm("cvt.%2.u8.f32 %0, %1;"
      : "=r"(value)
      : "f"(x), "C"(Mnemonic<integer_rounding_name<kRounding>()>::text));
#elif !defined(__CUDACC__)
  value = sim::cvt_u8(x, simulated(kRounding));
#endif
  return static_cast<uint8_t>(value);
}

// To the nearest f32, ties to even.
HT_DEVICE float cvt_f32(int32_t value, Site = Site::current()) {
  float x = 0;
#if HT_GPU
  asm("cvt.rn.f32.s32 %0, %1;" : "=f"(x) : "r"(value));
#elif !defined(__CUDACC__)
  x = static_cast<float>(value);
#endif
  return x;
}

HT_DEVICE float cvt_f32(uint32_t value, Site = Site::current()) {
  float x = 0;
#if HT_GPU
  asm("cvt.rn.f32.u32 %0, %1;" : "=f"(x) : "r"(value));
#elif !defined(__CUDACC__)
  x = static_cast<float>(value);
#endif
  return x;
}

// {upper half of a register, high, low}: both saturated to bytes with sign and put below the lower
// 16 bits of `rest`, moved up. Twice makes four bytes.
HT_DEVICE uint32_t cvt_pack_s8(int32_t low, int32_t high, uint32_t rest = 0,
                               Site = Site::current()) {
  uint32_t bytes = 0;
#if HT_GPU
  asm("cvt.pack.sat.s8.s32.b32 %0, %2, %1, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(rest));
#elif !defined(__CUDACC__)
  bytes = rest << 16 | uint32_t{static_cast<uint8_t>(sim::cvt_s8_saturated(high))} << 8 |
          static_cast<uint8_t>(sim::cvt_s8_saturated(low));
#endif
  return bytes;
}

}  // namespace halftone::hw
