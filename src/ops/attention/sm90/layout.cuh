// Attention on Hopper: the shape of an instance, its shared memory, its rings and its roles.
#pragma once
#include "hw/cluster.h"
#include "pipe/dynamic_schedule.h"
#include "pipe/ring.h"
#include "pipe/roles.h"
#include "tile/shared_tile.h"

namespace halftone::attention_sm90 {

using tile::Major;
using tile::SharedTile;

// What the softmax of a tile runs beside: P V of the tile before, or, that being waited for and its
// P gone from their registers, products of the other warpgroups alone. Where nothing says otherwise
// ptxas moves the wait for P V up to the top of its block of instructions. None: a warpgroup does
// one after the other, S, softmax and P V of a tile, without turns; its P take the registers of S.
enum class Overlap { assembler, own, others, none };

// The widest that a line of `bytes` is whole spans of.
HT_HOST_DEVICE tile::Swizzle line_swizzle(uint32_t bytes) {
  return bytes % 128 == 0  ? tile::Swizzle::b128
         : bytes % 64 == 0 ? tile::Swizzle::b64
                           : tile::Swizzle::b32;
}

// One instance. `head_dim` and `value_dim` are the largest: what a smaller problem lacks is filled
// with zeros.
struct Tile {
  uint32_t head_dim, value_dim;  // multiples of 32; in memory they have room for whole 64
  uint32_t keys;                 // of a tile of K and V
  uint32_t warpgroups;           // of 64 query rows
  uint32_t cluster;              // blocks
  Overlap overlap = Overlap::assembler;
  uint32_t blocks = 1;  // of a multiprocessor
};

// Registers of a thread that loads and of one that multiplies. Two warpgroups hold S, P and O of 64
// rows each in 240 registers, three in 160; 0: alone, both get what the launch gives. Threads that
// copy by themselves need more than one that asks the copy engine, and those that bring scales.
struct Budget {
  uint32_t load, multiply;
};
constexpr Budget budget(uint32_t warpgroups, bool threads_copy, bool scaled = false,
                        uint32_t blocks = 1) {
  if (blocks == 2) return {24, 104};  // of two warpgroups
  if (warpgroups == 1) return {0, 0};
  if (warpgroups == 2) {
    return threads_copy ? Budget{56, 224} : scaled ? Budget{40, 232} : Budget{24, 240};
  }
  return threads_copy ? Budget{56, 152} : Budget{32, 160};
}

inline constexpr uint32_t kOutRows = 16;  // of a warp

// kThreadsCopy: whether four warps fill the stages, or one thread by the copy engine. kScaled: keys
// may have scales. kMasked: terms of a mask tensor have stages. kKeyBits: of an element of Q and K.
template <Tile kTile, bool kThreadsCopy, bool kScaled = false, bool kWithMask = false,
          uint32_t kBitsOfKeys = 16>
struct Layout {
  static constexpr uint32_t kKeyBits = kBitsOfKeys;
  static_assert(kKeyBits == 16 || !kThreadsCopy, "threads copy elements of one size");
  static constexpr bool kMasked = kWithMask;
  static constexpr uint32_t kHeadDim = kTile.head_dim, kValueDim = kTile.value_dim;
  static constexpr uint32_t kKeys = kTile.keys, kWarpgroups = kTile.warpgroups;
  static constexpr uint32_t kRows = 64 * kWarpgroups, kCluster = kTile.cluster;
  static constexpr uint32_t kWarps = kWarpgroups * 4;
  // The order of the softmax (Softmax::step), where it was measured to gain: 3 to 5 % with three
  // warpgroups and 128 keys, 1 % with 176; 96 keys lose 0 to 5 %.
  static constexpr bool kInterleaved = kKeys > 128 || (kWarpgroups == 3 && kKeys > 96);
  using Element = uint16_t;
  static constexpr uint32_t kStages = 2;  // of K and of V: one is read while the other is filled
  static constexpr uint32_t kPanel = 64;  // 16-bit elements of a 128-byte line
  static_assert(kHeadDim % 32 == 0 && kValueDim % 32 == 0, "whole steps of MMAs of 8 bits");
  // Of rows in memory: whole panels, of which products leave the end out.
  static constexpr uint32_t kHeadRoom = (kHeadDim + kPanel - 1) / kPanel * kPanel;
  static constexpr uint32_t kValueRoom = (kValueDim + kPanel - 1) / kPanel * kPanel;
  static_assert(kKeys % 16 == 0, "P V takes 16 keys at a time");
  static_assert(kKeys % (8 * kCluster) == 0, "a share starts where the swizzle does");
  static_assert(kCluster == 1 || !kThreadsCopy, "threads copy for their own block");

  enum class Worker { load, multiply };
  static constexpr uint32_t kLoadWarps = 4;
  static constexpr Budget kBudget = budget(kWarpgroups, kThreadsCopy, kScaled, kTile.blocks);
  static constexpr pipe::Roles kRoles{
      {{"load", kLoadWarps, kBudget.load}, {"multiply", kWarps, kBudget.multiply}}};
  static constexpr uint32_t kThreads = kRoles.threads(), kMinBlocks = kTile.blocks;
  enum class Barrier { turn0, turn1, turn2, count };
  static constexpr uint32_t kTurnThreads = 256;  // the warpgroup that waits, and the one before

  HT_HOST_DEVICE static SharedTile q_tile() {
    return {Major::k, line_swizzle(kHeadRoom * kKeyBits / 8), kKeyBits, kRows, kHeadRoom};
  }
  HT_HOST_DEVICE static SharedTile k_tile() {
    return {Major::k, line_swizzle(kHeadRoom * kKeyBits / 8), kKeyBits, kKeys, kHeadRoom};
  }
  HT_HOST_DEVICE static SharedTile v_tile() {
    return {Major::mn, tile::Swizzle::b128, 16, kValueRoom, kKeys};
  }
  // Of a warp's results.
  HT_HOST_DEVICE static SharedTile out_tile() {
    return {Major::k, tile::Swizzle::b128, 16, kOutRows, kValueDim};
  }
  static constexpr uint32_t kQBytes = kRows * kHeadRoom * kKeyBits / 8;
  static constexpr uint32_t kKBytes = kKeys * kHeadRoom * kKeyBits / 8;
  static constexpr uint32_t kVBytes = kKeys * kValueRoom * 2;

  static constexpr hw::Scope kScope = kCluster > 1 ? hw::Scope::cluster : hw::Scope::cta;
  using QRing = pipe::Ring<1, kQBytes>;
  using KRing = pipe::Ring<kStages, kKBytes, kScope>;
  using VRing = pipe::Ring<kStages, kVBytes, kScope>;
  struct Rings {
    QRing q;
    KRing k;
    VRing v;
  };
  static constexpr uint32_t kK = kQBytes, kV = kK + kStages * kKBytes;
  // Where there is room results go through shared memory and leave by tensor copies, of whole
  // panels: 16 rows of each warp.
  static constexpr uint32_t kOut = kV + kStages * kVBytes;
  static constexpr uint32_t kOutBytes = kOutRows * kValueDim * 2;
  static constexpr bool kStaged = !kThreadsCopy && !kScaled && kValueRoom == kValueDim &&
                                  kOut + kWarps * kOutBytes + 1024 <= 227 * 1024;
  // Of a mask, the terms of a warpgroup's rows and the keys of a tile: panels of 64 lines of 128
  // bytes, of up to 4 bytes a key. One stage: it is left before the exponentials of its tile.
  static constexpr uint32_t kMask = kOut + (kStaged ? kWarps * kOutBytes : 0);
  static constexpr uint32_t kMaskPanel = 64 * 128;
  static constexpr uint32_t kMaskBytes = kMasked ? kKeys * 4 / 128 * kMaskPanel : 0;
  using MaskRing = pipe::Ring<1, kMaskPanel>;  // a panel or more
  static constexpr uint32_t kQBarriers = kMask + kWarpgroups * kMaskBytes;
  static constexpr uint32_t kKBarriers = kQBarriers + QRing::kSharedBytes;
  static constexpr uint32_t kVBarriers = kKBarriers + KRing::kSharedBytes;
  static constexpr uint32_t kSchedule = kVBarriers + VRing::kSharedBytes;
  // f32 scales of the keys of a stage of K, where each has its own: of K, then of V. They are read
  // after the stage has been given back: there are twice as many places.
  static constexpr uint32_t kMaskBarriers = kSchedule + (kThreadsCopy ? 64 : 0);
  static constexpr uint32_t kScales =
      kMaskBarriers + (kMasked ? kWarpgroups * MaskRing::kSharedBytes : 0);
  static constexpr uint32_t kScalesOfV = (kKeys | 16) * 4;  // banks beside those of 16 keys of K
  // Behind them, where one warp brings all of a tile's, whether those of K, and of V, are all 1.
  static constexpr bool kTellsOnes = kScaled && !kThreadsCopy;
  static constexpr uint32_t kOnes = kScalesOfV + kKeys * 4;
  static constexpr uint32_t kScaleBytes = kOnes + (kTellsOnes ? 16 : 0), kScalePlaces = 2 * kStages;
  static_assert(pipe::DynamicSchedule::kSharedBytes <= 64, "the scales begin behind the schedule");
  static constexpr uint32_t kSharedBytes = kScales + (kScaled ? kScalePlaces * kScaleBytes : 0);
  static_assert(kSharedBytes <= 227 * 1024, "a block of Hopper has 227 KB");

  HT_DEVICE static Rings rings(hw::SharedAddress base) {
    return {{base + kQBarriers}, {base + kKBarriers}, {base + kVBarriers}};
  }
  HT_DEVICE static MaskRing mask_ring(hw::SharedAddress base, uint32_t warpgroup) {
    return {base + (kMaskBarriers + warpgroup * MaskRing::kSharedBytes)};
  }
  HT_DEVICE static hw::SharedAddress mask_stage(hw::SharedAddress base, uint32_t warpgroup) {
    return base + (kMask + warpgroup * kMaskBytes);
  }
  HT_DEVICE static void init(hw::SharedAddress base, const Rings& rings) {
    // A stage is full when the copy engine's one thread has said what to expect, or every loading
    // warp that its rows are there; one of K when its scales are, too.
    constexpr uint32_t kFillers = kThreadsCopy ? kLoadWarps : 1;
    rings.q.init(kFillers, kWarps);
    rings.k.init(kFillers + (kScaled && !kThreadsCopy ? 1 : 0), kCluster * kWarps);
    rings.v.init(kFillers, kCluster * kWarps);
    rings.q.name("q full", "q empty");
    rings.k.name("k full", "k empty");
    rings.v.name("v full", "v empty");
    for (uint32_t i = 0; kMasked && i < kWarpgroups; ++i) {
      mask_ring(base, i).init(kLoadWarps, 4);
      mask_ring(base, i).name("mask full", "mask empty");
    }
    hw::fence_mbarrier_init();
  }
  HT_DEVICE static uint32_t block_rank() {
    if constexpr (kCluster > 1) return hw::cluster_rank();
    return 0;
  }
};

}  // namespace halftone::attention_sm90
