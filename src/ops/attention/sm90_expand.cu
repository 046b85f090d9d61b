// The entries on the GPU of attention over quantised keys.
#include <utility>

#include "hw/entry.h"
#include "ops/attention/sm90_expand_tiles.h"

namespace halftone::attention_sm90 {

namespace {

template <int... kIndex>
const void* entry(int tile, std::integer_sequence<int, kIndex...>) {
  const void* const entries[] = {
      hw::gpu_entry<Forward<hw::Type::bf16, kExpandingTiles[kIndex], Expanding>>()...};
  return entries[tile];
}

}  // namespace

const void* gpu_expanding_entry(int tile) {
  return entry(tile, std::make_integer_sequence<int, kExpandingTileCount>());
}

}  // namespace halftone::attention_sm90
