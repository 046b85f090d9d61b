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

  HT_DEVICE Sm90FusedTile(const GpuGemm& p, const Sm90FusedGemm (&more)[kSm90MaxFused],
                          uint32_t of_list)
      : tile(of_list), n(p.n) {
    HT_UNROLL
    for (uint32_t i = 0; i < kSm90MaxFused; ++i) {
      if (of_list < more[i].first_tile) continue;
      matrix = i + 1, tile = of_list - more[i].first_tile, n = more[i].n;
    }
  }
  HT_DEVICE GpuSource source(const GpuGemm& p, const Sm90FusedGemm (&more)[kSm90MaxFused]) const {
    GpuSource s = p.source[0];
    HT_UNROLL
    for (uint32_t i = 0; i < kSm90MaxFused; ++i) {
      if (matrix == i + 1) s = more[i].source;
    }
    return s;
  }
  // Where results and biases lie, told to whatever has these fields of a GpuEpilogue and `n_end`.
  template <class End>
  HT_DEVICE void set_end(const Sm90FusedGemm (&more)[kSm90MaxFused], End& end) const {
    end.n_end = n;
    HT_UNROLL
    for (uint32_t i = 0; i < kSm90MaxFused; ++i) {
      if (matrix != i + 1) continue;
      end.out = more[i].out, end.out_row = more[i].out_row, end.bias = more[i].bias;
    }
  }
  HT_DEVICE GpuEpilogue finish(const GpuGemm& p, const Sm90FusedGemm (&more)[kSm90MaxFused]) const {
    GpuEpilogue f = p.epilogue;
    HT_UNROLL
    for (uint32_t i = 0; i < kSm90MaxFused; ++i) {
      if (matrix != i + 1) continue;
      f.out = more[i].out, f.out_row = more[i].out_row, f.bias[0] = more[i].bias;
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
                   Sm90FusedGemm (&more)[kSm90MaxFused]);

}  // namespace halftone::gemm
