// The instances of the kernel for Hopper, and which one a problem gets.
#pragma once
#include "ops/attention/sm90.cuh"

namespace halftone::attention_sm90 {

// O, S and P of 64 rows fill the registers of a warpgroup; K and V, two stages each, and Q the
// shared memory. Small heads leave room for a third warpgroup, which hides more of the
// exponentials: there are as many clocks of them as of products. Two blocks that share the keys by
// multicast halve what the L2 must deliver, worth it where both see the same keys. Wide tiles of
// keys waste more where a mask cuts through them, which long rows make up for.
inline constexpr Tile kTiles[] = {
    {64, 64, 128, 3, 1},    //
    {128, 128, 176, 2, 2},  //
    {128, 128, 176, 2, 1},  //
    {128, 128, 128, 2, 1},  //
    {192, 128, 128, 2, 1},  // DeepSeek's 192 and 128
    {256, 256, 80, 2, 2},   //
    {256, 256, 80, 2, 1},
};
inline constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]);

// The first that holds the heads and suits the mask and the lengths.
constexpr int choose_tile(uint32_t head_dim, uint32_t value_dim, bool masked, uint32_t queries,
                          uint32_t keys) {
  for (int i = 0; i < kTileCount; ++i) {
    const Tile& tile = kTiles[i];
    if (head_dim > tile.head_dim || value_dim > tile.value_dim) continue;
    if (tile.cluster > 1 && (masked || queries <= 64 * tile.warpgroups)) continue;
    if (tile.keys > 128 && masked && keys < 8192) continue;
    return i;
  }
  return -1;
}

// The __global__ function of an instance: defined in sm90.cu.
const void* gpu_entry(hw::Type, int tile);

}  // namespace halftone::attention_sm90
