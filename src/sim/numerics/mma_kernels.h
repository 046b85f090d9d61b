// The vector loops under mma_exact and mma_fast, one set per ISA level.
//
// Lanes run along the rows of A, since every instruction has a multiple of 16 of them. An operand
// comes as values in FP32 (every element is one exactly) and exponents as the tensor core sees
// them: subnormals have the format's smallest, zeros kMmaZeroExponent.
#pragma once
#include <cstdint>

#include "sim/numerics/mma_rules.h"

namespace halftone::sim {

// So low that sums of two stay below kMmaNoExponent and far above overflow.
inline constexpr int32_t kMmaZeroExponent = -(1 << 24);
inline constexpr int32_t kMmaNoExponent = -(1 << 20);  // below: every term is zero
inline constexpr int kMmaRowMultiple = 16;             // rows of A are padded to this

struct MmaVectors {
  const float* a_values;       // [k, a_stride], rows of A side by side
  const int32_t* a_exponents;  // likewise
  const float* b_values;       // [n, b_stride]
  const int32_t* b_exponents;
  int64_t a_stride, b_stride;
  int rows, n, k;  // rows padded; k of this call
  // Exponents of block scales, [rows] and [n]: null without scales. Then k is one block.
  const int32_t* a_scales;
  const int32_t* b_scales;
  float* sums;  // [n, a_stride], C on entry and D on return; FP16 as its FP32 value
};

struct MmaIntegers {
  const int32_t* a;  // [k, a_stride]
  const int32_t* b;  // [n, b_stride]
  int64_t a_stride, b_stride;
  int rows, n, k;
  int32_t* sums;  // [n, a_stride]: the products alone, no C
};

// Products of 4-bit floats in groups of 16 along K, as MmaRule::Sum::grouped has them.
struct MmaGroups {
  const int32_t* a;  // twice the values: [k, a_stride]
  const int32_t* b;  // [n, k]
  // Scales of the groups, 0 where the scale is: significands times 2^-fraction of each, exponents.
  const int32_t *a_significands, *a_exponents;  // [k / 16, a_stride]
  const int32_t *b_significands, *b_exponents;  // [n, k / 16]
  int fraction;                                 // of a product of two significands
  int64_t a_stride;
  int rows, n, k;
  float* sums;  // as in MmaVectors
};

struct MmaKernels {
  // Chains fused dots of rule.k. NaN and infinities in `sums` stay; operands are finite.
  void (*fused)(const MmaRule&, const MmaVectors&);
  // sums += A * B in the order of k.
  void (*multiply_add)(const MmaVectors&);
  void (*integer)(const MmaIntegers&);
  void (*grouped)(const MmaRule&, const MmaGroups&);
  // `n` codes to values and exponents no smaller than min_exponent. Non-finite values become 0
  // where `finite` is set; returns whether there were any. Table: values of the 256 codes of a
  // byte.
  bool (*decode16)(bool bf16, const uint16_t* codes, int n, int min_exponent, bool finite,
                   float* values, int32_t* exponents);
  bool (*decode32)(const uint32_t* codes, int n, int min_exponent, bool finite, float* values,
                   int32_t* exponents);
  bool (*decode8)(const float* table, const uint8_t* codes, int n, int min_exponent, bool finite,
                  float* values, int32_t* exponents);
};

const MmaKernels& mma_kernels(CpuLevel);

}  // namespace halftone::sim
