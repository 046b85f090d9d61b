// Instances of attention over dequantised operands on sm_90a: GPU entry and simulator body of each.
#include <utility>

#include "hw/entry.h"
#include "ops/attention/sm90/dequant/tiles.h"

namespace halftone::attention_sm90 {

namespace {

enum class Entry { dense, native_qk, general, nvfp4, nvfp4_general, dequantise };
const void* entry_of([[maybe_unused]] Entry entry, [[maybe_unused]] int tile) {
#if HALFTONE_ATTENTION_GPU
  switch (entry) {
    case Entry::dense:
      return gpu_dequantised_entry(tile);
    case Entry::native_qk:
      return gpu_native_qk_entry(tile);
    case Entry::general:
      return gpu_dequantised_general_entry(tile);
    case Entry::nvfp4:
      return gpu_nvfp4_entry(tile);
    case Entry::nvfp4_general:
      return gpu_nvfp4_general_entry(tile);
    case Entry::dequantise:
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
      void (*)(const void*)) = {make_instance<Forward<hw::Type::bf16, kTiles[kIndex], Source>>...};
  return kMake[tile]("attention_sm90_dequant", entry_of(entry, tile), kBodies[tile]);
}

}  // namespace

Instance<DequantisedParams> dequantised_instance(int tile) {
  return pick<Dequantised, kDequantisedTiles>(
      Entry::dense, tile, std::make_integer_sequence<int, kDequantisedTileCount>());
}
Instance<DequantisedParams> native_qk_instance(int tile) {
  return pick<NativeFp8Qk, kDequantisedTiles>(
      Entry::native_qk, tile, std::make_integer_sequence<int, kDequantisedTileCount>());
}
Instance<DequantisedGeneralParams> dequantised_general_instance(int tile) {
  return pick<DequantisedGeneral, kDequantisedGeneralTiles>(
      Entry::general, tile, std::make_integer_sequence<int, kDequantisedGeneralTileCount>());
}
Instance<DequantisedParams> nvfp4_instance(int tile) {
  return pick<Nvfp4P, kDequantisedGeneralTiles>(
      Entry::nvfp4, tile, std::make_integer_sequence<int, kDequantisedGeneralTileCount>());
}
Instance<DequantisedGeneralParams> nvfp4_general_instance(int tile) {
  return pick<Nvfp4PGeneral, kDequantisedGeneralTiles>(
      Entry::nvfp4_general, tile, std::make_integer_sequence<int, kDequantisedGeneralTileCount>());
}
KernelImage dequantise_image() {
  return {"attention_sm90_dequantise",    Arch::sm_90a,
          entry_of(Entry::dequantise, 0), hw::sim_body<Dequantise>,
          sizeof(DequantiseParams),       Dequantise::kThreads,
          Dequantise::kMinBlocks};
}

}  // namespace halftone::attention_sm90
