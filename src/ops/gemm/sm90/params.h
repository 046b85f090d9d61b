// Parameters of the tiled GEMMs on sm_90a (mixed and FP8).
#pragma once
#include "hw/copy/tensor_map.h"
#include "ops/gemm/sm90/fused_gemms.h"

namespace halftone::gemm {

// Scale mode: how group scales enter, if there are any. `pairs` (E2M1 with E4M3 scales) and
// `powers` (UE8M0) multiply the weights, which is exact in BF16; others multiply the accumulator
// (`sums`) of 64 elements or more, or of 32 (`short_sums`). `fp8`: x is E4M3 like W, and every 128
// elements are promoted, with scales or without, as the tensor cores accumulate FP8 products with
// few bits.
enum class Sm90Scales : uint8_t { none, pairs, powers, sums, fp8, short_sums };

// Which scales multiply the accumulator of an interval in the modes `sums` and `fp8`: per row of W;
// per row of x (columns of the tile), with W's scale folded in where all rows of a tile share it;
// or both.
enum class Sm90Factors : uint8_t { rows, columns, both };

struct Sm90Params {
  GpuGemm gemm;
  hw::TensorMap w, x, out;
  // Horizontally fused GEMMs by the same x in the same tensor map, whose tiles follow: without
  // split tail tiles, of 64 columns. The n of `gemm` counts the rows of all.
  Sm90FusedGemm fused_gemms[kSm90MaxFused];
  // The tensor map of W has all matrices, the halves of a gate and those of all experts, in its
  // third dimension: a matrix is so many steps of 2^w_shift bytes behind the first. A box has
  // w_rows rows of W; one of x has x_rows rows.
  const uint8_t* w_first = nullptr;
  uint32_t w_shift = 0, w_rows = 0, x_rows = 0;
  uint32_t max_chunks = 0;  // upper bound of the M-chunks of a grouped GEMM; 0: a dense GEMM
  uint32_t split = 1;       // CTAs of a cluster that split K
  uint32_t tail_tiles = 0;  // tail-wave splitting: so many last tiles come in two halves
  uint32_t multicast = 1;   // or CTAs of a cluster that share rows of x by multicast (fp8/gemm.cuh)
  Sm90Factors factors = Sm90Factors::rows;
  bool promote_every_128 = false;  // scales change every 128 elements at most, not every 64
  bool tma_store = false;          // BF16 or FP16 outputs leave by TMA stores
};

}  // namespace halftone::gemm
