// Scalar codecs of every element format: the definition that vector and GPU code must equal bit for
// bit. Encoders round to nearest, ties to even, and saturate (FP8, FP4) as the conversion
// instructions with .satfinite do.
#pragma once
#include <cstdint>

#include "base/format_traits.h"

// Always inlined, so that files compiled for one ISA level may use them: no copy is left
// for the linker to merge with that of another level.
#define HALFTONE_CODEC constexpr inline __attribute__((always_inline))

namespace halftone {

// --- 16 bits -------------------------------------------------------------------------------------

HALFTONE_CODEC float decode_bf16(uint16_t code) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(code) << 16);
}

HALFTONE_CODEC uint16_t encode_bf16(float x) {
  const uint32_t u = __builtin_bit_cast(uint32_t, x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40);  // quiet NaN
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

HALFTONE_CODEC float decode_f16(uint16_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x8000) << 16;
  const uint32_t exponent = (code >> 10) & 31, mantissa = code & 0x3ff;
  if (exponent == 31) {
    const uint32_t quiet = mantissa != 0 ? 0x400000u : 0;  // as VCVTPH2PS: NaNs come out quiet
    return __builtin_bit_cast(float, sign | 0x7f800000u | quiet | (mantissa << 13));
  }
  if (exponent != 0)
    return __builtin_bit_cast(float, sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return __builtin_bit_cast(float, sign | __builtin_bit_cast(uint32_t, magnitude));
}

namespace codec_detail {
// Rounds |x| to a float with `mantissa_bits` and smallest exponent `min_exponent` (subnormal
// spacing 2^(min_exponent - mantissa_bits)), ties to even, and returns the code without its sign.
// The caller has dealt with NaN and with values above the largest one.
HALFTONE_CODEC uint32_t round_magnitude(uint32_t u, int mantissa_bits, int min_exponent) {
  const int exponent = static_cast<int>(u >> 23) - 127;
  if (exponent < min_exponent) {
    // Adding this power of two puts the subnormal spacing at the last bit of the float, so that the
    // addition itself rounds; its low bits are then the code.
    const float magic = __builtin_bit_cast(
        float, static_cast<uint32_t>(min_exponent - mantissa_bits + 23 + 127) << 23);
    return __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, u) + magic) -
           __builtin_bit_cast(uint32_t, magic);
  }
  const int drop = 23 - mantissa_bits;
  const uint32_t rounded = u + (1u << (drop - 1)) - 1 + ((u >> drop) & 1);
  return (rounded >> drop) - (static_cast<uint32_t>(min_exponent + 127 - 1) << mantissa_bits);
}
}  // namespace codec_detail

HALFTONE_CODEC uint16_t encode_f16(float x) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  const uint32_t u = bits & 0x7fffffffu;
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  if (u > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00 | ((u >> 13) & 0x3ff));  // quiet, payload kept
  }
  if (u >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00);  // 65520 and above: infinity
  return static_cast<uint16_t>(sign | codec_detail::round_magnitude(u, 10, -14));
}

// --- 8 bits --------------------------------------------------------------------------------------

HALFTONE_CODEC float decode_e4m3(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80) << 24;
  const uint32_t exponent = (code >> 3) & 15, mantissa = code & 7;
  if ((code & 0x7f) == 0x7f) return __builtin_bit_cast(float, sign | 0x7fc00000u);
  if (exponent != 0)
    return __builtin_bit_cast(float, sign | ((exponent + 120) << 23) | (mantissa << 20));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-9f;
  return __builtin_bit_cast(float, sign | __builtin_bit_cast(uint32_t, magnitude));
}

// Saturates, infinities too; of NaN the sign is dropped, as the conversion instructions do.
template <Element kElement>
HALFTONE_CODEC uint8_t encode_small(float x) {
  constexpr ElementTraits kTraits = traits_of(kElement);
  static_assert(kTraits.mantissa_bits > 0);
  constexpr int kLeast = least_exponent(kElement);
  constexpr uint32_t kLargest = __builtin_bit_cast(uint32_t, kTraits.largest);
  constexpr uint32_t kLargestCode =
      codec_detail::round_magnitude(kLargest, kTraits.mantissa_bits, kLeast);
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  const uint32_t u = bits & 0x7fffffffu;
  const uint32_t sign = bits >> 31 << (kTraits.bits - 1);
  if (u > 0x7f800000u) return static_cast<uint8_t>(kTraits.nan);
  if (u >= kLargest) return static_cast<uint8_t>(sign | kLargestCode);
  return static_cast<uint8_t>(sign |
                              codec_detail::round_magnitude(u, kTraits.mantissa_bits, kLeast));
}
// Of elements whose codes are all finite.
template <Element kElement>
HALFTONE_CODEC float decode_finite(uint8_t code) {
  constexpr ElementTraits kTraits = traits_of(kElement);
  static_assert(kTraits.mantissa_bits > 0 && !is_fp8(kElement));
  constexpr int kShift = 23 - kTraits.mantissa_bits, kLeast = least_exponent(kElement);
  const uint32_t magnitude = code & ((1u << (kTraits.bits - 1)) - 1);
  const uint32_t sign = static_cast<uint32_t>(code >> (kTraits.bits - 1)) << 31;
  if (magnitude >> kTraits.mantissa_bits != 0) {
    const uint32_t bits = (magnitude << kShift) + (static_cast<uint32_t>(kLeast + 126) << 23);
    return __builtin_bit_cast(float, sign | bits);
  }
  constexpr float kUnit =
      __builtin_bit_cast(float, static_cast<uint32_t>(kLeast - kTraits.mantissa_bits + 127) << 23);
  const float value = static_cast<float>(magnitude) * kUnit;
  return __builtin_bit_cast(float, sign | __builtin_bit_cast(uint32_t, value));
}

HALFTONE_CODEC uint8_t encode_e4m3(float x) { return encode_small<Element::e4m3>(x); }
HALFTONE_CODEC uint8_t encode_e5m2(float x) { return encode_small<Element::e5m2>(x); }

HALFTONE_CODEC float decode_e5m2(uint8_t code) {
  return decode_f16(static_cast<uint16_t>(code << 8));  // E5M2 is the upper byte of FP16
}

// 2^(code - 127); code 0 is 2^-127, code 255 is NaN.
HALFTONE_CODEC float decode_ue8m0(uint8_t code) {
  if (code == 0) return __builtin_bit_cast(float, 0x00400000u);
  if (code == 255) return __builtin_bit_cast(float, 0x7fc00000u);
  return __builtin_bit_cast(float, static_cast<uint32_t>(code) << 23);
}

// Smallest power of two >= x (cvt.rp.satfinite.ue8m0): NaN 0xff, infinity 0xfe, 0 and below 2^-127
// give 0. The sign is ignored: scales are magnitudes.
HALFTONE_CODEC uint8_t encode_ue8m0_up(float x) {
  const uint32_t u = __builtin_bit_cast(uint32_t, x) & 0x7fffffffu;
  if (u > 0x7f800000u) return 0xff;
  const uint32_t exponent = u >> 23, mantissa = u & 0x7fffffu;
  if (exponent == 255) return 0xfe;
  const bool up = mantissa > 0 && exponent != 254 && !(exponent == 0 && mantissa <= 0x400000u);
  return static_cast<uint8_t>(exponent + up);
}

// floor(log2 x) + 127, clamped to 0..254: the rounding of the OCP MX text.
HALFTONE_CODEC uint8_t encode_ue8m0_down(float x) {
  const uint32_t u = __builtin_bit_cast(uint32_t, x) & 0x7fffffffu;
  if (u > 0x7f800000u) return 0xff;
  const uint32_t exponent = u >> 23;
  return static_cast<uint8_t>(exponent == 255 ? 254 : exponent);
}

// 1 / decode_ue8m0(code), exactly.
HALFTONE_CODEC float reciprocal_ue8m0(uint8_t code) {
  if (code == 255) return __builtin_bit_cast(float, 0x7fc00000u);
  if (code == 254) return __builtin_bit_cast(float, 0x00400000u);
  return __builtin_bit_cast(float, static_cast<uint32_t>(254 - code) << 23);
}

// --- 4 bits --------------------------------------------------------------------------------------

// Codes 0..7 are 0, 0.5, 1, 1.5, 2, 3, 4, 6; bit 3 is the sign.
HALFTONE_CODEC float decode_e2m1(uint8_t code) {
  constexpr float kValues[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const float magnitude = kValues[code & 7];
  return (code & 8) != 0 ? -magnitude : magnitude;
}

HALFTONE_CODEC uint8_t encode_e2m1(float x) { return encode_small<Element::e2m1>(x); }

// --- INT4 ----------------------------------------------------------------------------------------

inline constexpr int kInt4Zero = 8;  // implicit zero point of symmetric int4 codes

// Nibble `i` of a packed row.
HALFTONE_CODEC uint8_t nibble(const uint8_t* row, int64_t i) {
  return static_cast<uint8_t>((row[i / 2] >> ((i % 2) * 4)) & 15);
}
// Code `i` of a row, of whatever width: the first one is in the lowest bits of its byte.
HALFTONE_CODEC uint8_t code_at(Format format, const uint8_t* row, int64_t i) {
  const int bits = bits_of(format);
  if (bits == 8) return row[i];
  if (bits == 4) return nibble(row, i);
  const int64_t at = i * bits;
  const int low = static_cast<int>(at % 8);
  uint32_t word = row[at / 8];
  if (low + bits > 8) word |= static_cast<uint32_t>(row[at / 8 + 1]) << 8;
  return static_cast<uint8_t>(word >> low & ((1u << bits) - 1));
}

// Rounds to an integer within the limits, ties to even; NaN gives the upper limit.
HALFTONE_CODEC int round_to_integer(float x, float low, float high) {
  x = x < high ? x : high;
  x = x > low ? x : low;
  const float shift = 12582912.0f;  // 1.5 * 2^23: the sum has no bits below 1
  return static_cast<int>((x + shift) - shift);
}

// --- by format -----------------------------------------------------------------------------------

// Codes are in the low bits. `zero` is what INT4 adds; others ignore it.
template <Element kElement>
HALFTONE_CODEC uint8_t encode_as(float x, [[maybe_unused]] int zero) {
  if constexpr (is_small_float(kElement)) {
    return encode_small<kElement>(x);
  } else if constexpr (kElement == Element::int8) {
    return static_cast<uint8_t>(round_to_integer(x, -127, 127));
  } else {
    static_assert(kElement == Element::int4);
    const int code = round_to_integer(x, -16, 16) + zero;
    return static_cast<uint8_t>(code < 0 ? 0 : code > 15 ? 15 : code);
  }
}
template <Element kElement>
HALFTONE_CODEC float decode_as(uint8_t code, [[maybe_unused]] int zero) {
  if constexpr (kElement == Element::e4m3) {
    return decode_e4m3(code);
  } else if constexpr (kElement == Element::e5m2) {
    return decode_e5m2(code);
  } else if constexpr (kElement == Element::e2m1) {
    return decode_e2m1(code);
  } else if constexpr (is_small_float(kElement)) {
    return decode_finite<kElement>(code);
  } else if constexpr (kElement == Element::int8) {
    return static_cast<float>(static_cast<int8_t>(code));
  } else {
    static_assert(kElement == Element::int4);
    return static_cast<float>(static_cast<int>(code) - zero);
  }
}

HALFTONE_CODEC uint8_t encode_element(Format format, float x, int zero) {
  switch (element_of(format)) {
#define HALFTONE_X(name, ...) \
  case Element::name:         \
    return encode_as<Element::name>(x, zero);
    HALFTONE_SMALL_ELEMENTS(HALFTONE_X)
#undef HALFTONE_X
    default:
      return 0;
  }
}
HALFTONE_CODEC float decode_element(Format format, uint8_t code, int zero) {
  switch (element_of(format)) {
#define HALFTONE_X(name, ...) \
  case Element::name:         \
    return decode_as<Element::name>(code, zero);
    HALFTONE_SMALL_ELEMENTS(HALFTONE_X)
#undef HALFTONE_X
    default:
      return 0;
  }
}

// Element `i` of a row of floats or of codes, without its scale.
HALFTONE_CODEC float element_at(Format format, const void* row, int64_t i, int zero = kInt4Zero) {
  switch (element_of(format)) {
    case Element::f32:
      return static_cast<const float*>(row)[i];
    case Element::f16:
      return decode_f16(static_cast<const uint16_t*>(row)[i]);
    case Element::bf16:
      return decode_bf16(static_cast<const uint16_t*>(row)[i]);
    default:
      return decode_element(format, code_at(format, static_cast<const uint8_t*>(row), i), zero);
  }
}

// The largest magnitude that a block's scale maps to. INT4 keeps -8 for rounding of the scale.
HALFTONE_CODEC float largest_element(Format format) {
  return traits_of(element_of(format)).largest;
}

HALFTONE_CODEC bool is_four_bits(Format format) { return bits_of(format) == 4; }

}  // namespace halftone
