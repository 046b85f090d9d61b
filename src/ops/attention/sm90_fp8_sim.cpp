// The instances of attention in E4M3: their entries on the GPU, and their bodies for the simulator.
#include <utility>

#include "hw/entry.h"
#include "ops/attention/sm90_fp8_tiles.h"

namespace halftone::attention_sm90 {

namespace {

const void* entry_of([[maybe_unused]] int tile) {
#if HALFTONE_ATTENTION_GPU
  return gpu_fp8_entry(tile);
#else
  return nullptr;
#endif
}

template <int... kIndex>
Instance<Fp8Params> pick(int tile, std::integer_sequence<int, kIndex...>) {
  constexpr void (*kBodies[])(const void*) = {hw::sim_body<ForwardFp8<kFp8Tiles[kIndex]>>...};
  constexpr Instance<Fp8Params> (*kMake[])(
      const char*, const void*, void (*)(const void*)) = {joined<ForwardFp8<kFp8Tiles[kIndex]>>...};
  return kMake[tile]("attention_sm90_fp8", entry_of(tile), kBodies[tile]);
}

}  // namespace

Instance<Fp8Params> fp8_instance(int tile) {
  return pick(tile, std::make_integer_sequence<int, kFp8TileCount>());
}

}  // namespace halftone::attention_sm90
