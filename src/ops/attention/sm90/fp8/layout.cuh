// Attention in E4M3 on Hopper: the shape of an instance, its shared memory, its rings and its
// roles.
#pragma once
#include "hw/cluster.h"
#include "ops/attention/sm90/layout.cuh"

namespace halftone::attention_sm90 {

// What a warpgroup has its turn for, the others doing something else meanwhile: the start of S; P V
// of a tile, before it is added to O; or that, the addition and the start of the next S.
enum class Turn { scores, values, values_and_scores };

// One instance.
struct Fp8Tile {
  uint32_t head_dim, value_dim;  // multiples of 64
  uint32_t keys;                 // of a tile of K and V
  uint32_t warpgroups;           // of 64 query rows
  uint32_t columns;              // of O that one product makes, to be added to O in f32
  // Whether S of a tile is computed beside P V of the one before: S, P V, P and O of 64 rows are in
  // registers together.
  bool overlap;
  Turn turn;
  // Whether Q and K are in bf16, as codes of other formats become: V and P alone are E4M3.
  bool wide_keys = false;
};

// Tensor cores take 8-bit operands from shared memory only where the sum's index is the contiguous
// one. V comes with its columns contiguous, so the loading warps turn it around: V as it came lies
// in a ring of its own, V^T, rows of keys, in the ring that the multiplying warpgroups read.
// kThreadsCopy: whether four warps fill the stages, or a thread of each ring by the copy engine.
template <Fp8Tile kTile, bool kThreadsCopy>
struct Fp8Layout {
  static constexpr uint32_t kHeadDim = kTile.head_dim, kValueDim = kTile.value_dim;
  static constexpr uint32_t kKeys = kTile.keys, kWarpgroups = kTile.warpgroups;
  static constexpr uint32_t kRows = 64 * kWarpgroups, kCluster = 1;
  static constexpr uint32_t kWarps = kWarpgroups * 4;
  static constexpr uint32_t kColumns = kTile.columns;
  static constexpr bool kOverlap = kTile.overlap, kWideKeys = kTile.wide_keys;
  static constexpr Turn kTurn = kTile.turn;
  // Of TileSoftmax::step_rounded; found by trial.
  static constexpr uint32_t kBatch = kWarpgroups == 2 ? 4 : 2, kLag = kWarpgroups == 2 ? 1 : 3;
  static constexpr uint32_t kKeyBits = kWideKeys ? 16 : 8;  // of an element of Q and of K
  static_assert(!kWideKeys || !kThreadsCopy, "threads copy elements of one size");
  using Element = uint8_t;
  static constexpr uint32_t kStages = 2;  // of each ring, but of V as it comes beside wide K:
  static constexpr uint32_t kValueStages = kWideKeys ? 1 : kStages;  // V^T has two all the same
  static_assert(!kOverlap || kTurn == Turn::scores, "S and P V beside it start in one turn");
  static_assert(kKeys % 32 == 0, "P V takes 32 keys at a time");
  static_assert(kValueDim % kColumns == 0, "whole products");

  enum class Worker { load, multiply };
  static constexpr uint32_t kLoadWarps = 4;
  static_assert(!kThreadsCopy || kWarpgroups < 4, "no registers left for threads that copy");
  static constexpr Budget kBudget = kThreadsCopy       ? budget(kWarpgroups, true)
                                    : kWarpgroups == 2 ? Budget{40, 232}
                                    : kWarpgroups == 3 ? Budget{32, 160}
                                                       : Budget{32, 112};
  static constexpr pipe::Roles kRoles{
      {{"load", kLoadWarps, kBudget.load}, {"multiply", kWarps, kBudget.multiply}}};
  static constexpr uint32_t kThreads = kRoles.threads(), kMinBlocks = 1;
  enum class Barrier { turn0, turn1, turn2, turn3, count };
  static constexpr uint32_t kTurnThreads = 256;  // the warpgroup that waits, and the one before

  HT_HOST_DEVICE static SharedTile q_tile() {
    return {Major::k, line_swizzle(kHeadDim * kKeyBits / 8), kKeyBits, kRows, kHeadDim};
  }
  HT_HOST_DEVICE static SharedTile k_tile() {
    return {Major::k, line_swizzle(kHeadDim * kKeyBits / 8), kKeyBits, kKeys, kHeadDim};
  }
  // As it comes: no tensor core reads it.
  HT_HOST_DEVICE static SharedTile v_tile() {
    return {Major::k, line_swizzle(kValueDim), 8, kKeys, kValueDim};
  }
  HT_HOST_DEVICE static SharedTile turned_tile() {
    return {Major::k, line_swizzle(kKeys), 8, kValueDim, kKeys};
  }
  static constexpr uint32_t kQBytes = kRows * kHeadDim * kKeyBits / 8;
  static constexpr uint32_t kKBytes = kKeys * kHeadDim * kKeyBits / 8;
  static constexpr uint32_t kVBytes = kKeys * kValueDim;

  using QRing = pipe::Ring<1, kQBytes>;
  using KRing = pipe::Ring<kStages, kKBytes>;
  using VRing = pipe::Ring<kValueStages, kVBytes>;
  using TurnedRing = pipe::Ring<kStages, 0>;
  using ScaleRing = pipe::Ring<kStages, 0>;
  struct Rings {
    QRing q;
    KRing k;
    VRing v;
    TurnedRing turned;
    ScaleRing scales;
  };
  static constexpr uint32_t kK = kQBytes, kV = kK + kStages * kKBytes;
  static constexpr uint32_t kTurned = kV + kValueStages * kVBytes;
  // Of keys with a scale each: those of K, those of V over the largest, and that one.
  static constexpr uint32_t kScales = kTurned + kStages * kVBytes;
  static constexpr uint32_t kValueScales = kKeys * 4, kLargestScale = 2 * kValueScales;
  static constexpr uint32_t kScaleBytes = kLargestScale + 16;
  static constexpr uint32_t kQBarriers = kScales + kStages * kScaleBytes;
  static constexpr uint32_t kKBarriers = kQBarriers + QRing::kSharedBytes;
  static constexpr uint32_t kVBarriers = kKBarriers + KRing::kSharedBytes;
  static constexpr uint32_t kTurnedBarriers = kVBarriers + VRing::kSharedBytes;
  static constexpr uint32_t kScaleBarriers = kTurnedBarriers + TurnedRing::kSharedBytes;
  static constexpr uint32_t kSchedule = kScaleBarriers + ScaleRing::kSharedBytes;
  static constexpr uint32_t kSharedBytes =
      kSchedule + (kThreadsCopy ? pipe::DynamicSchedule::kSharedBytes : 0);
  static_assert(kSharedBytes <= 227 * 1024, "a block of Hopper has 227 KB");

  HT_DEVICE static Rings rings(hw::SharedAddress base) {
    return {{base + kQBarriers},
            {base + kKBarriers},
            {base + kVBarriers},
            {base + kTurnedBarriers},
            {base + kScaleBarriers}};
  }
  HT_DEVICE static void init(const Rings& rings) {
    constexpr uint32_t kFillers = kThreadsCopy ? kLoadWarps : 1;
    rings.q.init(kFillers, kWarps);
    rings.k.init(kFillers, kWarps);
    rings.v.init(kFillers, kLoadWarps);
    rings.turned.init(kLoadWarps, kWarps);
    rings.q.name("q full", "q empty");
    rings.k.name("k full", "k empty");
    rings.v.name("v full", "v empty");
    rings.turned.name("v turned", "v used");
    rings.scales.init(kLoadWarps, kWarps);
    rings.scales.name("scales full", "scales empty");
    hw::fence_mbarrier_init();
  }
};

}  // namespace halftone::attention_sm90
