// Tile shapes of the BF16/FP16 attention kernels of sm_90a, and which one a problem gets. Each
// entry of a table is one instance of the kernel template.
#pragma once
#include "base/launch.h"
#include "ops/attention/sm90/general/load.cuh"
#include "ops/attention/sm90/kernel.cuh"

namespace halftone::attention_sm90 {

// O, S and P of 64 rows fill the registers of a warpgroup; Q and two stages each of K and V fill
// shared memory. Small heads leave room for a third consumer warpgroup, which hides more of the
// exponentials: at head size 64 exp2 takes as many clocks as the MMAs. For short rows under a mask
// a second CTA does that (kernel.cuh). Clusters of two CTAs that share K and V by TMA multicast
// halve what the L2 must deliver, worth it where both see the same keys. Wide K/V tiles leave no
// room to stage O in shared memory and waste more at the end of the keys: for long sequences. Which
// MMAs overlap the softmax was measured for each (docs/findings/attention-hopper.md).
inline constexpr Tile kTiles[] = {
    {64, 64, 64, 2, 1, Overlap::none, 2},  // short rows under a mask
    {64, 64, 128, 3, 1},
    {96, 96, 112, 3, 1},  // long rows
    {96, 96, 128, 2, 1, Overlap::own},
    {128, 128, 176, 2, 2, Overlap::own},
    {128, 128, 128, 2, 2, Overlap::own},
    {128, 128, 128, 2, 1, Overlap::own},
    {192, 128, 128, 2, 1},  // DeepSeek's 192 and 128
    {192, 192, 112, 2, 2, Overlap::own},
    {192, 192, 112, 2, 1, Overlap::own},
    {256, 256, 80, 2, 2, Overlap::others},
    {256, 256, 80, 2, 1, Overlap::others},
};
inline constexpr int kTileCount = sizeof(kTiles) / sizeof(kTiles[0]);

// Tiles of the general form: whole pages of the usual sizes, or parts of them. One warpgroup has
// the few rows of decode.
inline constexpr Tile kGeneralTiles[] = {
    {64, 64, 128, 1, 1},  //
    {128, 128, 128, 1, 1},
    {256, 256, 64, 1, 1},
    {64, 64, 96, 3, 1, Overlap::others},  // 152 registers
    {128, 128, 128, 2, 1},
    {192, 128, 128, 2, 1},
    {256, 256, 64, 2, 1},
};
inline constexpr int kGeneralTileCount = sizeof(kGeneralTiles) / sizeof(kGeneralTiles[0]);

// Tiles with mask tensors that TMA brings to shared memory.
inline constexpr Tile kStagedMaskTiles[] = {{128, 128, 128, 2, 1}, {256, 256, 64, 2, 1}};
// Tiles with mask tensors that threads read from global memory: addresses and mask values take the
// registers of half of S and P.
inline constexpr Tile kMaskedTiles[] = {{128, 128, 64, 2, 1}, {256, 256, 32, 2, 1}};
inline constexpr int kMaskedTileCount = sizeof(kMaskedTiles) / sizeof(kMaskedTiles[0]);
static_assert(sizeof(kStagedMaskTiles) == sizeof(kMaskedTiles), "chosen alike");

// The first tile that holds the head sizes and suits the mask and the lengths.
template <int kCount>
constexpr int choose_tile(const Tile (&tiles)[kCount], uint32_t head_dim, uint32_t value_dim,
                          bool masked, uint32_t queries, uint32_t keys) {
  for (int i = 0; i < kCount; ++i) {
    const Tile& tile = tiles[i];
    if (head_dim > tile.head_dim || value_dim > tile.value_dim) continue;
    if (tile.cluster > 1 && (masked || queries <= 64 * tile.warpgroups)) continue;
    if (tile.keys > 128 && keys < 8192) continue;
    // With 192 rows more of a tile is masked, and more of the last tile is empty: not for few
    // queries.
    const bool few = queries < (masked ? 4096u : 2048u);
    if (tile.head_dim == 96 && tile.warpgroups == 3 && few) continue;
    if (tile.head_dim == 64 && tile.warpgroups == 2 && !(masked && keys <= 1024)) continue;
    return i;
  }
  return -1;
}
// The same of the general form, for `rows` query rows of the packed heads (PackGQA).
constexpr int choose_general_tile(uint32_t head_dim, uint32_t value_dim, int64_t rows) {
  for (int i = 0; i < kGeneralTileCount; ++i) {
    const Tile& tile = kGeneralTiles[i];
    if (head_dim > tile.head_dim || value_dim > tile.value_dim) continue;
    if ((tile.warpgroups == 1) != (rows <= 64)) continue;
    return i;
  }
  return -1;
}

constexpr int choose_masked_tile(uint32_t head_dim, uint32_t value_dim) {
  return head_dim <= 128 && value_dim <= 128 ? 0 : 1;
}

// The __global__ functions of the instances, defined in */instances.cu.
const void* gpu_entry(hw::Type, int tile);
const void* gpu_general_entry(hw::Type, int tile);
const void* gpu_masked_entry(hw::Type, int tile);
const void* gpu_staged_mask_entry(hw::Type, int tile);
const void* gpu_combine_entry(hw::Type);

// GPU entry and simulator body of an instance, and its launch shape: */instances.cpp.
template <class Parameters>
struct Instance {
  KernelImage image;
  LaunchShape (*shape)(const Parameters&, uint32_t multiprocessors);
};
Instance<Params> instance(hw::Type, int tile);
Instance<GeneralParams> general_instance(hw::Type, int tile);
Instance<GeneralParams> masked_instance(hw::Type, int tile);
Instance<GeneralParams> staged_mask_instance(hw::Type, int tile);
Instance<GeneralParams> combine_instance(hw::Type);

template <class Kernel>
Instance<typename Kernel::Params> make_instance(const char* name, const void* entry,
                                                void (*body)(const void*)) {
  return {{name, Arch::sm_90a, entry, body, sizeof(typename Kernel::Params), Kernel::kThreads,
           Kernel::kMinBlocks},
          Kernel::shape};
}

}  // namespace halftone::attention_sm90
