// What dispatch decides for the GEMMs of many rows on Hopper beside the kernel: the instance and
// the tile.
#pragma once
#include "ops/gemm/sm90/params.h"

namespace halftone::gemm {

// Whether dequantising takes so many instructions that tiles of 64 columns have two K groups
// (stages.h), whose sums differ in their last bits from those of other tiles.
constexpr bool is_costly_to_dequantise(GpuCode code) {
  return code == GpuCode::e4m3 || code == GpuCode::e5m2 || code == GpuCode::int4;
}

struct Sm90Choice {
  GpuCode code = GpuCode::bf16;
  ScaleMode scales = ScaleMode::none;
  uint32_t columns = 0, split = 1, tail_tiles = 0;
  bool transposed = false;  // W is given as [K, N]
  uint32_t few = 0;  // above 0: the rows of W of a tile of the FP8 small-M kernel (fp8/small_m.cuh)
};

}  // namespace halftone::gemm
