// K and V of an FP8, INT8 or NVFP4 cache as pairs of FP16 for mma.sync in decode attention: exact,
// NaN included.
#pragma once
#include "hw/convert/convert_fp8_upper.h"
#include "hw/pair.h"
#include "ops/attention/decode/operands_16bit.cuh"

namespace halftone::attention_decode {

// E4M3: one instruction converts two values.
template <>
struct CacheFormat<Format::fp8_e4m3> {
  static constexpr uint32_t kBits = 8, kKeys = 32, kGroup = 0;
  static constexpr hw::Type kType = hw::Type::f16;
  static constexpr bool kSplitQ = true;
  static constexpr float kFactor = 1;
  HT_DEVICE static uint32_t convert(uint32_t pair) {
    return hw::cvt_f16x2_fp8x2<hw::Type::e4m3>(static_cast<uint16_t>(pair));
  }
  HT_DEVICE static uint32_t convert_upper(uint32_t four) {
    return hw::cvt_f16x2_fp8x2_upper<hw::Type::e4m3>(four);
  }
  HT_DEVICE static void key_pairs(uint32_t word, uint32_t, uint32_t (&pairs)[2]) {
    pairs[0] = convert(word), pairs[1] = convert_upper(word);
  }
  HT_HOST_DEVICE static uint32_t key_element(uint32_t pair, uint32_t half) {
    return 2 * pair + half;
  }
  HT_DEVICE static void value_pairs(uint32_t a, uint32_t b, uint32_t, uint32_t (&pairs)[4]) {
    const uint32_t low = hw::prmt(a, b, 0x5140), high = hw::prmt(a, b, 0x7362);
    pairs[0] = convert(low), pairs[1] = convert_upper(low);
    pairs[2] = convert(high), pairs[3] = convert_upper(high);
  }
};

// INT8: the value plus 128 in the mantissa of 1024, less 1152.
template <>
struct CacheFormat<Format::int8> {
  static constexpr uint32_t kBits = 8, kKeys = 32, kGroup = 0;
  static constexpr hw::Type kType = hw::Type::f16;
  static constexpr bool kSplitQ = true;
  static constexpr float kFactor = 1;
  HT_DEVICE static uint32_t convert(uint32_t bytes, uint32_t selector) {
    return hw::sub_pair<hw::Type::f16x2>(hw::prmt(bytes, 0x64646464, selector), 0x64806480);
  }
  HT_DEVICE static void dequantise(uint32_t four, uint32_t& low, uint32_t& high) {
    low = convert(four ^ 0x80808080, 0x4140), high = convert(four ^ 0x80808080, 0x4342);
  }
  HT_DEVICE static void key_pairs(uint32_t word, uint32_t, uint32_t (&pairs)[2]) {
    dequantise(word, pairs[0], pairs[1]);
  }
  HT_HOST_DEVICE static uint32_t key_element(uint32_t pair, uint32_t half) {
    return 2 * pair + half;
  }
  HT_DEVICE static void value_pairs(uint32_t a, uint32_t b, uint32_t, uint32_t (&pairs)[4]) {
    dequantise(hw::prmt(a, b, 0x5140), pairs[0], pairs[1]);
    dequantise(hw::prmt(a, b, 0x7362), pairs[2], pairs[3]);
  }
};

// NVFP4: E2M1 as E4M3, the exponent's two bits below two zeros, 2^-6 of the value. Its product with
// an E4M3 scale has six significant bits and is exact in FP16.
template <>
struct CacheFormat<Format::nvfp4> {
  static constexpr uint32_t kBits = 4, kKeys = 32, kGroup = 16;
  static constexpr hw::Type kType = hw::Type::f16;
  static constexpr bool kSplitQ = true;
  static constexpr float kFactor = 64;
  using Byte = CacheFormat<Format::fp8_e4m3>;
  static constexpr uint8_t kAndOr = (hw::kLop3A & hw::kLop3B) | hw::kLop3C;
  // The lower, and the upper, nibbles of four bytes as E4M3.
  HT_DEVICE static uint32_t lower(uint32_t w) {
    return hw::lop3<kAndOr>(w << 4, 0x80808080, w << 2 & 0x1c1c1c1c);
  }
  HT_DEVICE static uint32_t upper(uint32_t w) {
    return hw::lop3<kAndOr>(w, 0x80808080, w >> 2 & 0x1c1c1c1c);
  }
  HT_DEVICE static uint32_t times(uint32_t pair, uint32_t scale) {
    return hw::mul_pair<hw::Type::f16x2>(Byte::convert(pair), scale);
  }
  HT_DEVICE static uint32_t times_upper(uint32_t pair, uint32_t scale) {
    return hw::mul_pair<hw::Type::f16x2>(Byte::convert_upper(pair), scale);
  }
  HT_DEVICE static void key_pairs(uint32_t word, uint32_t scale, uint32_t (&pairs)[4]) {
    const uint32_t low = lower(word), high = upper(word);
    pairs[0] = times(low, scale), pairs[1] = times_upper(low, scale);
    pairs[2] = times(high, scale), pairs[3] = times_upper(high, scale);
  }
  HT_HOST_DEVICE static uint32_t key_element(uint32_t pair, uint32_t half) {
    return pair % 2 * 4 + 2 * half + pair / 2;
  }
  HT_DEVICE static void value_pairs(uint32_t a, uint32_t b, uint32_t scale, uint32_t (&pairs)[8]) {
    HT_UNROLL
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t both = hw::prmt(a, b, i == 0 ? 0x5140 : 0x7362);
      const uint32_t low = lower(both), high = upper(both);
      pairs[4 * i] = times(low, scale), pairs[4 * i + 1] = times(high, scale);
      pairs[4 * i + 2] = times_upper(low, scale), pairs[4 * i + 3] = times_upper(high, scale);
    }
  }
};

}  // namespace halftone::attention_decode
