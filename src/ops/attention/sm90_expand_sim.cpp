// The instances of attention over quantised keys: their entries on the GPU, and their bodies for
// the simulator.
#include <utility>

#include "hw/entry.h"
#include "ops/attention/sm90_expand_tiles.h"

namespace halftone::attention_sm90 {

namespace {

const void* entry_of([[maybe_unused]] int tile) {
#if HALFTONE_ATTENTION_GPU
  return gpu_expanding_entry(tile);
#else
  return nullptr;
#endif
}

template <int kIndex>
using Kernel = Forward<hw::Type::bf16, kExpandingTiles[kIndex], Expanding>;

template <int... kIndex>
Instance<ExpandingParams> pick(int tile, std::integer_sequence<int, kIndex...>) {
  constexpr void (*kBodies[])(const void*) = {hw::sim_body<Kernel<kIndex>>...};
  constexpr Instance<ExpandingParams> (*kMake[])(
      const char*, const void*, void (*)(const void*)) = {joined<Kernel<kIndex>>...};
  return kMake[tile]("attention_sm90_expand", entry_of(tile), kBodies[tile]);
}

}  // namespace

Instance<ExpandingParams> expanding_instance(int tile) {
  return pick(tile, std::make_integer_sequence<int, kExpandingTileCount>());
}

}  // namespace halftone::attention_sm90
