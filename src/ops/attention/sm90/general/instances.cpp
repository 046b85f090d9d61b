// Instances of the general form of BF16/FP16 attention on sm_90a, its mask forms and the split-KV
// combine: GPU entry and simulator body of each.
#include <utility>

#include "hw/entry.h"
#include "ops/attention/sm90/combine.cuh"
#include "ops/attention/sm90/tiles.h"

namespace halftone::attention_sm90 {

namespace {

#if HALFTONE_ATTENTION_GPU
const void* entry_of(hw::Type type, int tile) { return gpu_general_entry(type, tile); }
const void* masked_entry_of(hw::Type type, int tile) { return gpu_masked_entry(type, tile); }
const void* staged_mask_entry_of(hw::Type type, int tile) {
  return gpu_staged_mask_entry(type, tile);
}
const void* combine_entry_of(hw::Type type) { return gpu_combine_entry(type); }
#else
const void* entry_of(hw::Type, int) { return nullptr; }
const void* masked_entry_of(hw::Type, int) { return nullptr; }
const void* staged_mask_entry_of(hw::Type, int) { return nullptr; }
const void* combine_entry_of(hw::Type) { return nullptr; }
#endif

// Number `tile` of a list of kernels.
template <class... Kernel>
Instance<GeneralParams> pick(int tile, const void* entry) {
  constexpr void (*kBodies[])(const void*) = {hw::sim_body<Kernel>...};
  constexpr Instance<GeneralParams> (*kMake[])(const char*, const void*,
                                               void (*)(const void*)) = {make_instance<Kernel>...};
  return kMake[tile]("attention_sm90", entry, kBodies[tile]);
}
template <hw::Type kType, int... kIndex>
Instance<GeneralParams> general(int tile, std::integer_sequence<int, kIndex...>) {
  return pick<Forward<kType, kGeneralTiles[kIndex], General>...>(tile, entry_of(kType, tile));
}
template <hw::Type kType, int... kIndex>
Instance<GeneralParams> masked(int tile, std::integer_sequence<int, kIndex...>) {
  return pick<Forward<kType, kMaskedTiles[kIndex], Masked>...>(tile, masked_entry_of(kType, tile));
}
template <hw::Type kType, int... kIndex>
Instance<GeneralParams> staged_mask(int tile, std::integer_sequence<int, kIndex...>) {
  return pick<Forward<kType, kStagedMaskTiles[kIndex], StagedMask>...>(
      tile, staged_mask_entry_of(kType, tile));
}
template <hw::Type kType>
Instance<GeneralParams> combine_of_type() {
  return make_instance<Combine<kType>>("attention_sm90_combine", combine_entry_of(kType),
                                       hw::sim_body<Combine<kType>>);
}

}  // namespace

Instance<GeneralParams> general_instance(hw::Type type, int tile) {
  constexpr auto kAll = std::make_integer_sequence<int, kGeneralTileCount>();
  return type == hw::Type::bf16 ? general<hw::Type::bf16>(tile, kAll)
                                : general<hw::Type::f16>(tile, kAll);
}
Instance<GeneralParams> masked_instance(hw::Type type, int tile) {
  constexpr auto kAll = std::make_integer_sequence<int, kMaskedTileCount>();
  return type == hw::Type::bf16 ? masked<hw::Type::bf16>(tile, kAll)
                                : masked<hw::Type::f16>(tile, kAll);
}
Instance<GeneralParams> staged_mask_instance(hw::Type type, int tile) {
  constexpr auto kAll = std::make_integer_sequence<int, kMaskedTileCount>();
  return type == hw::Type::bf16 ? staged_mask<hw::Type::bf16>(tile, kAll)
                                : staged_mask<hw::Type::f16>(tile, kAll);
}
Instance<GeneralParams> combine_instance(hw::Type type) {
  return type == hw::Type::bf16 ? combine_of_type<hw::Type::bf16>()
                                : combine_of_type<hw::Type::f16>();
}

}  // namespace halftone::attention_sm90
