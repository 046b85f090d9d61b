// GPU entries of attention over dequantised operands on sm_90a, and of the dequantisation kernel.
#include <utility>

#include "hw/entry.h"
#include "ops/attention/sm90/dequant/tiles.h"

namespace halftone::attention_sm90 {

namespace {

template <class Source, const auto& kTiles, int... kIndex>
const void* dequantised_entry(int tile, std::integer_sequence<int, kIndex...>) {
  return hw::gpu_entry_at<Forward<hw::Type::bf16, kTiles[kIndex], Source>...>(tile);
}

}  // namespace

const void* gpu_dequantised_entry(int tile) {
  return dequantised_entry<Dequantised, kDequantisedTiles>(
      tile, std::make_integer_sequence<int, kDequantisedTileCount>());
}
const void* gpu_native_qk_entry(int tile) {
  return dequantised_entry<NativeFp8Qk, kDequantisedTiles>(
      tile, std::make_integer_sequence<int, kDequantisedTileCount>());
}
const void* gpu_dequantised_general_entry(int tile) {
  return dequantised_entry<DequantisedGeneral, kDequantisedGeneralTiles>(
      tile, std::make_integer_sequence<int, kDequantisedGeneralTileCount>());
}
const void* gpu_dequantise_entry() { return hw::gpu_entry<Dequantise>(); }

}  // namespace halftone::attention_sm90
