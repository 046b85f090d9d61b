// Arithmetic of f16 and bf16 in pairs, as the GPU rounds it: once, to nearest even, one NaN
// (0x7fff). And min and max of f32, whose zeros have an order.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

#include "sim/f32_rounding.h"
#include "sim/numerics/convert.h"

namespace halftone::sim {

// Of a number and a NaN the number, or the NaN where `nan` is set; -0 < +0.
inline float min_f32(float a, float b, bool nan) {
  if (std::isnan(a) || std::isnan(b)) {
    const bool number = !nan && !(std::isnan(a) && std::isnan(b));
    return number ? (std::isnan(a) ? b : a) : std::bit_cast<float>(0x7fffffffu);
  }
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
inline float max_f32(float a, float b, bool nan) {
  if (std::isnan(a) || std::isnan(b)) return min_f32(a, b, nan);
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

namespace half_detail {

inline float decode(bool bf16, uint16_t code) {
  return bf16 ? std::bit_cast<float>(uint32_t{code} << 16) : decode_f16(code);
}
inline uint16_t encode(bool bf16, float x, bool relu) {
  return bf16 ? cvt_bf16(x, Round::nearest_even, relu) : cvt_f16(x, Round::nearest_even, relu);
}

// a b + c in FP32 rounded to odd (towards zero, the last bit set where that lost anything), so that
// rounding it to the 11 or 8 bits of a half rounds the exact value once.
inline float fma_to_odd(float a, float b, float c) {
  const float cut = fma_f32(a, b, c, RoundF32::zero, false);
  const bool exact =
      fma_f32(a, b, c, RoundF32::up, false) == fma_f32(a, b, c, RoundF32::down, false);
  if (exact || !std::isfinite(cut)) return cut;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(cut) | 1);
}

template <class Function>
uint32_t each_half(bool bf16, uint32_t a, uint32_t b, uint32_t c, bool relu, Function function) {
  uint32_t result = 0;
  for (uint32_t i = 0; i < 32; i += 16) {
    const auto half = [=](uint32_t pair) {
      return decode(bf16, static_cast<uint16_t>(pair >> i & 0xffff));
    };
    result |= uint32_t{encode(bf16, function(half(a), half(b), half(c)), relu)} << i;
  }
  return result;
}

}  // namespace half_detail

inline uint32_t fma_pair(bool bf16, uint32_t a, uint32_t b, uint32_t c, bool relu) {
  return half_detail::each_half(bf16, a, b, c, relu, half_detail::fma_to_odd);
}
inline uint32_t add_pair(bool bf16, uint32_t a, uint32_t b) {
  return half_detail::each_half(bf16, a, b, 0, false, [](float x, float y, float) {
    return half_detail::fma_to_odd(x, 1, y);
  });
}
inline uint32_t sub_pair(bool bf16, uint32_t a, uint32_t b) {
  return half_detail::each_half(bf16, a, b, 0, false, [](float x, float y, float) {
    return half_detail::fma_to_odd(y, -1, x);
  });
}
inline uint32_t mul_pair(bool bf16, uint32_t a, uint32_t b) {
  return half_detail::each_half(bf16, a, b, 0, false, [](float x, float y, float) {
    // The zero that changes no sign.
    const float zero = std::signbit(x) != std::signbit(y) ? -0.0f : 0.0f;
    return half_detail::fma_to_odd(x, y, zero);
  });
}
inline uint32_t min_pair(bool bf16, uint32_t a, uint32_t b) {
  return half_detail::each_half(bf16, a, b, 0, false,
                                [](float x, float y, float) { return min_f32(x, y, false); });
}
inline uint32_t max_pair(bool bf16, uint32_t a, uint32_t b) {
  return half_detail::each_half(bf16, a, b, 0, false,
                                [](float x, float y, float) { return max_f32(x, y, false); });
}
inline uint32_t max_nan_pair(bool bf16, uint32_t a, uint32_t b) {
  return half_detail::each_half(bf16, a, b, 0, false,
                                [](float x, float y, float) { return max_f32(x, y, true); });
}

}  // namespace halftone::sim
