// Several matrices by the same rows of x in one launch on Hopper: their tiles follow one another in
// one list.
#pragma once
#include <span>

#include "ops/gemm/sm80/params.h"

namespace halftone::product {

inline constexpr uint32_t kSm90More = 2;  // beside the first, at most

// What a matrix has of its own; all else is as of the first.
struct Sm90More {
  GpuSource source;
  char* out = nullptr;
  int64_t out_row = 0;
  const char* bias = nullptr;
  uint32_t first_tile = ~0u, n = 0;  // the tile: there is no such matrix
};

// Where a tile of the list lies: which W, its tile there, and the outputs of that W.
struct Sm90Place {
  uint32_t matrix = 0, tile, n;

  HT_DEVICE Sm90Place(const GpuProduct& p, const Sm90More (&more)[kSm90More], uint32_t of_list)
      : tile(of_list), n(p.n) {
    HT_UNROLL
    for (uint32_t i = 0; i < kSm90More; ++i) {
      if (of_list < more[i].first_tile) continue;
      matrix = i + 1, tile = of_list - more[i].first_tile, n = more[i].n;
    }
  }
  HT_DEVICE GpuSource source(const GpuProduct& p, const Sm90More (&more)[kSm90More]) const {
    GpuSource s = p.source[0];
    HT_UNROLL
    for (uint32_t i = 0; i < kSm90More; ++i) {
      if (matrix == i + 1) s = more[i].source;
    }
    return s;
  }
  // Where results and biases lie, told to whatever has these fields of a GpuFinish and `n_end`.
  template <class End>
  HT_DEVICE void set_end(const Sm90More (&more)[kSm90More], End& end) const {
    end.n_end = n;
    HT_UNROLL
    for (uint32_t i = 0; i < kSm90More; ++i) {
      if (matrix != i + 1) continue;
      end.out = more[i].out, end.out_row = more[i].out_row, end.bias = more[i].bias;
    }
  }
  HT_DEVICE GpuFinish finish(const GpuProduct& p, const Sm90More (&more)[kSm90More]) const {
    GpuFinish f = p.finish;
    HT_UNROLL
    for (uint32_t i = 0; i < kSm90More; ++i) {
      if (matrix != i + 1) continue;
      f.out = more[i].out, f.out_row = more[i].out_row, f.bias[0] = more[i].bias;
    }
    return f;
  }
};

// Whether a launch of the first product can make the next one's results as well: the same x by a
// matrix that is stored alike, with the same end but for where results and biases lie.
bool joins_sm90(const GpuProduct& first, const GpuProduct& next);
// The end of all products of a launch.
CommonEnd common_end(std::span<const GpuProduct>);
// Tells the first product and `more` of all of them, tiles of so many rows of W. Returns the tiles.
uint32_t join_sm90(std::span<const GpuProduct>, uint32_t rows_of_tile, GpuProduct* first,
                   Sm90More (&more)[kSm90More]);

}  // namespace halftone::product
