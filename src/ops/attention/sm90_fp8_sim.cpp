// The instances of attention in E4M3: their entries on the GPU, and their bodies for the simulator.
#include <utility>

#include "hw/entry.h"
#include "ops/attention/sm90_fp8_tiles.h"

namespace halftone::attention_sm90 {

namespace {

const void* entry_of([[maybe_unused]] int tile, [[maybe_unused]] bool blocks) {
#if HALFTONE_ATTENTION_GPU
  return gpu_fp8_entry(tile, blocks);
#else
  return nullptr;
#endif
}

template <class... Kernel>
Instance<Fp8Params> pick(int tile, const void* entry) {
  constexpr void (*kBodies[])(const void*) = {hw::sim_body<Kernel>...};
  constexpr Instance<Fp8Params> (*kMake[])(const char*, const void*,
                                           void (*)(const void*)) = {joined<Kernel>...};
  return kMake[tile]("attention_sm90_fp8", entry, kBodies[tile]);
}
template <bool kBlocks, int... kIndex>
Instance<Fp8Params> scaled(int tile, std::integer_sequence<int, kIndex...>) {
  return pick<ForwardFp8<kFp8Tiles[kIndex], kBlocks>...>(tile, entry_of(tile, kBlocks));
}

}  // namespace

Instance<Fp8Params> fp8_instance(int tile, bool blocks) {
  constexpr auto kAll = std::make_integer_sequence<int, kFp8TileCount>();
  return blocks ? scaled<true>(tile, kAll) : scaled<false>(tile, kAll);
}

}  // namespace halftone::attention_sm90
