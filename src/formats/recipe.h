// How the scale of a block follows from its largest element: the rules that quantize documents,
// once, for the scalar and the vector kernels.
#pragma once
#include <cstdint>

#include "formats/codec.h"
#include "halftone/dtype.h"

namespace halftone {

// What quantises a block, apart from its elements.
struct Recipe {
  Format format = Format::fp8_e4m3;
  Format scale_format = Format::f32;
  int64_t group = 0;  // elements of a row that share a scale; 0: the whole row
  bool ue8m0_down = false;
  bool asymmetric = false;
  bool adaptive = false;
  bool streamed = false;  // codes are written past the caches; a stream_fence() follows
  // Elements of a row ask the memory for what lies so many bytes behind them; 0: for what is
  // quantised next.
  int64_t ahead = 0;
  // nvfp4: x * encode_scale is what the E4M3 scales see; 1 / encode_scale is decode_scale, and
  // tensor_scale is what is stored.
  float encode_scale = 1, decode_scale = 1, tensor_scale = 1;
};

// A scale as stored and as used. Elements are encode(x * multiplier).
struct BlockScale {
  uint32_t code;  // in the scale format
  float value;    // what `code` decodes to
  float multiplier;
};

HALFTONE_CODEC uint32_t float_bits(float x) { return __builtin_bit_cast(uint32_t, x); }
HALFTONE_CODEC float bits_float(uint32_t x) { return __builtin_bit_cast(float, x); }

inline constexpr uint32_t kInfinityBits = 0x7f800000u;
inline constexpr uint32_t kNanBits = 0x7fc00000u;
inline constexpr float kFloatMax = 3.40282346638528859812e38f;

HALFTONE_CODEC float decode_scale(Format format, uint32_t code) {
  switch (format) {
    case Format::f16:
      return decode_f16(static_cast<uint16_t>(code));
    case Format::bf16:
      return decode_bf16(static_cast<uint16_t>(code));
    case Format::fp8_e4m3:
      return decode_e4m3(static_cast<uint8_t>(code));
    case Format::ue8m0:
      return decode_ue8m0(static_cast<uint8_t>(code));
    default:
      return bits_float(code);
  }
}

// The UE8M0 code of amax / largest_element(format), exactly: exponents are compared instead of
// divided, so that amax = 448 * 2^k gives 2^k and the next float gives 2^(k+1), also where the
// quotient would be subnormal.
HALFTONE_CODEC uint32_t ue8m0_scale(Format format, uint32_t amax, bool down) {
  const uint32_t largest = float_bits(largest_element(format));
  const int up = !down && (amax & 0x7fffffu) > (largest & 0x7fffffu) ? 1 : 0;
  const int code = static_cast<int>(amax >> 23) - static_cast<int>((largest >> 23) - 127) + up;
  return code < 0 ? 0u : static_cast<uint32_t>(code);
}

// A scale given by its code.
HALFTONE_CODEC BlockScale scale_of_code(const Recipe& recipe, uint32_t code) {
  const float value = decode_scale(recipe.scale_format, code);
  if (recipe.scale_format == Format::ue8m0) {
    return {code, value, reciprocal_ue8m0(static_cast<uint8_t>(code))};
  }
  if (has_tensor_scale(recipe.format)) {
    // A scale that underflowed to 0 decodes to 0 whatever the elements: they saturate.
    const float inverse = 1.0f / (value * recipe.decode_scale);
    return {code, value, inverse < kFloatMax ? inverse : kFloatMax};
  }
  return {code, value, 1.0f / value};
}

// A scale near `value`. Never so small that its reciprocal overflows or it rounds to 0.
HALFTONE_CODEC BlockScale scale_near(const Recipe& recipe, float value) {
  if (recipe.scale_format == Format::f16) {
    const float least = 0x1p-24f;
    return scale_of_code(recipe, encode_f16(value > least ? value : least));
  }
  const float least = 0x1p-126f;
  const float clamped = value > least ? value : least;
  return scale_of_code(
      recipe, recipe.scale_format == Format::bf16 ? encode_bf16(clamped) : float_bits(clamped));
}

// The scale of a block that holds a NaN or an infinity: NaN, with elements of code 0, so that the
// block dequantises to NaN and not to something plausible.
HALFTONE_CODEC BlockScale poisoned_scale(const Recipe& recipe) {
  switch (recipe.scale_format) {
    case Format::f16:
      return {0x7e00, bits_float(kNanBits), 0};
    case Format::bf16:
      return {0x7fc0, bits_float(kNanBits), 0};
    case Format::fp8_e4m3:
      return {0x7f, bits_float(kNanBits), 0};
    case Format::ue8m0:
      return {0xff, bits_float(kNanBits), 0};
    default:
      return {kNanBits, bits_float(kNanBits), 0};
  }
}
HALFTONE_CODEC bool poisoned(const BlockScale& scale) { return scale.value != scale.value; }

// amax: bits of the largest |x| of the block, finite.
HALFTONE_CODEC BlockScale block_scale(const Recipe& recipe, uint32_t amax) {
  const float largest = bits_float(amax);
  if (recipe.scale_format == Format::ue8m0) {
    return scale_of_code(recipe, ue8m0_scale(recipe.format, amax, recipe.ue8m0_down));
  }
  if (has_tensor_scale(recipe.format)) {
    // The order of these products decides the last bit; this one is the vendor's exact mode.
    const uint8_t code = encode_e4m3(largest * (recipe.encode_scale * (1.0f / 6.0f)));
    BlockScale scale = scale_of_code(recipe, code);
    if (amax == 0) scale.multiplier = 0;
    return scale;
  }
  if (amax == 0) return scale_near(recipe, 1.0f);
  return scale_near(recipe, largest / largest_element(recipe.format));
}

// Adaptive scales: the i-th alternative to the recipe's scale. Block formats try neighbouring
// codes: nvfp4 up to a scale 1.5 times as large, where amax becomes 4 instead of 6 and the
// half-open step between them is avoided. Others try the factors below: smaller scales clip the
// outlier for the sake of the rest.
inline constexpr int kNvfp4Alternatives = 8, kUe8m0Alternatives = 2, kFactorAlternatives = 6;
HALFTONE_CODEC float scale_factor(int i) {
  const float factors[kFactorAlternatives] = {0.95f, 0.9f, 0.85f, 0.8f, 0.75f, 1.05f};
  return factors[i];
}

HALFTONE_CODEC int alternatives(const Recipe& recipe) {
  return recipe.scale_format == Format::ue8m0 ? kUe8m0Alternatives
         : has_tensor_scale(recipe.format)    ? kNvfp4Alternatives
                                              : kFactorAlternatives;
}
// Codes outside the format fall back to the recipe's own scale.
HALFTONE_CODEC BlockScale alternative(const Recipe& recipe, const BlockScale& scale, int i) {
  const int code = static_cast<int>(scale.code);
  if (recipe.scale_format == Format::ue8m0) {
    const int other = code + (i == 0 ? -1 : 1);
    return other < 0 || other > 254 ? scale : scale_of_code(recipe, static_cast<uint32_t>(other));
  }
  if (has_tensor_scale(recipe.format)) {
    const int other = code + (i < 2 ? i - 2 : i - 1);  // -2, -1, 1 .. 6
    return other < 1 || other > 0x7e ? scale : scale_of_code(recipe, static_cast<uint32_t>(other));
  }
  return scale_near(recipe, scale.value * scale_factor(i));
}

// INT4 with a zero point: the range, widened to contain 0, in 15 steps.
struct ZeroPoint {
  BlockScale scale;
  int zero;
};
HALFTONE_CODEC ZeroPoint asymmetric_scale(const Recipe& recipe, float low, float high) {
  // Halves, so that the width of a range from -FLT_MAX to FLT_MAX does not overflow.
  const float width = high * 0.5f - low * 0.5f;
  const BlockScale scale = scale_near(recipe, width > 0 ? width * (2.0f / 15.0f) : 1.0f);
  // Adding 1.5 * 2^23 rounds to the nearest integer, ties to even.
  const float shift = 12582912.0f;
  const float zero = (-low * scale.multiplier + shift) - shift;
  return {scale, zero < 15.0f ? static_cast<int>(zero) : 15};
}

}  // namespace halftone
