// GPU entries of dense BF16/FP16 attention on sm_90a.
#include <utility>

#include "hw/entry.h"
#include "ops/attention/sm90/tiles.h"

namespace halftone::attention_sm90 {

namespace {

// Of bf16, then of f16.
template <int... kIndex>
const void* dense_entry(hw::Type type, int tile, std::integer_sequence<int, kIndex...>) {
  return hw::gpu_entry_at<Forward<hw::Type::bf16, kTiles[kIndex]>...,
                          Forward<hw::Type::f16, kTiles[kIndex]>...>(
      type == hw::Type::bf16 ? tile : tile + kTileCount);
}

}  // namespace

const void* gpu_entry(hw::Type type, int tile) {
  return dense_entry(type, tile, std::make_integer_sequence<int, kTileCount>());
}

}  // namespace halftone::attention_sm90
