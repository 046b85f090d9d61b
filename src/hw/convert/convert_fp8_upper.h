// FP8 out of the upper half of a register.
#pragma once
#include "hw/convert/convert.h"

namespace halftone::hw {

// The upper two of four FP8 to two f16; exact. The instruction finds them without a shift, which a
// conversion of the shifted word would cost.
template <Type kType, class Target = ThisTarget>
HT_DEVICE uint32_t cvt_f16x2_fp8x2_upper(uint32_t four, Site site = Site::current()) {
  static_assert(Target::has(Feature::fp8_convert), "cvt from FP8 exists from sm_89 on");
  static_assert(kType == Type::e4m3 || kType == Type::e5m2, "FP8: e4m3 or e5m2");
  uint32_t halves = 0;
#if HT_GPU
  asm("{ .reg .b16 lower, upper; mov.b32 {lower, upper}, %1; cvt.rn.f16x2.%2x2 %0, upper; }"
      : "=r"(halves)
      : "r"(four), "C"(TypeName<kType>::text));
#elif !defined(__CUDACC__)
  sim::require(Feature::fp8_convert, "cvt from FP8", site);
  halves = cvt_f16x2_fp8x2<kType>(static_cast<uint16_t>(four >> 16), site);
#endif
  return halves;
}

}  // namespace halftone::hw
