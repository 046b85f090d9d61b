// Horizontally fused GEMMs on sm_90a: several weights by the same x in one launch (Q, K and V
// projections, or gate and up), their tiles consecutive in one grid.
#pragma once
#include <span>

#include "ops/gemm/sm80/params.h"

namespace halftone::gemm {

inline constexpr uint32_t kSm90MaxFused = 2;  // beside the first, at most

// What a further GEMM has of its own; everything else is as of the first.
struct Sm90FusedGemm {
  GpuSource source;
  char* out = nullptr;
  int64_t out_row = 0;
  const char* bias = nullptr;
  uint32_t first_tile = ~0u, n = 0;  // the default first_tile: there is no such GEMM
};

// Which of the fused GEMMs a tile of the launch belongs to, its tile there, and that GEMM's
// outputs.
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
  // Points the outputs and biases at this GEMM's: `outputs` has these fields of a GpuEpilogue and
  // `n_end`.
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

// Whether a launch of the first GEMM can also compute the next: the same x, a weight of the same
// layout, and the same epilogue except for where outputs and biases are.
bool can_fuse_sm90(const GpuGemm& first, const GpuGemm& next);
// The epilogue that all GEMMs of a launch can use.
SpecialisedEpilogue specialised_epilogue(std::span<const GpuGemm>);
// Fills the first GEMM and `fused_gemms`, with tiles of so many rows of W. Returns the number of
// tiles.
uint32_t fuse_sm90(std::span<const GpuGemm>, uint32_t rows_of_tile, GpuGemm* first,
                   Sm90FusedGemm (&fused_gemms)[kSm90MaxFused]);

}  // namespace halftone::gemm
