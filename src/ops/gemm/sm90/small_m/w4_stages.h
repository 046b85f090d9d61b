// Products on Hopper whose codes of four bits enter in the order of memory (sm90_order.cuh): shared
// memory. What the kernel is told is as of sm90_small_m.h.
#pragma once
#include "ops/gemm/sm90/small_m/params.h"
#include "pipe/roles.h"

namespace halftone::gemm {

// A tile is 128 rows of W by kColumns of x. A stage has 256 elements of K: of W [row][128 bytes],
// of x [64 elements][row] in lines as long, both under the swizzle; then scales that multiply
// codes, kScalePitch bytes a row, or those of runs of 128 or 32 elements that multiply sums, of
// each warp's 16 rows [run][row].
//
// A lane has two rows of W, kApart behind each other. Of experts these are an output of a gate and
// its other half (sm90_tile.cuh), and scales come by threads; else they come in boxes of 16 bytes.
template <Sm90Scales kScales, uint32_t kColumns, bool kExperts = false>
struct Sm90SmallMW4Stage {
  static constexpr Sm90Scales kScaleMode = kScales;
  static constexpr uint32_t kWidth = kColumns;
  static constexpr uint32_t kRowDistance = kExperts ? 32 : 8;
  static constexpr uint32_t kRows = 128, kLine = 128, kDepth = kSm90SmallMDepth;
  static constexpr uint32_t kSlab = kColumns * kLine;  // bytes of 64 elements of x
  static constexpr uint32_t kX = kRows * kLine, kScaleOffset = kX + kDepth / 64 * kSlab;
  static constexpr bool kSmemScales = kScales == Sm90Scales::pairs || kScales == Sm90Scales::powers;
  static constexpr uint32_t kScaleBytes = kDepth / (kScales == Sm90Scales::pairs ? 16 : 32);
  static constexpr bool kGroup32 = kScales == Sm90Scales::short_sums;
  static constexpr uint32_t kGroups = kDepth / (kGroup32 ? 32 : 128);
  static constexpr uint32_t kScalePitch = kExperts ? kScaleBytes : 16;
  static constexpr uint32_t kCopiedBytes = kScaleOffset + (kSmemScales ? kRows * kScalePitch : 0);
  static constexpr uint32_t kBytes = kCopiedBytes + (kSmemScales ? 0 : kGroups * kRows * 4);

  // Two warpgroups, 64 rows of W each: of a warp eight from its first on, and those behind them.
  static constexpr uint32_t kWarps = 8;
  HT_HOST_DEVICE static uint32_t first_row(uint32_t warp) {
    return warp / 4 * 64 + warp % 4 * (kRowDistance == 8 ? 16 : 8);
  }
  // Of 16.
  HT_HOST_DEVICE static uint32_t row_of(uint32_t warp, uint32_t r) {
    return first_row(warp) + r % 8 + r / 8 * kRowDistance;
  }
  // The scale of a run of a warp's row `r` of 16.
  HT_HOST_DEVICE static uint32_t scale_of(uint32_t warp, uint32_t r, uint32_t run) {
    return kScaleOffset + (warp * kGroups + run) * 64 + r * 4;
  }

  // Sums of a tile: [row of x][row of W], in lines that begin four banks apart.
  static constexpr uint32_t kAccumulatorRow = (kRows + 4) * 4,
                            kAccumulatorBytes = kColumns * kAccumulatorRow;
};

// Two blocks a multiprocessor, each with a warp for copies beside those that multiply, and three
// that bring x into their order: on a scheduler each, as the warps that multiply wait for the one
// whose scheduler has the most to do.
template <Sm90Scales kScales, uint32_t kColumns>
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

  // At the end sums take the place of the stages.
  static_assert(Stage::kAccumulatorBytes <= kStages * Stage::kBytes);
  static constexpr uint32_t kScaleBias = kStages * Stage::kBytes;
  static constexpr uint32_t kBarriers = kScaleBias + 2 * kSm90ScaleBiasBytes;
  // Of every stage: x is in order; and whether bf16 can take its powers of two.
  static constexpr uint32_t kPermuted = kBarriers + Ring::kSharedBytes;
  static constexpr uint32_t kFit = kPermuted + kStages * 8;
  static constexpr uint32_t kSharedBytes = kFit + kStages * 4;
};

}  // namespace halftone::gemm
