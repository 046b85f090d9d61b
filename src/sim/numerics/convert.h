// Conversions between number formats as PTX cvt defines them, one element at a time.
//
// formats/codec.h holds the library's codecs; where cvt does the same they are called. What
// differs:
//  - cvt writes one NaN for each format (f16 and bf16 0x7fff, FP8 0x7f), the codecs of f16 and bf16
//    keep sign and payload;
//  - .relu makes negative results and -0 a +0 and leaves NaN;
//  - without .satfinite f16 and bf16 overflow to infinity; .rz stops at the largest number;
//  - FP8 and narrower formats exist with .satfinite only, so infinities saturate; NaN becomes 0x7f
//    in FP8 and the largest number (without sign) in e2m1, e2m3 and e3m2.
#pragma once
#include <bit>
#include <cstdint>

#include "formats/codec.h"

namespace halftone::sim {

enum class Round : uint8_t { nearest_even, zero };

namespace convert_detail {

constexpr bool is_nan(float x) { return (std::bit_cast<uint32_t>(x) & 0x7fffffffu) > 0x7f800000u; }
// .relu before the conversion equals .relu after it: rounding keeps signs.
constexpr float relu(float x, bool on) {
  return on && !is_nan(x) && (std::bit_cast<uint32_t>(x) >> 31) != 0 ? 0.0f : x;
}
// Drops the bits of an FP32 magnitude that f16 has no room for, so that encode_f16 is exact.
constexpr float toward_zero_f16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x7f800000u) return x;
  if (magnitude >= 0x477fe000u)  // 65504 and above
    return std::bit_cast<float>((bits & 0x80000000u) | 0x477fe000u);
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  const int drop = exponent >= -14 ? 13 : 13 - 14 - exponent;
  if (drop > 23) return std::bit_cast<float>(bits & 0x80000000u);
  return std::bit_cast<float>(bits & ~((1u << drop) - 1));
}

}  // namespace convert_detail

constexpr uint16_t cvt_f16(float x, Round round = Round::nearest_even, bool relu = false,
                           bool satfinite = false) {
  if (convert_detail::is_nan(x)) return 0x7fff;
  x = convert_detail::relu(x, relu);
  if (round == Round::zero) x = convert_detail::toward_zero_f16(x);
  const uint16_t code = encode_f16(x);
  return satfinite && (code & 0x7fff) == 0x7c00 ? static_cast<uint16_t>(code - 1) : code;
}

constexpr uint16_t cvt_bf16(float x, Round round = Round::nearest_even, bool relu = false,
                            bool satfinite = false) {
  if (convert_detail::is_nan(x)) return 0x7fff;
  x = convert_detail::relu(x, relu);
  const uint16_t code = round == Round::zero
                            ? static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16)
                            : encode_bf16(x);
  return satfinite && (code & 0x7fff) == 0x7f80 ? static_cast<uint16_t>(code - 1) : code;
}

// --- narrow floats, all .rn.satfinite; sources in f16 or bf16 are exact in FP32
// -------------------

constexpr uint8_t cvt_e4m3(float x, bool relu = false) {
  return encode_e4m3(convert_detail::relu(x, relu));
}
constexpr uint8_t cvt_e5m2(float x, bool relu = false) {
  return encode_e5m2(convert_detail::relu(x, relu));
}
constexpr uint8_t cvt_e2m1(float x, bool relu = false) {
  return encode_e2m1(convert_detail::relu(x, relu));
}

namespace convert_detail {
// Six-bit floats have neither infinities nor NaN.
constexpr uint8_t six_bits(float x, int fraction_bits, int min_exponent, float largest) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x1f;
  const auto sign = static_cast<uint8_t>((bits >> 26) & 0x20);
  if (magnitude >= std::bit_cast<uint32_t>(largest)) return static_cast<uint8_t>(sign | 0x1f);
  const uint32_t code = codec_detail::round_magnitude(magnitude, fraction_bits, min_exponent);
  return static_cast<uint8_t>(sign | code);
}
constexpr float six_bits_value(uint8_t code, int fraction_bits, int bias) {
  const int exponent = (code & 0x1f) >> fraction_bits, fraction = code & ((1 << fraction_bits) - 1);
  float magnitude = static_cast<float>(fraction + (exponent != 0 ? 1 << fraction_bits : 0));
  for (int i = (exponent != 0 ? exponent : 1) - bias - fraction_bits; i < 0; ++i) magnitude /= 2;
  for (int i = (exponent != 0 ? exponent : 1) - bias - fraction_bits; i > 0; --i) magnitude *= 2;
  return (code & 0x20) != 0 ? -magnitude : magnitude;
}
}  // namespace convert_detail

// In bits [5:0] of the byte. Largest values 7.5 and 28.
constexpr uint8_t cvt_e2m3(float x, bool relu = false) {
  return convert_detail::six_bits(convert_detail::relu(x, relu), 3, 0, 7.5f);
}
constexpr uint8_t cvt_e3m2(float x, bool relu = false) {
  return convert_detail::six_bits(convert_detail::relu(x, relu), 2, -2, 28.0f);
}
constexpr float decode_e2m3(uint8_t code) { return convert_detail::six_bits_value(code, 3, 1); }
constexpr float decode_e3m2(uint8_t code) { return convert_detail::six_bits_value(code, 2, 3); }

// cvt.rp and cvt.rz .satfinite.ue8m0x2, from f32 or bf16: the sign is not looked at.
constexpr uint8_t cvt_ue8m0_up(float x) { return encode_ue8m0_up(x); }
constexpr uint8_t cvt_ue8m0_zero(float x) { return encode_ue8m0_down(x); }

// --- from narrow floats -------------------------------------------------------------------------

// To f16 (cvt.rn.f16x2.e4m3x2 and its kin): exact, one NaN.
constexpr uint16_t cvt_f16_e4m3(uint8_t code, bool relu = false) {
  return cvt_f16(decode_e4m3(code), Round::nearest_even, relu);
}
constexpr uint16_t cvt_f16_e5m2(uint8_t code, bool relu = false) {
  return cvt_f16(decode_e5m2(code), Round::nearest_even, relu);
}
constexpr uint16_t cvt_f16_e2m1(uint8_t code, bool relu = false) {
  return cvt_f16(decode_e2m1(code), Round::nearest_even, relu);
}
constexpr uint16_t cvt_f16_e2m3(uint8_t code, bool relu = false) {
  return cvt_f16(decode_e2m3(code), Round::nearest_even, relu);
}
constexpr uint16_t cvt_f16_e3m2(uint8_t code, bool relu = false) {
  return cvt_f16(decode_e3m2(code), Round::nearest_even, relu);
}
// cvt.f32.f16 writes the one NaN of FP32, where cvt.f32.bf16 keeps sign and payload (decode_bf16).
constexpr float cvt_f32_f16(uint16_t code) {
  const float x = decode_f16(code);
  return convert_detail::is_nan(x) ? std::bit_cast<float>(0x7fffffffu) : x;
}
// cvt.rn.bf16x2.ue8m0x2: 2^-127 is a bf16 subnormal.
constexpr uint16_t cvt_bf16_ue8m0(uint8_t code) { return cvt_bf16(decode_ue8m0(code)); }

// --- tf32 ---------------------------------------------------------------------------------------

// To an FP32 pattern whose low 13 bits are 0. rna, ties away from zero, is assembled into integer
// instructions: a NaN only loses its low bits (and with a small payload becomes an infinity), and
// .satfinite steps any infinity or NaN down by one. rn and rz write one NaN, the usual one cut off.
enum class RoundTf32 : uint8_t { nearest_away, nearest_even, zero };
constexpr uint32_t cvt_tf32(float x, RoundTf32 round = RoundTf32::nearest_away, bool relu = false,
                            bool satfinite = false) {
  constexpr uint32_t kKept = ~0x1fffu, kInfinity = 0x7f800000u;
  if (convert_detail::is_nan(x) && round != RoundTf32::nearest_away) return 0x7fffffffu & kKept;
  const uint32_t bits = std::bit_cast<uint32_t>(convert_detail::relu(x, relu));
  const uint32_t increment = round == RoundTf32::nearest_away   ? 0x1000u
                             : round == RoundTf32::nearest_even ? 0xfffu + ((bits >> 13) & 1)
                                                                : 0;
  const uint32_t code = ((bits & 0x7fffffffu) >= kInfinity ? bits : bits + increment) & kKept;
  return satfinite && (code & 0x7fffffffu) >= kInfinity ? code - 0x2000u : code;
}

// --- integers -----------------------------------------------------------------------------------

enum class RoundInteger : uint8_t { nearest_even, zero, down, up };

// cvt.{rni,rzi,rmi,rpi}: values outside the range stop at its ends, NaN gives 0.
constexpr int64_t cvt_integer(float x, RoundInteger round, int64_t low, int64_t high) {
  if (convert_detail::is_nan(x)) return 0;
  if (x >= 0x1p62f) return high;
  if (x <= -0x1p62f) return low;
  auto whole = static_cast<int64_t>(x);  // towards zero
  const float rest = x - static_cast<float>(whole);
  switch (round) {
    case RoundInteger::nearest_even:
      if (rest > 0.5f || (rest == 0.5f && (whole & 1) != 0)) ++whole;
      if (rest < -0.5f || (rest == -0.5f && (whole & 1) != 0)) --whole;
      break;
    case RoundInteger::down:
      whole -= rest < 0;
      break;
    case RoundInteger::up:
      whole += rest > 0;
      break;
    case RoundInteger::zero:
      break;
  }
  return whole < low ? low : whole > high ? high : whole;
}
constexpr int32_t cvt_s32(float x, RoundInteger round) {
  return static_cast<int32_t>(cvt_integer(x, round, INT32_MIN, INT32_MAX));
}
constexpr uint32_t cvt_u32(float x, RoundInteger round) {
  return static_cast<uint32_t>(cvt_integer(x, round, 0, UINT32_MAX));
}
constexpr int8_t cvt_s8(float x, RoundInteger round) {
  return static_cast<int8_t>(cvt_integer(x, round, -128, 127));
}
constexpr uint8_t cvt_u8(float x, RoundInteger round) {
  return static_cast<uint8_t>(cvt_integer(x, round, 0, 255));
}
// cvt.sat.s8.s32.
constexpr int8_t cvt_s8_saturated(int32_t x) {
  return static_cast<int8_t>(x < -128 ? -128 : x > 127 ? 127 : x);
}

}  // namespace halftone::sim
