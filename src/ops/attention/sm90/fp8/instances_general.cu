// GPU entries of the general form of E4M3 attention on sm_90a.
#include <utility>

#include "hw/entry.h"
#include "ops/attention/sm90/fp8/tiles.h"

namespace halftone::attention_sm90 {

namespace {

template <int... kIndex>
const void* fp8_general_entry(int tile, std::integer_sequence<int, kIndex...>) {
  return hw::gpu_entry_at<ForwardFp8<kFp8GeneralTiles[kIndex], Fp8General>...>(tile);
}

}  // namespace

const void* gpu_fp8_general_entry(int tile) {
  return fp8_general_entry(tile, std::make_integer_sequence<int, kFp8GeneralTileCount>());
}

}  // namespace halftone::attention_sm90
