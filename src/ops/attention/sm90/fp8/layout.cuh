// Shared memory, rings and warp roles of one E4M3 attention instance on sm_90a.
#pragma once
#include "hw/cluster.h"
#include "ops/attention/sm90/layout.cuh"

namespace halftone::attention_sm90 {

// What a warpgroup does in its ping-pong turn, while the others do something else. qk: starts S.
// pv: P V of a tile, until it is accumulated. pv_and_qk: that, the accumulation and the start of
// the next S.
enum class PingPong { qk, pv, pv_and_qk };

// One instance.
struct Fp8Tile {
  uint32_t head_dim, value_dim;  // multiples of 64
  uint32_t keys;                 // of a K/V tile
  uint32_t warpgroups;           // of 64 query rows
  uint32_t columns;              // of O that one MMA computes, accumulated into O in FP32
  // Intra-warpgroup overlap: S of a tile beside P V of the one before; S, P V, P and O of 64 rows
  // are in registers together.
  bool overlap;
  PingPong ping_pong;
  // Q and K are BF16 (dequantised from another format): V and P alone are E4M3.
  bool bf16_keys = false;
};

// wgmma takes 8-bit operands from shared memory only K-major, and V comes with its columns
// contiguous. So the producer warps transpose it: V lies in a ring of its own as TMA wrote it, and
// V^T, with keys contiguous, in the ring that the consumer warpgroups read. kThreadsCopy: whether
// four producer warps fill the stages by cp.async or one thread a ring by TMA.
template <Fp8Tile kTile, bool kThreadsCopy>
struct Fp8Layout {
  static constexpr uint32_t kHeadDim = kTile.head_dim, kValueDim = kTile.value_dim;
  static constexpr uint32_t kKeys = kTile.keys, kWarpgroups = kTile.warpgroups;
  static constexpr uint32_t kRows = 64 * kWarpgroups, kCluster = 1;
  static constexpr uint32_t kWarps = kWarpgroups * 4;
  static constexpr uint32_t kColumns = kTile.columns;
  static constexpr bool kOverlap = kTile.overlap, kBf16Keys = kTile.bf16_keys;
  static constexpr PingPong kPingPong = kTile.ping_pong;
  // Of TileSoftmax::step_and_convert; found by trial.
  static constexpr uint32_t kBatch = kWarpgroups == 2 ? 4 : 2, kLag = kWarpgroups == 2 ? 1 : 3;
  static constexpr uint32_t kKeyBits = kBf16Keys ? 16 : 8;  // of an element of Q and of K
  static_assert(!kBf16Keys || !kThreadsCopy, "threads copy elements of one size");
  using Element = uint8_t;
  static constexpr uint32_t kStages = 2;  // of each ring, except of V beside BF16 K:
  static constexpr uint32_t kVStages = kBf16Keys ? 1 : kStages;  // V^T has two all the same
  static_assert(!kOverlap || kPingPong == PingPong::qk, "S and P V beside it start in one turn");
  static_assert(kKeys % 32 == 0, "P V takes 32 keys at a time");
  static_assert(kValueDim % kColumns == 0, "whole products");

  enum class Worker { producer, consumer };
  static constexpr uint32_t kLoadWarps = 4;
  static_assert(!kThreadsCopy || kWarpgroups < 4, "no registers left for threads that copy");
  static constexpr Budget kBudget = kThreadsCopy       ? budget(kWarpgroups, true)
                                    : kWarpgroups == 2 ? Budget{40, 232}
                                    : kWarpgroups == 3 ? Budget{32, 160}
                                                       : Budget{32, 112};
  static constexpr pipe::Roles kRoles{
      {{"producer", kLoadWarps, kBudget.producer}, {"consumer", kWarps, kBudget.consumer}}};
  static constexpr uint32_t kThreads = kRoles.threads(), kMinBlocks = 1;
  enum class Barrier { ping_pong0, ping_pong1, ping_pong2, ping_pong3, count };
  static constexpr uint32_t kPingPongThreads = 256;  // the warpgroup that waits, and the one before

  HT_HOST_DEVICE static SharedTile q_tile() {
    return {Major::k, line_swizzle(kHeadDim * kKeyBits / 8), kKeyBits, kRows, kHeadDim};
  }
  HT_HOST_DEVICE static SharedTile k_tile() {
    return {Major::k, line_swizzle(kHeadDim * kKeyBits / 8), kKeyBits, kKeys, kHeadDim};
  }
  // As TMA writes it: wgmma does not read it.
  HT_HOST_DEVICE static SharedTile v_tile() {
    return {Major::k, line_swizzle(kValueDim), 8, kKeys, kValueDim};
  }
  HT_HOST_DEVICE static SharedTile vt_tile() {
    return {Major::k, line_swizzle(kKeys), 8, kValueDim, kKeys};
  }
  static constexpr uint32_t kQBytes = kRows * kHeadDim * kKeyBits / 8;
  static constexpr uint32_t kKBytes = kKeys * kHeadDim * kKeyBits / 8;
  static constexpr uint32_t kVBytes = kKeys * kValueDim;

  using QRing = pipe::Ring<1, kQBytes>;
  using KRing = pipe::Ring<kStages, kKBytes>;
  using VRing = pipe::Ring<kVStages, kVBytes>;
  using VtRing = pipe::Ring<kStages, 0>;
  using ScaleRing = pipe::Ring<kStages, 0>;
  struct Rings {
    QRing q;
    KRing k;
    VRing v;
    VtRing vt;
    ScaleRing scales;
  };
  static constexpr uint32_t kK = kQBytes, kV = kK + kStages * kKBytes;
  static constexpr uint32_t kVt = kV + kVStages * kVBytes;
  // Per-row scales of a tile: those of K, those of V over the largest, and the largest.
  static constexpr uint32_t kScales = kVt + kStages * kVBytes;
  static constexpr uint32_t kVScales = kKeys * 4, kLargestVScale = 2 * kVScales;
  static constexpr uint32_t kScaleBytes = kLargestVScale + 16;
  static constexpr uint32_t kQBarriers = kScales + kStages * kScaleBytes;
  static constexpr uint32_t kKBarriers = kQBarriers + QRing::kSharedBytes;
  static constexpr uint32_t kVBarriers = kKBarriers + KRing::kSharedBytes;
  static constexpr uint32_t kVtBarriers = kVBarriers + VRing::kSharedBytes;
  static constexpr uint32_t kScaleBarriers = kVtBarriers + VtRing::kSharedBytes;
  static constexpr uint32_t kSchedule = kScaleBarriers + ScaleRing::kSharedBytes;
  static constexpr uint32_t kSharedBytes =
      kSchedule + (kThreadsCopy ? pipe::DynamicSchedule::kSharedBytes : 0);
  static_assert(kSharedBytes <= 227 * 1024, "a block of Hopper has 227 KB");

  HT_DEVICE static Rings rings(hw::SharedAddress base) {
    return {{base + kQBarriers},
            {base + kKBarriers},
            {base + kVBarriers},
            {base + kVtBarriers},
            {base + kScaleBarriers}};
  }
  HT_DEVICE static void init(const Rings& rings) {
    constexpr uint32_t kFillers = kThreadsCopy ? kLoadWarps : 1;
    rings.q.init(kFillers, kWarps);
    rings.k.init(kFillers, kWarps);
    rings.v.init(kFillers, kLoadWarps);
    rings.vt.init(kLoadWarps, kWarps);
    rings.q.name("q full", "q empty");
    rings.k.name("k full", "k empty");
    rings.v.name("v full", "v empty");
    rings.vt.name("v^T full", "v^T empty");
    rings.scales.init(kLoadWarps, kWarps);
    rings.scales.name("scales full", "scales empty");
    hw::fence_mbarrier_init();
  }
};

}  // namespace halftone::attention_sm90
