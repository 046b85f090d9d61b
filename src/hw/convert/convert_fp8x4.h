// Four conversions to FP8 into one register (two cvt of pairs).
#pragma once
#include "hw/convert/convert.h"

namespace halftone::hw {

// Four f32 to four FP8, the first in the low byte.
template <Type kType, class Target = ThisTarget>
HT_DEVICE uint32_t cvt_fp8x4(const float (&x)[4], Site site = Site::current()) {
  static_assert(Target::has(Feature::fp8_convert), "cvt to FP8 exists from sm_89 on");
  static_assert(kType == Type::e4m3 || kType == Type::e5m2, "FP8: e4m3 or e5m2");
  uint32_t four = 0;
#if HT_GPU
  // As one text: the second conversion then writes beside the first, and nothing is moved.
  asm("{ .reg .b16 low, high;\n"
      "cvt.rn.satfinite.%5x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.%5x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high}; }"
      : "=r"(four)
      : "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "C"(TypeName<kType>::text));
#elif !defined(__CUDACC__)
  sim::require(Feature::fp8_convert, "cvt to FP8", site);
  four = cvt_fp8x2<kType>(x[0], x[1], site) | uint32_t{cvt_fp8x2<kType>(x[2], x[3], site)} << 16;
#endif
  return four;
}

}  // namespace halftone::hw
