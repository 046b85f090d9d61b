// Instances of dense BF16/FP16 attention on sm_90a: GPU entry and simulator body of each.
#include <utility>

#include "hw/entry.h"
#include "ops/attention/sm90/tiles.h"

namespace halftone::attention_sm90 {

namespace {

const void* entry_of([[maybe_unused]] hw::Type type, [[maybe_unused]] int tile) {
#if HALFTONE_ATTENTION_GPU
  return gpu_entry(type, tile);
#else
  return nullptr;
#endif
}

template <hw::Type kType, int... kIndex>
Instance<Params> of_type(int tile, std::integer_sequence<int, kIndex...>) {
  constexpr void (*kBodies[])(const void*) = {hw::sim_body<Forward<kType, kTiles[kIndex]>>...};
  constexpr Instance<Params> (*kMake[])(const char*, const void*, void (*)(const void*)) = {
      make_instance<Forward<kType, kTiles[kIndex]>>...};
  return kMake[tile]("attention_sm90", entry_of(kType, tile), kBodies[tile]);
}

}  // namespace

Instance<Params> instance(hw::Type type, int tile) {
  constexpr auto kAll = std::make_integer_sequence<int, kTileCount>();
  return type == hw::Type::bf16 ? of_type<hw::Type::bf16>(tile, kAll)
                                : of_type<hw::Type::f16>(tile, kAll);
}

}  // namespace halftone::attention_sm90
