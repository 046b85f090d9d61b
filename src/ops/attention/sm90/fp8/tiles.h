// Tile shapes of E4M3 attention on sm_90a, by kind of scale.
#pragma once
#include "ops/attention/sm90/fp8/kernel.cuh"
#include "ops/attention/sm90/tiles.h"

namespace halftone::attention_sm90 {

inline constexpr int kFp8TileCount = 4;
inline constexpr Fp8Tile kFp8Tiles[kFp8TileCount] = {
    {64, 64, 192, 3, 64, false, PingPong::pv_and_qk},
    {128, 128, 256, 2, 128, false, PingPong::pv_and_qk},
    {192, 128, 128, 2, 64, true, PingPong::qk},  // DeepSeek's 192 and 128
    {256, 256, 128, 2, 128, false, PingPong::pv_and_qk},
};
// Per-block scales, of 128 keys: tiles of whole blocks.
inline constexpr Fp8Tile kFp8BlockTiles[kFp8TileCount] = {
    {64, 64, 128, 3, 64, false, PingPong::qk},
    {128, 128, 256, 2, 128, false, PingPong::pv_and_qk},
    {192, 128, 128, 2, 64, true, PingPong::qk},
    {256, 256, 128, 2, 128, false, PingPong::pv},
};
// Per-row scales.
inline constexpr Fp8Tile kFp8RowTiles[kFp8TileCount] = {
    {64, 64, 192, 3, 64, false, PingPong::qk},
    {128, 128, 224, 2, 128, false, PingPong::pv_and_qk},
    {192, 128, 128, 2, 64, true, PingPong::qk},
    {256, 256, 128, 2, 128, false, PingPong::pv_and_qk},
};
// V in E4M3 beside Q and K in BF16.
inline constexpr int kFp8ValuesTileCount = 3;
inline constexpr Fp8Tile kFp8ValuesTiles[kFp8ValuesTileCount] = {
    {64, 64, 192, 3, 64, false, PingPong::pv_and_qk, true},
    {128, 128, 192, 2, 128, false, PingPong::pv_and_qk, true},
    {192, 128, 128, 2, 64, true, PingPong::qk, true},
};
inline constexpr Fp8Tile kFp8ValuesMost = kFp8ValuesTiles[kFp8ValuesTileCount - 1];
constexpr const Fp8Tile& fp8_tile(KeyScaling of_keys, int i) {
  return of_keys == KeyScaling::heads    ? kFp8Tiles[i]
         : of_keys == KeyScaling::blocks ? kFp8BlockTiles[i]
                                         : kFp8RowTiles[i];
}

// Tiles of the general form, whose gathering producers and mask tensors want registers.
inline constexpr Fp8Tile kFp8GeneralTiles[] = {
    {64, 64, 96, 3, 64, false, PingPong::qk},
    {192, 128, 128, 2, 128, false, PingPong::qk},
    {256, 256, 64, 2, 64, false, PingPong::qk},
};
inline constexpr int kFp8GeneralTileCount = sizeof(kFp8GeneralTiles) / sizeof(kFp8GeneralTiles[0]);

// The first tile that holds the head sizes.
template <size_t kCount>
constexpr int choose_fp8_tile(const Fp8Tile (&tiles)[kCount], int64_t head_dim, int64_t value_dim) {
  int i = 0;
  while (head_dim > tiles[i].head_dim || value_dim > tiles[i].value_dim) ++i;
  return i;
}

// use.template operator()<kScaling>() of the given one.
template <class Use>
auto for_scaling(KeyScaling scaling, const Use& use) {
  return scaling == KeyScaling::heads    ? use.template operator()<KeyScaling::heads>()
         : scaling == KeyScaling::blocks ? use.template operator()<KeyScaling::blocks>()
                                         : use.template operator()<KeyScaling::rows>();
}

// instances.cu, instances_general.cu, instances_values.cu and instances.cpp
const void* gpu_fp8_entry(int tile, KeyScaling);
const void* gpu_fp8_values_entry(int tile, KeyScaling of_values);
const void* gpu_fp8_general_entry(int tile);
Instance<Fp8Params> fp8_instance(int tile, KeyScaling);
Instance<Fp8Params> fp8_values_instance(int tile, KeyScaling of_values);
Instance<Fp8GeneralParams> fp8_general_instance(int tile);

}  // namespace halftone::attention_sm90
