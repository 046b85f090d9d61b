// Shared memory of the 4-bit small-M GEMMs on sm_90a (small_m/k_permute.cuh). Their parameters are
// Sm90SmallMParams.
#pragma once
#include "ops/gemm/sm90/small_m/params.h"
#include "pipe/roles.h"

namespace halftone::gemm {

// A tile is 128 rows of W by kColumns rows of x. A stage has 256 elements of K: of W [row][128
// bytes], of x [64 elements][row] in lines as long, both under the swizzle; then scales that
// multiply weights, kScalePitch bytes a row, or scales of groups of 128 or 32 elements that
// multiply the accumulator, of each warp's 16 rows [group][row].
//
// A lane has two rows of W, kRowDistance apart. In grouped GEMMs these are both halves of a gated
// output (sm90/tile.cuh), and scales are copied by threads; else they come in TMA boxes of 16
// bytes.
template <ScaleMode kScales, uint32_t kColumns, bool kExperts = false>
struct Sm90SmallMW4Stage {
  static constexpr ScaleMode kScaleMode = kScales;
  static constexpr uint32_t kWidth = kColumns;
  static constexpr uint32_t kRowDistance = kExperts ? 32 : 8;
  static constexpr uint32_t kRows = 128, kLine = 128, kDepth = kSm90SmallMDepth;
  static constexpr uint32_t kSlab = kColumns * kLine;  // bytes of 64 elements of x
  static constexpr uint32_t kX = kRows * kLine, kScaleOffset = kX + kDepth / 64 * kSlab;
  static constexpr bool kSmemScales =
      kScales == ScaleMode::e4m3_block || kScales == ScaleMode::ue8m0;
  static constexpr uint32_t kScaleBytes = kDepth / (kScales == ScaleMode::e4m3_block ? 16 : 32);
  static constexpr bool kGroup32 = kScales == ScaleMode::group32_sums;
  static constexpr uint32_t kGroups = kDepth / (kGroup32 ? 32 : 128);
  static constexpr uint32_t kScalePitch = kExperts ? kScaleBytes : 16;
  static constexpr uint32_t kCopiedBytes = kScaleOffset + (kSmemScales ? kRows * kScalePitch : 0);
  static constexpr uint32_t kBytes = kCopiedBytes + (kSmemScales ? 0 : kGroups * kRows * 4);

  // Two warpgroups, 64 rows of W each: a warp has eight rows from its first on, and eight
  // kRowDistance behind them.
  static constexpr uint32_t kWarps = 8;
  HT_HOST_DEVICE static uint32_t first_row(uint32_t warp) {
    return warp / 4 * 64 + warp % 4 * (kRowDistance == 8 ? 16 : 8);
  }
  // Of 16.
  HT_HOST_DEVICE static uint32_t row_of(uint32_t warp, uint32_t r) {
    return first_row(warp) + r % 8 + r / 8 * kRowDistance;
  }
  // Offset of the scale of a group for a warp's row `r` of 16.
  HT_HOST_DEVICE static uint32_t scale_of(uint32_t warp, uint32_t r, uint32_t run) {
    return kScaleOffset + (warp * kGroups + run) * 64 + r * 4;
  }

  // Accumulators of a tile: [row of x][row of W], in lines that start four banks apart.
  static constexpr uint32_t kAccumulatorRow = (kRows + 4) * 4,
                            kAccumulatorBytes = kColumns * kAccumulatorRow;
};

// Two CTAs an SM, each with a TMA warp beside the consumer warps, and three warps that permute x:
// one on each other scheduler, as the consumers wait for the one whose scheduler has the most to
// do.
template <ScaleMode kScales, uint32_t kColumns>
struct Sm90SmallMW4Stages : Sm90SmallMW4Stage<kScales, kColumns> {
  using Stage = Sm90SmallMW4Stage<kScales, kColumns>;
  static constexpr uint32_t kPermuteWarps = 3, kMinBlocks = 2;
  static constexpr pipe::Roles kRoles{
      {{"multiply", Stage::kWarps, 96}, {"load", 1 + kPermuteWarps, 48}}};
  static constexpr uint32_t kThreads = kRoles.threads();
  static constexpr uint32_t kMaxBytes = 227 * 1024 / kMinBlocks - 1024 - 1024;
  static constexpr uint32_t kFittingStages = kMaxBytes / Stage::kBytes;
  static constexpr uint32_t kStages = kFittingStages < 4 ? kFittingStages : 4;
  static_assert(kStages >= 2, "one stage is read while another is filled");
  static_assert(Stage::kBytes % 1024 == 0, "the swizzle is one of addresses");
  using Ring = pipe::Ring<kStages, Stage::kCopiedBytes>;

  // In the epilogue accumulators take the place of the stages.
  static_assert(Stage::kAccumulatorBytes <= kStages * Stage::kBytes);
  static constexpr uint32_t kScaleBias = kStages * Stage::kBytes;
  static constexpr uint32_t kBarriers = kScaleBias + 2 * kSm90ScaleBiasBytes;
  // Of every stage: x is permuted; and whether BF16 can hold its UE8M0 scales.
  static constexpr uint32_t kPermuted = kBarriers + Ring::kSharedBytes;
  static constexpr uint32_t kFit = kPermuted + kStages * 8;
  static constexpr uint32_t kSharedBytes = kFit + kStages * 4;
};

}  // namespace halftone::gemm
