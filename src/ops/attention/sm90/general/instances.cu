// GPU entries of the general form of BF16/FP16 attention on sm_90a, its mask forms and the split-KV
// combine.
#include <utility>

#include "hw/entry.h"
#include "ops/attention/sm90/combine.cuh"
#include "ops/attention/sm90/tiles.h"

namespace halftone::attention_sm90 {

namespace {

template <hw::Type kType, int... kIndex>
const void* general(int tile, std::integer_sequence<int, kIndex...>) {
  const void* const entries[] = {
      hw::gpu_entry<Forward<kType, kGeneralTiles[kIndex], General>>()...};
  return entries[tile];
}
template <hw::Type kType, int... kIndex>
const void* masked(int tile, std::integer_sequence<int, kIndex...>) {
  const void* const entries[] = {hw::gpu_entry<Forward<kType, kMaskedTiles[kIndex], Masked>>()...};
  return entries[tile];
}
template <hw::Type kType, int... kIndex>
const void* staged_mask(int tile, std::integer_sequence<int, kIndex...>) {
  const void* const entries[] = {
      hw::gpu_entry<Forward<kType, kStagedMaskTiles[kIndex], StagedMask>>()...};
  return entries[tile];
}

}  // namespace

const void* gpu_general_entry(hw::Type type, int tile) {
  constexpr auto kAll = std::make_integer_sequence<int, kGeneralTileCount>();
  return type == hw::Type::bf16 ? general<hw::Type::bf16>(tile, kAll)
                                : general<hw::Type::f16>(tile, kAll);
}
const void* gpu_masked_entry(hw::Type type, int tile) {
  constexpr auto kAll = std::make_integer_sequence<int, kMaskedTileCount>();
  return type == hw::Type::bf16 ? masked<hw::Type::bf16>(tile, kAll)
                                : masked<hw::Type::f16>(tile, kAll);
}
const void* gpu_staged_mask_entry(hw::Type type, int tile) {
  constexpr auto kAll = std::make_integer_sequence<int, kMaskedTileCount>();
  return type == hw::Type::bf16 ? staged_mask<hw::Type::bf16>(tile, kAll)
                                : staged_mask<hw::Type::f16>(tile, kAll);
}
const void* gpu_combine_entry(hw::Type type) {
  return type == hw::Type::bf16 ? hw::gpu_entry<Combine<hw::Type::bf16>>()
                                : hw::gpu_entry<Combine<hw::Type::f16>>();
}

}  // namespace halftone::attention_sm90
