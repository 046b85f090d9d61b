// GPU entries of dense BF16/FP16 attention on sm_90a.
#include <utility>

#include "hw/entry.h"
#include "ops/attention/sm90/tiles.h"

namespace halftone::attention_sm90 {

namespace {

template <hw::Type kType, int... kIndex>
const void* entry(int tile, std::integer_sequence<int, kIndex...>) {
  const void* const entries[] = {hw::gpu_entry<Forward<kType, kTiles[kIndex]>>()...};
  return entries[tile];
}

}  // namespace

const void* gpu_entry(hw::Type type, int tile) {
  constexpr auto kAll = std::make_integer_sequence<int, kTileCount>();
  return type == hw::Type::bf16 ? entry<hw::Type::bf16>(tile, kAll)
                                : entry<hw::Type::f16>(tile, kAll);
}

}  // namespace halftone::attention_sm90
