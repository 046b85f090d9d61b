// Instances of E4M3 attention on sm_90a: GPU entry and simulator body of each.
#include <utility>

#include "hw/entry.h"
#include "ops/attention/sm90/fp8/tiles.h"

namespace halftone::attention_sm90 {

namespace {

#if HALFTONE_ATTENTION_GPU
const void* entry_of(int tile, KeyScaling of_keys) { return gpu_fp8_entry(tile, of_keys); }
const void* general_entry_of(int tile) { return gpu_fp8_general_entry(tile); }
const void* values_entry_of(int tile, KeyScaling of_values) {
  return gpu_fp8_values_entry(tile, of_values);
}
#else
const void* entry_of(int, KeyScaling) { return nullptr; }
const void* general_entry_of(int) { return nullptr; }
const void* values_entry_of(int, KeyScaling) { return nullptr; }
#endif

// Number `tile` of a list of kernels.
template <class Params, class... Kernel>
Instance<Params> pick(int tile, const void* entry) {
  constexpr void (*kBodies[])(const void*) = {hw::sim_body<Kernel>...};
  constexpr Instance<Params> (*kMake[])(const char*, const void*,
                                        void (*)(const void*)) = {make_instance<Kernel>...};
  return kMake[tile]("attention_sm90_fp8", entry, kBodies[tile]);
}
template <KeyScaling kOfKeys>
Instance<Fp8Params> dense(int tile) {
  return [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    return pick<Fp8Params, ForwardFp8<fp8_tile(kOfKeys, kIndex), Fp8Dense<kOfKeys>>...>(
        tile, entry_of(tile, kOfKeys));
  }
  (std::make_integer_sequence<int, kFp8TileCount>());
}
template <KeyScaling kOfValues>
Instance<Fp8Params> values(int tile) {
  return [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    return pick<Fp8Params, ForwardFp8<kFp8ValuesTiles[kIndex], Fp8Values<kOfValues>>...>(
        tile, values_entry_of(tile, kOfValues));
  }
  (std::make_integer_sequence<int, kFp8ValuesTileCount>());
}
template <int... kIndex>
Instance<Fp8GeneralParams> general(int tile, std::integer_sequence<int, kIndex...>) {
  return pick<Fp8GeneralParams, ForwardFp8<kFp8GeneralTiles[kIndex], Fp8General>...>(
      tile, general_entry_of(tile));
}

}  // namespace

Instance<Fp8Params> fp8_instance(int tile, KeyScaling of_keys) {
  return for_scaling(of_keys, [&]<KeyScaling kScaling>() { return dense<kScaling>(tile); });
}
Instance<Fp8Params> fp8_values_instance(int tile, KeyScaling of_values) {
  return for_scaling(of_values, [&]<KeyScaling kScaling>() { return values<kScaling>(tile); });
}
Instance<Fp8GeneralParams> fp8_general_instance(int tile) {
  return general(tile, std::make_integer_sequence<int, kFp8GeneralTileCount>());
}

}  // namespace halftone::attention_sm90
