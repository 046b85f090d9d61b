// The instances of attention over quantised keys on Hopper.
#pragma once
#include "ops/attention/sm90_expand.cuh"
#include "ops/attention/sm90_tiles.h"

namespace halftone::attention_sm90 {

// As those of the general form for many rows.
inline constexpr Tile kExpandingTiles[] = {
    {64, 64, 96, 3, 1},
    {128, 128, 128, 2, 1},
    {192, 128, 128, 2, 1},
    {256, 256, 64, 2, 1},
};
inline constexpr int kExpandingTileCount = sizeof(kExpandingTiles) / sizeof(kExpandingTiles[0]);

// The first that holds the heads.
constexpr int choose_expanding_tile(uint32_t head_dim, uint32_t value_dim) {
  int i = 0;
  while (head_dim > kExpandingTiles[i].head_dim || value_dim > kExpandingTiles[i].value_dim) ++i;
  return i;
}

const void* gpu_expanding_entry(int tile);               // sm90_expand.cu
Instance<ExpandingParams> expanding_instance(int tile);  // sm90_expand_sim.cpp

}  // namespace halftone::attention_sm90
