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

// Eight codes of encode_e2m1, without branches: the code of a >= 0 is the least of 2 a, a + 2,
// a / 2 + 4 and 7, rounded, as it is one of these lines between each two powers of two and lies
// below the others. 1.5 * 2^23 rounds in the same step, to even as the codes are, and leaves the
// code in the last bits. x is a number.
HT_DEVICE uint32_t encode_e2m1_eight(const float (&x)[8], float multiplier) {
  constexpr float kShift = 12582912.0f;
  constexpr uint32_t kBits = 0x4b400000;
  uint32_t codes = 0, signs = 0;
  HT_UNROLL
  for (int i = 7; i >= 0; --i) {
    const float scaled = x[i] * multiplier, a = fabsf(scaled);
    float code = hw::min(hw::fma(a, 2.0f, kShift), a + (kShift + 2));
    code = hw::min(hw::min(hw::fma(a, 0.5f, kShift + 4), kShift + 7), code);
    codes = codes * 16 + std::bit_cast<uint32_t>(code);
    signs = signs << 4 | std::bit_cast<uint32_t>(scaled) >> 31;
  }
  return codes - kBits * 0x11111111u + signs * 8;
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
      words[0] = encode_e2m1_eight(x, multiplier);
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

HT_DEVICE ZeroPoint given_scale(float scale) {
  return {{std::bit_cast<uint32_t>(scale), scale, 1.0f / scale}, kInt4Zero};
}

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
