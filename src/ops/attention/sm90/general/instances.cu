// GPU entries of the general form of BF16/FP16 attention on sm_90a, its mask forms and the split-KV
// combine.
#include <utility>

#include "hw/entry.h"
#include "ops/attention/sm90/combine.cuh"
#include "ops/attention/sm90/tiles.h"

namespace halftone::attention_sm90 {

namespace {

// Of bf16, then of f16.
template <class Source, const auto& kOf, int... kIndex>
const void* general_entry(hw::Type type, int tile, std::integer_sequence<int, kIndex...>) {
  return hw::gpu_entry_at<Forward<hw::Type::bf16, kOf[kIndex], Source>...,
                          Forward<hw::Type::f16, kOf[kIndex], Source>...>(
      type == hw::Type::bf16 ? tile : tile + static_cast<int>(sizeof...(kIndex)));
}

}  // namespace

const void* gpu_general_entry(hw::Type type, int tile) {
  return general_entry<General, kGeneralTiles>(
      type, tile, std::make_integer_sequence<int, kGeneralTileCount>());
}
const void* gpu_masked_entry(hw::Type type, int tile) {
  return general_entry<Masked, kMaskedTiles>(type, tile,
                                             std::make_integer_sequence<int, kMaskedTileCount>());
}
const void* gpu_staged_mask_entry(hw::Type type, int tile) {
  return general_entry<StagedMask, kStagedMaskTiles>(
      type, tile, std::make_integer_sequence<int, kMaskedTileCount>());
}
const void* gpu_combine_entry(hw::Type type) {
  return hw::gpu_entry_at<Combine<hw::Type::bf16>, Combine<hw::Type::f16>>(
      type == hw::Type::bf16 ? 0 : 1);
}

}  // namespace halftone::attention_sm90
