// Conversions (cvt): f32 to and from f16, bf16, tf32, FP8 and integers. Of a pair the first element
// is in the low half. FP8 saturates: what is beyond the largest number, infinity too, becomes it.
#pragma once
#include <bit>
#include <cstdint>

#include "hw/math.h"
#if !defined(__CUDACC__)
#include "sim/numerics/convert.h"
#endif

namespace halftone::hw {

#if !defined(__CUDACC__)
// The roundings that halves have.
constexpr sim::Round half_rounding(Rounding r) {
  return r == Rounding::rz ? sim::Round::zero : sim::Round::nearest_even;
}
#endif

template <bool kRelu>
constexpr auto relu_name() {
  if constexpr (kRelu) {
    return Text(".relu");
  } else {
    return Text("");
  }
}

// kRelu: negative results, and -0, are 0.
template <Rounding kRounding = Rounding::rn, bool kRelu = false>
constexpr auto half_rounding_name() {
  static_assert(kRounding == Rounding::rn || kRounding == Rounding::rz, "cvt to halves: rn or rz");
  return rounding_name<kRounding>() + relu_name<kRelu>().at;
}

template <Rounding kRounding = Rounding::rn, bool kRelu = false>
HT_DEVICE uint32_t cvt_bf16x2(float low, float high, Site = Site::current()) {
  uint32_t pair = 0;
#if HT_GPU
  asm("cvt.%3.bf16x2.f32 %0, %2, %1;"
      : "=r"(pair)
      : "f"(low), "f"(high), "C"(Mnemonic<half_rounding_name<kRounding, kRelu>()>::text));
#elif !defined(__CUDACC__)
  pair = sim::cvt_bf16(low, half_rounding(kRounding), kRelu) |
         uint32_t{sim::cvt_bf16(high, half_rounding(kRounding), kRelu)} << 16;
#endif
  return pair;
}

template <Rounding kRounding = Rounding::rn, bool kRelu = false>
HT_DEVICE uint32_t cvt_f16x2(float low, float high, Site = Site::current()) {
  uint32_t pair = 0;
#if HT_GPU
  asm("cvt.%3.f16x2.f32 %0, %2, %1;"
      : "=r"(pair)
      : "f"(low), "f"(high), "C"(Mnemonic<half_rounding_name<kRounding, kRelu>()>::text));
#elif !defined(__CUDACC__)
  pair = sim::cvt_f16(low, half_rounding(kRounding), kRelu) |
         uint32_t{sim::cvt_f16(high, half_rounding(kRounding), kRelu)} << 16;
#endif
  return pair;
}

template <Rounding kRounding = Rounding::rn, bool kRelu = false>
HT_DEVICE uint16_t cvt_bf16(float x, Site = Site::current()) {
  uint16_t code = 0;
#if HT_GPU
  asm("cvt.%2.bf16.f32 %0, %1;"
      : "=h"(code)
      : "f"(x), "C"(Mnemonic<half_rounding_name<kRounding, kRelu>()>::text));
#elif !defined(__CUDACC__)
  code = sim::cvt_bf16(x, half_rounding(kRounding), kRelu);
#endif
  return code;
}

template <Rounding kRounding = Rounding::rn, bool kRelu = false>
HT_DEVICE uint16_t cvt_f16(float x, Site = Site::current()) {
  uint16_t code = 0;
#if HT_GPU
  asm("cvt.%2.f16.f32 %0, %1;"
      : "=h"(code)
      : "f"(x), "C"(Mnemonic<half_rounding_name<kRounding, kRelu>()>::text));
#elif !defined(__CUDACC__)
  code = sim::cvt_f16(x, half_rounding(kRounding), kRelu);
#endif
  return code;
}

HT_DEVICE float cvt_f32_f16(uint16_t code, Site = Site::current()) {
  float value = 0;
#if HT_GPU
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(code));
#elif !defined(__CUDACC__)
  value = sim::cvt_f32_f16(code);
#endif
  return value;
}

// The upper half of an f32: a move on every architecture.
HT_DEVICE float cvt_f32_bf16(uint16_t code, Site = Site::current()) {
  float value = 0;
#if HT_GPU
  asm("mov.b32 %0, {0, %1};" : "=f"(value) : "h"(code));
#elif !defined(__CUDACC__)
  value = std::bit_cast<float>(uint32_t{code} << 16);
#endif
  return value;
}

// To the nearest tf32, ties away from zero: f32 with the low 13 bits 0.
HT_DEVICE uint32_t cvt_rna_tf32(float x, Site = Site::current()) {
  uint32_t code = 0;
#if HT_GPU
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(code) : "f"(x));
#elif !defined(__CUDACC__)
  code = sim::cvt_tf32(x);
#endif
  return code;
}

template <Rounding kRounding = Rounding::rn, bool kRelu = false, class Target = ThisTarget>
HT_DEVICE uint32_t cvt_tf32(float x, Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "cvt.rn.tf32 exists from sm_90 on");
  uint32_t code = 0;
#if HT_GPU
  asm("cvt.%2.tf32.f32 %0, %1;"
      : "=r"(code)
      : "f"(x), "C"(Mnemonic<half_rounding_name<kRounding, kRelu>()>::text));
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "cvt.rn.tf32.f32", site);
  code = sim::cvt_tf32(
      x, kRounding == Rounding::rn ? sim::RoundTf32::nearest_even : sim::RoundTf32::zero, kRelu);
#endif
  return code;
}

#if !defined(__CUDACC__)
namespace model {
template <Type kType>
uint8_t cvt_fp8(float x, bool relu) {
  return kType == Type::e4m3 ? sim::cvt_e4m3(x, relu) : sim::cvt_e5m2(x, relu);
}
}  // namespace model
#endif

// Two f32 to two FP8 (e4m3 or e5m2).
template <Type kType, bool kRelu = false, class Target = ThisTarget>
HT_DEVICE uint16_t cvt_fp8x2(float low, float high, Site site = Site::current()) {
  static_assert(Target::has(Feature::fp8_convert), "cvt to FP8 exists from sm_89 on");
  static_assert(kType == Type::e4m3 || kType == Type::e5m2, "FP8: e4m3 or e5m2");
  uint16_t pair = 0;
#if HT_GPU
  asm("cvt.rn.satfinite%3.%4x2.f32 %0, %2, %1;"
      : "=h"(pair)
      : "f"(low), "f"(high), "C"(Mnemonic<relu_name<kRelu>()>::text), "C"(TypeName<kType>::text));
#elif !defined(__CUDACC__)
  sim::require(Feature::fp8_convert, "cvt to FP8", site);
  pair = static_cast<uint16_t>(model::cvt_fp8<kType>(low, kRelu) |
                               model::cvt_fp8<kType>(high, kRelu) << 8);
#endif
  return pair;
}

// Two f16 to two FP8.
template <Type kType, bool kRelu = false, class Target = ThisTarget>
HT_DEVICE uint16_t cvt_fp8x2_f16x2(uint32_t halves, Site site = Site::current()) {
  static_assert(Target::has(Feature::fp8_convert), "cvt to FP8 exists from sm_89 on");
  static_assert(kType == Type::e4m3 || kType == Type::e5m2, "FP8: e4m3 or e5m2");
  uint16_t pair = 0;
#if HT_GPU
  asm("cvt.rn.satfinite%2.%3x2.f16x2 %0, %1;"
      : "=h"(pair)
      : "r"(halves), "C"(Mnemonic<relu_name<kRelu>()>::text), "C"(TypeName<kType>::text));
#elif !defined(__CUDACC__)
  sim::require(Feature::fp8_convert, "cvt to FP8", site);
  pair = static_cast<uint16_t>(
      model::cvt_fp8<kType>(decode_f16(static_cast<uint16_t>(halves & 0xffff)), kRelu) |
      model::cvt_fp8<kType>(decode_f16(static_cast<uint16_t>(halves >> 16)), kRelu) << 8);
#endif
  return pair;
}

// Two FP8 to two f16; exact.
template <Type kType, bool kRelu = false, class Target = ThisTarget>
HT_DEVICE uint32_t cvt_f16x2_fp8x2(uint16_t pair, Site site = Site::current()) {
  static_assert(Target::has(Feature::fp8_convert), "cvt from FP8 exists from sm_89 on");
  static_assert(kType == Type::e4m3 || kType == Type::e5m2, "FP8: e4m3 or e5m2");
  uint32_t halves = 0;
#if HT_GPU
  asm("cvt.rn%2.f16x2.%3x2 %0, %1;"
      : "=r"(halves)
      : "h"(pair), "C"(Mnemonic<relu_name<kRelu>()>::text), "C"(TypeName<kType>::text));
#elif !defined(__CUDACC__)
  sim::require(Feature::fp8_convert, "cvt from FP8", site);
  constexpr auto kConvert = kType == Type::e4m3 ? sim::cvt_f16_e4m3 : sim::cvt_f16_e5m2;
  halves = kConvert(static_cast<uint8_t>(pair & 0xff), kRelu) |
           uint32_t{kConvert(static_cast<uint8_t>(pair >> 8), kRelu)} << 16;
#endif
  return halves;
}

}  // namespace halftone::hw
