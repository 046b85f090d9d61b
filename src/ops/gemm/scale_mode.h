// How the scales along K of a weight enter a GEMM on a GPU. Scales of whole rows and tensors are no
// part of it: they multiply finished sums.
#pragma once
#include <cstdint>

namespace halftone::gemm {

// What the scales of groups multiply.
enum class ScaleMode : uint8_t {
  none,            // there are none
  e4m3_block,      // E4M3 scales of 16 elements: the values, E2M1 times E4M3 being exact in BF16
  ue8m0,           // powers of two: the values, which is exact in BF16; in GEMV sums of 32 elements
  group_sums,      // any: FP32 sums of 64 elements or more
  group32_sums,    // any: FP32 sums of 32 elements
  f16_group_sums,  // f16 or bf16, in GEMV: sums of 32 elements or more
  f32_group_sums,  // f32, in GEMV: likewise
  fp8_promotion,   // any or none, of E4M3 by E4M3: tensor cores add such products with few bits, so
                   // that every 128 elements are a sum of their own, promoted to FP32
};

// Whose scales multiply a promoted sum: those of rows of W; those of rows of x, with that of W in
// them if all rows of a tile have the same; or the product of both.
enum class ScaledSide : uint8_t { weight, x, both };

// How the scales along K come to the warps of a grouped GEMV: lanes load them; in lines of as many
// bytes as the spans of a stage have, by tensor copies with the values; or the rows of a tile as
// they lie, 16 bytes or not, by bulk copies with its first stage. What lanes load waits in the
// memory's queues behind the copies of W that were asked for before.
enum class ScaleCopy : uint8_t { lanes, tensor_lines, bulk_rows };

}  // namespace halftone::gemm
