// Tile shapes of attention on sm_80 and later, and which one a problem gets.
#pragma once
#include "ops/attention/sm80/kernel.cuh"

namespace halftone::attention_sm80 {

// O and S of a warp fill its registers. Tiles of 64 keys pay for the two barriers each; heads of
// 256, and FP32, have room for fewer beside 64 rows in the 99 KB of shared memory that every GPU
// gives.
inline constexpr Tile kHalfTiles[] = {
    {64, 64, 4, 1, 2},
    {128, 64, 4, 1, 2},
    {256, 32, 4, 1, 1},
};
inline constexpr Tile kWordTiles[] = {
    {64, 64, 4, 1, 2},
    {128, 32, 4, 1, 1},
    {256, 16, 2, 1, 1},
};
inline constexpr int kTileCount = 3;

template <hw::Type kType, int kIndex>
using Kernel = Forward<kType, kType == hw::Type::tf32 ? kWordTiles[kIndex] : kHalfTiles[kIndex]>;

constexpr int choose_tile(int64_t dim) { return dim <= 64 ? 0 : dim <= 128 ? 1 : 2; }

// The __global__ functions, defined in instances_*.cu.
const void* bf16_entry(int tile);
const void* f16_entry(int tile);
const void* tf32_entry(int tile);
const void* combine_entry();

}  // namespace halftone::attention_sm80
