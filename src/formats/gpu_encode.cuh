// Elements to codes and scales to memory, as the quantising kernels share them. The bits are those
// of the codecs.
#pragma once
#include <cmath>

#include "formats/gpu_kernels.h"
#include "formats/quantize_rows.h"
#include "formats/scale_layout.h"
#include "pipe/access.h"
#include "pipe/codes.h"
#include "pipe/fault.h"

namespace halftone {

HT_DEVICE uint32_t magnitude(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffff; }

// encode_e2m1 without branches. Between two powers of two, the lower one p at least 1, codes are
// p / 2 apart; adding 1.5 * 2^22 p leaves the multiple of p / 2 in the last bits, rounded to even
// as the instruction does. x is a number.
HT_DEVICE uint32_t encode_e2m1_fast(float x) {
  const float a = hw::min(std::bit_cast<float>(magnitude(x)), kE2m1Max);
  const float at_least_one = hw::max(a, 1.0f);
  const uint32_t power = std::bit_cast<uint32_t>(at_least_one) & 0x7f800000;
  const uint32_t sum =
      std::bit_cast<uint32_t>(a + std::bit_cast<float>(power + (22u << 23) + 0x400000));
  // Two codes for each doubling; 127 of them are the bias of the exponent: 254 = -2 mod 8.
  return ((sum + (power >> 22) + 2) & 7) | (std::bit_cast<uint32_t>(x) >> 28 & 8);
}

// Eight codes, the first one lowest. kConvert: FP8 by the conversion instruction of sm_89 and
// later.
template <bool kConvert>
HT_DEVICE uint64_t encode_eight(const Recipe& r, const float (&x)[8], float multiplier, int zero) {
  uint32_t words[2] = {};
  if constexpr (kConvert) {
    const bool e5m2 = r.format == Format::fp8_e5m2;
    if (e5m2 || r.format == Format::fp8_e4m3 || r.format == Format::mxfp8) {
      HT_UNROLL
      for (uint32_t i = 0; i < 8; i += 2) {
        const float low = x[i] * multiplier, high = x[i + 1] * multiplier;
        const uint32_t pair = e5m2 ? hw::cvt_fp8x2<hw::Type::e5m2>(low, high)
                                   : hw::cvt_fp8x2<hw::Type::e4m3>(low, high);
        words[i / 4] |= pair << 8 * (i % 4);
      }
      return uint64_t{words[1]} << 32 | words[0];
    }
  }
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: the sum ends in the integer's bits
  switch (r.format) {
    case Format::mxfp4:
    case Format::nvfp4:
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) words[0] |= encode_e2m1_fast(x[i] * multiplier) << 4 * i;
      break;
    case Format::int8:
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) {
        const float v = hw::max(hw::min(x[i] * multiplier, 127.0f), -127.0f);
        words[i / 4] |= (std::bit_cast<uint32_t>(v + kShift) & 0xff) << 8 * (i % 4);
      }
      break;
    case Format::int4: {
      const auto least = static_cast<float>(-zero), most = static_cast<float>(15 - zero);
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) {
        const float v = hw::max(hw::min(x[i] * multiplier, most), least);
        const uint32_t code = std::bit_cast<uint32_t>(v + kShift) + static_cast<uint32_t>(zero);
        words[0] |= (code & 15) << 4 * i;
      }
      break;
    }
    default:
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) {
        words[i / 4] |= uint32_t{encode_element(r.format, x[i] * multiplier, zero)} << 8 * (i % 4);
      }
  }
  return uint64_t{words[1]} << 32 | words[0];
}

HT_DEVICE void store_scale(Format f, uint8_t* scales, int64_t i, uint32_t code) {
  if (f == Format::f32) {
    hw::store_global(reinterpret_cast<uint32_t*>(scales) + i, code);
  } else if (f == Format::f16 || f == Format::bf16) {
    hw::store_global(reinterpret_cast<uint16_t*>(scales) + i, static_cast<uint16_t>(code));
  } else {
    hw::store_global(scales + i, static_cast<uint8_t>(code));
  }
}

// The largest |x| of a block as bits, a NaN above everything, and its range.
struct BlockRange {
  float most = 0, low = 0, up = 0;
  HT_DEVICE void add(const float (&x)[8], bool asymmetric) {
    HT_UNROLL
    for (uint32_t i = 0; i < 8; ++i) most = hw::max_nan(most, fabsf(x[i]));
    if (!asymmetric) return;
    HT_UNROLL
    for (uint32_t i = 0; i < 8; ++i) low = hw::min(low, x[i]), up = hw::max(up, x[i]);
  }
  HT_DEVICE bool finite() const { return magnitude(most) < kInfinityBits; }
  HT_DEVICE ZeroPoint scale(const Recipe& recipe) const {
    if (!finite()) return {poisoned_scale(recipe), 0};
    return recipe.asymmetric ? asymmetric_scale(recipe, low, up)
                             : ZeroPoint{block_scale(recipe, magnitude(most)), kInt4Zero};
  }
};

// A scale as stored beside block (band, group) of a matrix; `index` counts the blocks of all.
HT_DEVICE void store_block_scale(const QuantizeArgs& args, const FaultReporter& faults,
                                 const BlockRange& range, const ZeroPoint& chosen, int64_t index,
                                 int64_t at) {
  store_scale(args.recipe.scale_format, args.scales, at, chosen.scale.code);
  if (args.recipe.asymmetric) {
    hw::store_global(args.zeros + index, static_cast<uint8_t>(chosen.zero));
  }
  if (range.finite() && !(chosen.scale.value < std::bit_cast<float>(kInfinityBits))) {
    pipe::report_fault(faults, Fault::quantize_scale, index, 0, 0);
  }
}

}  // namespace halftone
