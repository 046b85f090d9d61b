// Parameters of the tiled GEMMs on sm_90a (mixed and FP8).
#pragma once
#include "hw/copy/tensor_map.h"
#include "ops/gemm/scale_mode.h"
#include "ops/gemm/sm90/fused_gemms.h"

namespace halftone::gemm {

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
  ScaledSide factors = ScaledSide::weight;
  bool promote_every_128 = false;  // scales change every 128 elements at most, not every 64
  bool tma_store = false;          // BF16 or FP16 outputs leave by TMA stores
};

}  // namespace halftone::gemm
