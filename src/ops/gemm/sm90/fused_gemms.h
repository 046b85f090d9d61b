// Several matrices by the same rows of x in one launch on Hopper: their tiles follow one another in
// one list.
#pragma once
#include <span>

#include "ops/gemm/sm80/params.h"

namespace halftone::gemm {

inline constexpr uint32_t kSm90MaxFused = 2;  // beside the first, at most

// What a matrix has of its own; all else is as of the first.
struct Sm90FusedGemm {
  GpuSource source;
  char* out = nullptr;
  int64_t out_row = 0;
  const char* bias = nullptr;
  uint32_t first_tile = ~0u, n = 0;  // the tile: there is no such matrix
};

// Where a tile of the list lies: which W, its tile there, and the outputs of that W.
struct Sm90FusedTile {
  uint32_t matrix = 0, tile, n;

  HT_DEVICE Sm90FusedTile(const GpuGemm& p, const Sm90FusedGemm (&fused_gemms)[kSm90MaxFused],
                          uint32_t of_launch)
      : tile(of_launch), n(p.n) {
    HT_UNROLL
    for (uint32_t i = 0; i < kSm90MaxFused; ++i) {
      if (of_launch < fused_gemms[i].first_tile) continue;
      matrix = i + 1, tile = of_launch - fused_gemms[i].first_tile, n = fused_gemms[i].n;
    }
  }
  HT_DEVICE GpuSource source(const GpuGemm& p,
                             const Sm90FusedGemm (&fused_gemms)[kSm90MaxFused]) const {
    GpuSource s = p.source[0];
    HT_UNROLL
    for (uint32_t i = 0; i < kSm90MaxFused; ++i) {
      if (matrix == i + 1) s = fused_gemms[i].source;
    }
    return s;
  }
  // Where results and biases lie, told to whatever has these fields of a GpuEpilogue and `n_end`.
  template <class Outputs>
  HT_DEVICE void set_outputs(const Sm90FusedGemm (&fused_gemms)[kSm90MaxFused],
                             Outputs& outputs) const {
    outputs.n_end = n;
    HT_UNROLL
    for (uint32_t i = 0; i < kSm90MaxFused; ++i) {
      if (matrix != i + 1) continue;
      outputs.out = fused_gemms[i].out, outputs.out_row = fused_gemms[i].out_row,
      outputs.bias = fused_gemms[i].bias;
    }
  }
  HT_DEVICE GpuEpilogue epilogue(const GpuGemm& p,
                                 const Sm90FusedGemm (&fused_gemms)[kSm90MaxFused]) const {
    GpuEpilogue f = p.epilogue;
    HT_UNROLL
    for (uint32_t i = 0; i < kSm90MaxFused; ++i) {
      if (matrix != i + 1) continue;
      f.out = fused_gemms[i].out, f.out_row = fused_gemms[i].out_row,
      f.bias[0] = fused_gemms[i].bias;
    }
    return f;
  }
};

// Whether a launch of the first product can make the next one's results as well: the same x by a
// matrix that is stored alike, with the same end but for where results and biases lie.
bool can_fuse_sm90(const GpuGemm& first, const GpuGemm& next);
// The end of all products of a launch.
SpecialisedEpilogue specialised_epilogue(std::span<const GpuGemm>);
// Tells the first product and `more` of all of them, tiles of so many rows of W. Returns the tiles.
uint32_t fuse_sm90(std::span<const GpuGemm>, uint32_t rows_of_tile, GpuGemm* first,
                   Sm90FusedGemm (&fused_gemms)[kSm90MaxFused]);

}  // namespace halftone::gemm
