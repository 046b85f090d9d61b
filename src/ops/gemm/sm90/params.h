// What a product on Hopper is told.
#pragma once
#include "hw/copy/tensor_map.h"
#include "ops/gemm/sm90/fused_gemms.h"

namespace halftone::gemm {

// How the scales of groups enter, if there are any: `pairs`, E2M1 times E4M3, and `powers` of two
// multiply the codes, which is exact in bf16; others multiply `sums` of 64 elements or more, or
// `short_sums` of 32. `fp8`: x is in E4M3 as W is, and every 128 elements are a sum of their own,
// with scales or without, as the tensor cores add FP8 products up with few bits.
enum class Sm90Scales : uint8_t { none, pairs, powers, sums, fp8, short_sums };

// What multiplies a chain of `sums` or `fp8`: scales of rows of W; scales of rows of x, with that
// of W in them if all rows of a tile have the same; or a product of both.
enum class Sm90Factors : uint8_t { rows, columns, both };

struct Sm90Params {
  GpuGemm gemm;
  hw::TensorMap w, x, out;
  // Further matrices by the same x in the same map, whose tiles follow in the list: whole ones, of
  // 64 columns. The product's n counts the rows of all.
  Sm90FusedGemm fused_gemms[kSm90MaxFused];
  // The map of W has all matrices, the halves of a gate and those of all experts, in its third
  // dimension: how many steps of 2^w_shift bytes from the first. A copy has w_rows rows of W; one
  // of x has x_rows rows.
  const uint8_t* w_first = nullptr;
  uint32_t w_shift = 0, w_rows = 0, x_rows = 0;
  uint32_t max_chunks = 0;  // at most, of x's rows by expert; 0: there are no experts
  uint32_t split = 1;       // blocks of a cluster that share K
  uint32_t tail_tiles = 0;  // the last tiles, whose rows of x come in two halves
  uint32_t multicast = 1;   // or that share rows of x (sm90_fp8.cuh)
  Sm90Factors factors = Sm90Factors::rows;
  bool promote_every_128 = false;  // scales of sums change every 128 elements at most, not every 64
  bool tma_store = false;          // bf16 or f16 leave by tensor copies
};

}  // namespace halftone::gemm
