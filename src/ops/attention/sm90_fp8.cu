// The entries on the GPU of attention in E4M3.
#include <utility>

#include "hw/entry.h"
#include "ops/attention/sm90_fp8_tiles.h"

namespace halftone::attention_sm90 {

namespace {

template <class Source, int... kIndex>
const void* entry(int tile, std::integer_sequence<int, kIndex...>) {
  const void* const entries[] = {hw::gpu_entry<ForwardFp8<kFp8Tiles[kIndex], Source>>()...};
  return entries[tile];
}

}  // namespace

const void* gpu_fp8_entry(int tile, bool blocks) {
  constexpr auto kAll = std::make_integer_sequence<int, kFp8TileCount>();
  return blocks ? entry<Fp8Blocks>(tile, kAll) : entry<Fp8Dense>(tile, kAll);
}

}  // namespace halftone::attention_sm90
