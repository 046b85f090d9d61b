// The entries on the GPU of attention over quantised operands, and of what expands them.
#include <utility>

#include "hw/entry.h"
#include "ops/attention/sm90/dequant/tiles.h"

namespace halftone::attention_sm90 {

namespace {

template <class Source, const auto& kTiles, int... kIndex>
const void* entry(int tile, std::integer_sequence<int, kIndex...>) {
  const void* const entries[] = {
      hw::gpu_entry<Forward<hw::Type::bf16, kTiles[kIndex], Source>>()...};
  return entries[tile];
}

}  // namespace

const void* gpu_expanded_entry(int tile) {
  return entry<Expanded, kExpandedTiles>(tile,
                                         std::make_integer_sequence<int, kExpandedTileCount>());
}
const void* gpu_key_codes_entry(int tile) {
  return entry<KeyCodes, kExpandedTiles>(tile,
                                         std::make_integer_sequence<int, kExpandedTileCount>());
}
const void* gpu_expanded_general_entry(int tile) {
  return entry<ExpandedGeneral, kExpandedGeneralTiles>(
      tile, std::make_integer_sequence<int, kExpandedGeneralTileCount>());
}
const void* gpu_dequantise_entry() { return hw::gpu_entry<Widen>(); }

}  // namespace halftone::attention_sm90
