// Rounding errors of the number formats, from which tests derive their tolerances.
#pragma once
#include <cmath>
#include <cstring>
#include <vector>

#include "halftone/tensor.h"

namespace halftone::test {

inline constexpr double kF32Roundoff = 0x1p-24;

// Largest relative error of rounding to nearest, for results that are normal numbers.
inline double unit_roundoff(Format f) {
  return f == Format::f32 ? 0x1p-24 : f == Format::f16 ? 0x1p-11 : 0x1p-8;
}
// Largest absolute error of rounding a result that is subnormal.
inline double subnormal_roundoff(Format f) {
  return f == Format::f32 ? 0x1p-150 : f == Format::f16 ? 0x1p-25 : 0x1p-134;
}
// A result that is off by a relative `error` before it is rounded to `f`.
inline double rounded_bound(Format f, double reference, double error) {
  return std::abs(reference) * (error + unit_roundoff(f) * (1 + error)) + subnormal_roundoff(f);
}

// The bytes of two contiguous tensors agree.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.format() == b.format() &&
         std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0;
}

inline constexpr Format kPlainFormats[] = {Format::f32, Format::f16, Format::bf16};

}  // namespace halftone::test
