// The instances of attention over quantised operands: their entries on the GPU, and their bodies
// for the simulator.
#include <utility>

#include "hw/entry.h"
#include "ops/attention/sm90/dequant/tiles.h"

namespace halftone::attention_sm90 {

namespace {

enum class Entry { dense, key_codes, general, nvfp4, nvfp4_general, widen };
const void* entry_of([[maybe_unused]] Entry entry, [[maybe_unused]] int tile) {
#if HALFTONE_ATTENTION_GPU
  switch (entry) {
    case Entry::dense:
      return gpu_expanded_entry(tile);
    case Entry::key_codes:
      return gpu_key_codes_entry(tile);
    case Entry::general:
      return gpu_expanded_general_entry(tile);
    case Entry::nvfp4:
      return gpu_nvfp4_entry(tile);
    case Entry::nvfp4_general:
      return gpu_nvfp4_general_entry(tile);
    case Entry::widen:
      return gpu_dequantise_entry();
  }
#endif
  return nullptr;
}

template <class Source, const auto& kTiles, int... kIndex>
Instance<typename Source::Params> pick(Entry entry, int tile,
                                       std::integer_sequence<int, kIndex...>) {
  constexpr void (*kBodies[])(const void*) = {
      hw::sim_body<Forward<hw::Type::bf16, kTiles[kIndex], Source>>...};
  constexpr Instance<typename Source::Params> (*kMake[])(
      const char*, const void*,
      void (*)(const void*)) = {joined<Forward<hw::Type::bf16, kTiles[kIndex], Source>>...};
  return kMake[tile]("attention_sm90_dequant", entry_of(entry, tile), kBodies[tile]);
}

}  // namespace

Instance<ExpandedParams> expanded_instance(int tile) {
  return pick<Expanded, kExpandedTiles>(Entry::dense, tile,
                                        std::make_integer_sequence<int, kExpandedTileCount>());
}
Instance<ExpandedParams> key_codes_instance(int tile) {
  return pick<KeyCodes, kExpandedTiles>(Entry::key_codes, tile,
                                        std::make_integer_sequence<int, kExpandedTileCount>());
}
Instance<ExpandedGeneralParams> expanded_general_instance(int tile) {
  return pick<ExpandedGeneral, kExpandedGeneralTiles>(
      Entry::general, tile, std::make_integer_sequence<int, kExpandedGeneralTileCount>());
}
Instance<ExpandedParams> nvfp4_instance(int tile) {
  return pick<Nvfp4Weights, kExpandedGeneralTiles>(
      Entry::nvfp4, tile, std::make_integer_sequence<int, kExpandedGeneralTileCount>());
}
Instance<ExpandedGeneralParams> nvfp4_general_instance(int tile) {
  return pick<Nvfp4WeightsGeneral, kExpandedGeneralTiles>(
      Entry::nvfp4_general, tile, std::make_integer_sequence<int, kExpandedGeneralTileCount>());
}
KernelImage dequantise_image() {
  return {"attention_sm90_dequant widen",
          Arch::sm_90a,
          entry_of(Entry::widen, 0),
          hw::sim_body<Widen>,
          sizeof(DequantiseParams),
          Widen::kThreads,
          Widen::kMinBlocks};
}

}  // namespace halftone::attention_sm90
