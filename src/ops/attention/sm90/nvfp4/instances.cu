// GPU entries of attention on sm_90a with P in NVFP4.
#include <utility>

#include "hw/entry.h"
#include "ops/attention/sm90/dequant/tiles.h"

namespace halftone::attention_sm90 {

namespace {

template <class Source, int... kIndex>
const void* nvfp4_entry(int tile, std::integer_sequence<int, kIndex...>) {
  return hw::gpu_entry_at<Forward<hw::Type::bf16, kDequantisedGeneralTiles[kIndex], Source>...>(
      tile);
}

}  // namespace

const void* gpu_nvfp4_entry(int tile) {
  return nvfp4_entry<Nvfp4P>(tile, std::make_integer_sequence<int, kDequantisedGeneralTileCount>());
}
const void* gpu_nvfp4_general_entry(int tile) {
  return nvfp4_entry<Nvfp4PGeneral>(
      tile, std::make_integer_sequence<int, kDequantisedGeneralTileCount>());
}

}  // namespace halftone::attention_sm90
