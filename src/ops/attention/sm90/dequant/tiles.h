// Tile shapes of attention over dequantised operands on sm_90a.
#pragma once
#include "ops/attention/sm90/dequant/dequantise.cuh"
#include "ops/attention/sm90/nvfp4/softmax.cuh"
#include "ops/attention/sm90/tiles.h"

namespace halftone::attention_sm90 {

// As those of the general form for many rows. With P in NVFP4 they are those of the dense form,
// too: a K/V tile shares a second-level scale, whatever the form.
inline constexpr Tile kDequantisedGeneralTiles[] = {
    {64, 64, 96, 3, 1},
    {128, 128, 128, 2, 1},
    {192, 128, 128, 2, 1},
    {256, 256, 64, 2, 1},
};
inline constexpr int kDequantisedGeneralTileCount =
    sizeof(kDequantisedGeneralTiles) / sizeof(kDequantisedGeneralTiles[0]);

// The first tile that holds the head sizes.
constexpr int choose_dequantised_general_tile(uint32_t head_dim, uint32_t value_dim) {
  int i = 0;
  while (head_dim > kDequantisedGeneralTiles[i].head_dim ||
         value_dim > kDequantisedGeneralTiles[i].value_dim) {
    ++i;
  }
  return i;
}

// As those of the dense form, except for the registers of scales: 128 keys are as fast as the 176
// of clusters where there is no scale, and 6 % faster where P is in E4M3.
inline constexpr Tile kDequantisedTiles[] = {
    {64, 64, 96, 3, 1},  //
    {128, 128, 128, 2, 1}, {192, 128, 128, 2, 1}, {256, 256, 80, 2, 2}, {256, 256, 80, 2, 1},
};
inline constexpr int kDequantisedTileCount =
    sizeof(kDequantisedTiles) / sizeof(kDequantisedTiles[0]);

// dequant/instances.cu
const void* gpu_dequantised_entry(int tile);
const void* gpu_native_qk_entry(int tile);
const void* gpu_dequantised_general_entry(int tile);
const void* gpu_dequantise_entry();
// nvfp4/instances.cu
const void* gpu_nvfp4_entry(int tile);
const void* gpu_nvfp4_general_entry(int tile);

// dequant/instances.cpp
Instance<DequantisedParams> dequantised_instance(int tile);
Instance<DequantisedParams> native_qk_instance(int tile);
Instance<DequantisedGeneralParams> dequantised_general_instance(int tile);
Instance<DequantisedParams> nvfp4_instance(int tile);  // of kDequantisedGeneralTiles
Instance<DequantisedGeneralParams> nvfp4_general_instance(int tile);
KernelImage dequantise_image();

}  // namespace halftone::attention_sm90
