// One element of a matrix operand taken apart, as the tensor core sees it.
#pragma once
#include <cstdint>

#include "sim/numerics/mma.h"

namespace halftone::sim {

// value = (-1)^negative * significand * 2^(exponent - fraction). Subnormals keep the smallest
// normal exponent and a significand below one; zero has significand 0.
struct MmaNumber {
  enum class Kind : uint8_t { finite, infinite, nan };
  Kind kind = Kind::finite;
  bool negative = false;
  uint32_t significand = 0;
  int fraction = 0;
  int exponent = 0;
  bool zero() const { return kind == Kind::finite && significand == 0; }
};

struct MmaFormat {
  int exponent_bits, fraction_bits, bias;
  enum class Specials : uint8_t { ieee, nan_only, none } specials;  // of the top exponent
};

constexpr MmaFormat mma_format(MmaElement type) {
  using S = MmaFormat::Specials;
  switch (type) {
    case MmaElement::bf16:
      return {8, 7, 127, S::ieee};
    case MmaElement::f16:
      return {5, 10, 15, S::ieee};
    case MmaElement::tf32:
      return {8, 10, 127, S::ieee};
    case MmaElement::e4m3:
      return {4, 3, 7, S::nan_only};
    case MmaElement::e5m2:
      return {5, 2, 15, S::ieee};
    case MmaElement::e2m3:
      return {2, 3, 1, S::none};
    case MmaElement::e3m2:
      return {3, 2, 3, S::none};
    default:
      return {2, 1, 1, S::none};
  }
}
constexpr MmaFormat kMmaFloat32{8, 23, 127, MmaFormat::Specials::ieee};

constexpr MmaNumber mma_number(const MmaFormat& format, uint32_t code) {
  MmaNumber x;
  const uint32_t top = (1u << format.exponent_bits) - 1;
  const uint32_t fraction = code & ((1u << format.fraction_bits) - 1);
  const uint32_t biased = (code >> format.fraction_bits) & top;
  x.negative = ((code >> (format.fraction_bits + format.exponent_bits)) & 1) != 0;
  x.fraction = format.fraction_bits;
  if (biased == top && format.specials == MmaFormat::Specials::ieee) {
    x.kind = fraction != 0 ? MmaNumber::Kind::nan : MmaNumber::Kind::infinite;
    return x;
  }
  if (biased == top && format.specials == MmaFormat::Specials::nan_only &&
      fraction == (1u << format.fraction_bits) - 1) {
    x.kind = MmaNumber::Kind::nan;
    return x;
  }
  x.significand = fraction | (biased != 0 ? 1u << format.fraction_bits : 0);
  x.exponent = static_cast<int>(biased != 0 ? biased : 1) - format.bias;
  return x;
}

// The bits of a code that hold the element, moved to the bottom.
constexpr uint32_t mma_code(MmaElement type, uint32_t raw) {
  switch (type) {
    case MmaElement::tf32:
      return raw >> 13;
    case MmaElement::e2m1:
      return raw & 15;
    case MmaElement::e2m1_container:
      return (raw >> 2) & 15;
    case MmaElement::e2m3:
    case MmaElement::e3m2:
      return raw & 63;
    default:
      return raw;
  }
}

inline uint32_t load_code(MmaElement type, const void* codes, int64_t index) {
  switch (code_bytes(type)) {
    case 4:
      return static_cast<const uint32_t*>(codes)[index];
    case 2:
      return static_cast<const uint16_t*>(codes)[index];
    default:
      return static_cast<const uint8_t*>(codes)[index];
  }
}

inline MmaNumber load_number(const MmaOperand& operand, int64_t row, int k) {
  const uint32_t raw = load_code(operand.type, operand.codes, row * operand.row_stride + k);
  MmaNumber x = mma_number(mma_format(operand.type), mma_code(operand.type, raw));
  x.negative ^= operand.negate;
  return x;
}

// ue8m0 or ue4m3, whose sign bit is not read.
inline MmaNumber load_scale(MmaScales scales, uint8_t code) {
  if (scales == MmaScales::nvf4) return mma_number(mma_format(MmaElement::e4m3), code & 0x7f);
  MmaNumber x;
  x.kind = code == 255 ? MmaNumber::Kind::nan : MmaNumber::Kind::finite;
  x.significand = 1;
  x.exponent = code - 127;
  return x;
}

}  // namespace halftone::sim
