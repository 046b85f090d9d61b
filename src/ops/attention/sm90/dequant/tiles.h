// The instances of attention over quantised operands on Hopper.
#pragma once
#include "ops/attention/sm90/dequant/dequantise.cuh"
#include "ops/attention/sm90/nvfp4/softmax.cuh"
#include "ops/attention/sm90/tiles.h"

namespace halftone::attention_sm90 {

// As those of the general form for many rows. Of P in NVFP4 they are those of the dense form, too:
// a tile of keys is what shares a second level, whatever the form.
inline constexpr Tile kExpandedGeneralTiles[] = {
    {64, 64, 96, 3, 1},
    {128, 128, 128, 2, 1},
    {192, 128, 128, 2, 1},
    {256, 256, 64, 2, 1},
};
inline constexpr int kExpandedGeneralTileCount =
    sizeof(kExpandedGeneralTiles) / sizeof(kExpandedGeneralTiles[0]);

// The first that holds the heads.
constexpr int choose_expanded_general_tile(uint32_t head_dim, uint32_t value_dim) {
  int i = 0;
  while (head_dim > kExpandedGeneralTiles[i].head_dim ||
         value_dim > kExpandedGeneralTiles[i].value_dim) {
    ++i;
  }
  return i;
}

// As those of the dense form, but for the registers of scales: 128 keys are as fast as the 176 of
// clusters where there is none, and 6 % faster where P is in E4M3.
inline constexpr Tile kExpandedTiles[] = {
    {64, 64, 96, 3, 1},  //
    {128, 128, 128, 2, 1}, {192, 128, 128, 2, 1}, {256, 256, 80, 2, 2}, {256, 256, 80, 2, 1},
};
inline constexpr int kExpandedTileCount = sizeof(kExpandedTiles) / sizeof(kExpandedTiles[0]);

// sm90_expand.cu
const void* gpu_expanded_entry(int tile);
const void* gpu_key_codes_entry(int tile);
const void* gpu_expanded_general_entry(int tile);
const void* gpu_dequantise_entry();
// sm90_nvfp4.cu
const void* gpu_nvfp4_entry(int tile);
const void* gpu_nvfp4_general_entry(int tile);

// sm90_expand_sim.cpp
Instance<ExpandedParams> expanded_instance(int tile);
Instance<ExpandedParams> key_codes_instance(int tile);
Instance<ExpandedGeneralParams> expanded_general_instance(int tile);
Instance<ExpandedParams> nvfp4_instance(int tile);  // of kExpandedGeneralTiles
Instance<ExpandedGeneralParams> nvfp4_general_instance(int tile);
KernelImage dequantise_image();

}  // namespace halftone::attention_sm90
