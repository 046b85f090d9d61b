// How each matrix instruction rounds: one row per (architecture, unit, element types, accumulator).
//
// PTX leaves the arithmetic open. Every tensor core since Volta evaluates D = A*B + C by fused dot
// products: the products are exact, all terms and C are aligned to the largest exponent, cut off
// below `fraction_bits` bits, summed exactly, and the sum is rounded once. What differs is how many
// products one sum takes, how many bits stay, and the rounding at the end.
// docs/findings/tensor-core-arithmetic.md says which rows were verified on silicon.
#pragma once
#include <cstdint>
#include <optional>

#include "halftone/device.h"

namespace halftone::sim {

// Elements of A and B. Codes are uint16_t for bf16 and f16, uint32_t for tf32 (an FP32 pattern
// whose low 13 bits the unit does not read), uint8_t for all others. Narrow elements lie in the low
// bits of their byte; e2m1_container is e2m1 in bits [5:2], as kind::f8f6f4 of mma.sync wants it.
enum class MmaElement : uint8_t {
  bf16,
  f16,
  tf32,
  e4m3,
  e5m2,
  e2m3,
  e3m2,
  e2m1,
  e2m1_container,
  s8,
  u8
};
const char* name(MmaElement);
constexpr int code_bytes(MmaElement type) {
  return type == MmaElement::tf32 ? 4 : type <= MmaElement::f16 ? 2 : 1;
}

// C and D: float, uint16_t (FP16 codes), int32_t.
enum class MmaAccumulator : uint8_t { f32, f16, s32 };

enum class MmaUnit : uint8_t { mma_sync, wgmma, tcgen05 };

// Block scales along K, one code per row and block.
enum class MmaScales : uint8_t {
  none,
  mxf8f6f4,       // ue8m0, blocks of 32: the exponents are added to those of the products
  mxf4,           // ue8m0, blocks of 32, e2m1 elements
  nvf4,           // ue4m3, blocks of 16, e2m1 elements
  nvf4_ue8m0_16,  // ue8m0, blocks of 16, e2m1 elements
};
constexpr int scale_block(MmaScales scales) {
  switch (scales) {
    case MmaScales::none:
      return 0;
    case MmaScales::nvf4:
    case MmaScales::nvf4_ue8m0_16:
      return 16;
    default:
      return 32;
  }
}

struct MmaRule {
  enum class Sum : uint8_t {
    fused,          // C is a term of the first fused dot; each dot's result is the next one's C
    grouped,        // products of 16 are summed exactly and scaled, then fused as the terms
    f16_expansion,  // sm_90a and sm_100a, FP8 mma.sync: see mma_rules.cpp
    integer,
  };
  enum class Output : uint8_t {
    f32,        // towards zero
    f32_e8m13,  // towards zero, to 13 fraction bits of FP32
    f16,        // to nearest even
    s32,        // modulo 2^32, or saturated where the instruction asks
  };
  Sum sum;
  Output output;
  uint8_t k;              // products of one fused dot; longer K chains them
  uint8_t fraction_bits;  // kept below the largest exponent
  MmaScales scales = MmaScales::none;
};

// Nothing where the architecture has no such instruction.
std::optional<MmaRule> mma_rule(Arch, MmaUnit, MmaElement a, MmaElement b, MmaAccumulator,
                                MmaScales = MmaScales::none);

}  // namespace halftone::sim
