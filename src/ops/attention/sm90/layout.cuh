// Shared memory, rings and warp roles of one attention instance on sm_90a. From the Tile it derives
// stages, barriers, register budgets and where everything lies.
#pragma once
#include "hw/cluster.h"
#include "pipe/dynamic_schedule.h"
#include "pipe/ring.h"
#include "pipe/roles.h"
#include "tile/shared_tile.h"

namespace halftone::attention_sm90 {

using tile::Major;
using tile::SharedTile;

// Which MMAs run beside the softmax of a tile. own: P V of the tile before, of the same warpgroup
// (intra-warpgroup overlap). others: P V is waited for first, its P free their registers, and only
// MMAs of other warpgroups run. assembler: nothing is forced, and ptxas moves the wait for P V up
// to the top of its basic block. none: a warpgroup runs S, softmax and P V in sequence, without
// ping-pong; P take the registers of S.
enum class Overlap { assembler, own, others, none };

// The widest swizzle of which a line of `bytes` is whole spans.
HT_HOST_DEVICE tile::Swizzle line_swizzle(uint32_t bytes) {
  return bytes % 128 == 0  ? tile::Swizzle::b128
         : bytes % 64 == 0 ? tile::Swizzle::b64
                           : tile::Swizzle::b32;
}

// One instance. `head_dim` and `value_dim` are the largest it takes: smaller heads are padded with
// zeros.
struct Tile {
  uint32_t head_dim, value_dim;  // multiples of 32; padded to 64 in shared memory
  uint32_t keys;                 // of a K/V tile
  uint32_t warpgroups;           // of 64 query rows
  uint32_t cluster;              // CTAs
  Overlap overlap = Overlap::assembler;
  uint32_t blocks = 1;  // CTAs a multiprocessor
};

// setmaxnreg of producer and consumer threads. Two warpgroups hold S, P and O of 64 rows each in
// 240 registers, three in 160; 0: a single warpgroup, everyone keeps what the launch gives.
// Producers that gather by themselves, or load per-key scales, need more than one that issues TMA.
struct Budget {
  uint32_t producer, consumer;
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

// kThreadsCopy: whether four producer warps fill the stages by cp.async or one thread by TMA.
// kPerKeyScales: keys may have scales. kMasked: mask tensors have stages. kKeyBits: of an element
// of Q and K.
template <Tile kTile, bool kThreadsCopy, bool kPerKeyScales = false, bool kWithMask = false,
          uint32_t kBitsOfKeys = 16>
struct Layout {
  static constexpr uint32_t kKeyBits = kBitsOfKeys;
  static_assert(kKeyBits == 16 || !kThreadsCopy, "threads copy elements of one size");
  static constexpr bool kMasked = kWithMask;
  static constexpr uint32_t kHeadDim = kTile.head_dim, kValueDim = kTile.value_dim;
  static constexpr uint32_t kKeys = kTile.keys, kWarpgroups = kTile.warpgroups;
  static constexpr uint32_t kRows = 64 * kWarpgroups, kCluster = kTile.cluster;
  static constexpr uint32_t kWarps = kWarpgroups * 4;
  // Interleaved order in Softmax::step, where it was measured to gain: 3 to 5 % with three
  // warpgroups and 128 keys, 1 % with 176; 96 keys lose 0 to 5 %.
  static constexpr bool kInterleaved = kKeys > 128 || (kWarpgroups == 3 && kKeys > 96);
  using Element = uint16_t;
  static constexpr uint32_t kStages = 2;  // of K and of V: one is read while the other is filled
  static constexpr uint32_t kPanel = 64;  // 16-bit elements of a 128-byte line
  static_assert(kHeadDim % 32 == 0 && kValueDim % 32 == 0, "whole steps of MMAs of 8 bits");
  // Row width in shared memory: whole panels, of which the MMAs leave the padding out.
  static constexpr uint32_t kHeadRoom = (kHeadDim + kPanel - 1) / kPanel * kPanel;
  static constexpr uint32_t kValueRoom = (kValueDim + kPanel - 1) / kPanel * kPanel;
  static_assert(kKeys % 16 == 0, "P V takes 16 keys at a time");
  static_assert(kKeys % (8 * kCluster) == 0, "a share starts where the swizzle does");
  static_assert(kCluster == 1 || !kThreadsCopy, "threads copy for their own block");

  enum class Worker { producer, consumer };
  static constexpr uint32_t kLoadWarps = 4;
  static constexpr Budget kBudget = budget(kWarpgroups, kThreadsCopy, kPerKeyScales, kTile.blocks);
  static constexpr pipe::Roles kRoles{
      {{"producer", kLoadWarps, kBudget.producer}, {"consumer", kWarps, kBudget.consumer}}};
  static constexpr uint32_t kThreads = kRoles.threads(), kMinBlocks = kTile.blocks;
  enum class Barrier { ping_pong0, ping_pong1, ping_pong2, count };
  static constexpr uint32_t kPingPongThreads = 256;  // the warpgroup that waits, and the one before

  HT_HOST_DEVICE static SharedTile q_tile() {
    return {Major::k, line_swizzle(kHeadRoom * kKeyBits / 8), kKeyBits, kRows, kHeadRoom};
  }
  HT_HOST_DEVICE static SharedTile k_tile() {
    return {Major::k, line_swizzle(kHeadRoom * kKeyBits / 8), kKeyBits, kKeys, kHeadRoom};
  }
  HT_HOST_DEVICE static SharedTile v_tile() {
    return {Major::mn, tile::Swizzle::b128, 16, kValueRoom, kKeys};
  }
  // A warp's rows of O.
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
  // Where there is room, O goes through shared memory and leaves by TMA stores of whole panels, 16
  // rows a warp.
  static constexpr uint32_t kOut = kV + kStages * kVBytes;
  static constexpr uint32_t kOutBytes = kOutRows * kValueDim * 2;
  static constexpr bool kStaged = !kThreadsCopy && !kPerKeyScales && kValueRoom == kValueDim &&
                                  kOut + kWarps * kOutBytes + 1024 <= 227 * 1024;
  // Mask values of a warpgroup's rows and the keys of a tile: panels of 64 lines of 128 bytes, up
  // to 4 bytes a key. One stage: it is read before the exponentials of its tile.
  static constexpr uint32_t kMask = kOut + (kStaged ? kWarps * kOutBytes : 0);
  static constexpr uint32_t kMaskPanel = 64 * 128;
  static constexpr uint32_t kMaskBytes = kMasked ? kKeys * 4 / 128 * kMaskPanel : 0;
  using MaskRing = pipe::Ring<1, kMaskPanel>;  // a panel or more
  static constexpr uint32_t kQBarriers = kMask + kWarpgroups * kMaskBytes;
  static constexpr uint32_t kKBarriers = kQBarriers + QRing::kSharedBytes;
  static constexpr uint32_t kVBarriers = kKBarriers + KRing::kSharedBytes;
  static constexpr uint32_t kSchedule = kVBarriers + VRing::kSharedBytes;
  // FP32 scales of the keys of a stage of K, where each key has its own: of K, then of V. They are
  // read after the K stage has been released, hence twice as many slots as stages.
  static constexpr uint32_t kMaskBarriers = kSchedule + (kThreadsCopy ? 64 : 0);
  static constexpr uint32_t kScales =
      kMaskBarriers + (kMasked ? kWarpgroups * MaskRing::kSharedBytes : 0);
  static constexpr uint32_t kScalesOfV =
      (kKeys | 16) * 4;  // offset to other banks than 16 keys of K
  // Behind them, where one warp loads the scales of a tile: flags whether all of K's, and all of
  // V's, are 1.
  static constexpr bool kFlagsOnes = kPerKeyScales && !kThreadsCopy;
  static constexpr uint32_t kOnes = kScalesOfV + kKeys * 4;
  static constexpr uint32_t kScaleBytes = kOnes + (kFlagsOnes ? 16 : 0), kScaleSlots = 2 * kStages;
  static_assert(pipe::DynamicSchedule::kSharedBytes <= 64, "the scales begin behind the schedule");
  static constexpr uint32_t kSharedBytes =
      kScales + (kPerKeyScales ? kScaleSlots * kScaleBytes : 0);
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
    // A stage is full when the TMA thread has arrived with its expected bytes, or every producer
    // warp has arrived; a K stage when its scales are there, too.
    constexpr uint32_t kFillers = kThreadsCopy ? kLoadWarps : 1;
    rings.q.init(kFillers, kWarps);
    rings.k.init(kFillers + (kPerKeyScales && !kThreadsCopy ? 1 : 0), kCluster * kWarps);
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
