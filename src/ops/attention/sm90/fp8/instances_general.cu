// GPU entries of the general form of E4M3 attention on sm_90a.
#include <utility>

#include "hw/entry.h"
#include "ops/attention/sm90/fp8/tiles.h"

namespace halftone::attention_sm90 {

namespace {

template <int... kIndex>
const void* entry(int tile, std::integer_sequence<int, kIndex...>) {
  const void* const entries[] = {
      hw::gpu_entry<ForwardFp8<kFp8GeneralTiles[kIndex], Fp8General>>()...};
  return entries[tile];
}

}  // namespace

const void* gpu_fp8_general_entry(int tile) {
  return entry(tile, std::make_integer_sequence<int, kFp8GeneralTileCount>());
}

}  // namespace halftone::attention_sm90
