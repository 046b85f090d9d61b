// The shared memory of the mixed-input GEMM on sm_90a: a ring of stages of W, a ring of stages of
// x, a scale table beside every stage of W, and staging buffers for the epilogue.
//
// A stage of W is 128 rows of 128 bytes as stored, hence 64, 128 or 256 elements of K; a stage of x
// is kColumns rows of 64 elements. Both use the 128-byte swizzle. If W is given as [K, N], a stage
// is two panels of 64 elements of K by 64 outputs, which wgmma reads as MN-major.
#pragma once
#include "ops/gemm/sm90/mixed/choice.h"
#include "ops/gemm/sm90/params.h"
#include "pipe/ring.h"

namespace halftone::gemm {

template <GpuCode kCode, ScaleMode kScales, uint32_t kTileColumns>
struct Sm90Stages {
  using Policy = CodePolicy<kCode>;
  static constexpr bool kFp8 = kScales == ScaleMode::fp8_promotion;
  static constexpr bool kGroup32 = kScales == ScaleMode::group32_sums;
  static constexpr bool kScalesAccumulator = kScales == ScaleMode::group_sums || kGroup32 || kFp8;
  static constexpr bool kUnquantised = is_plain(kCode);  // 16-bit types, without scales
  // 256 columns leave registers for one accumulator only: it is kept in units of the last scale
  // (mixed/mainloop.cuh). So is that of groups of 32 elements, which then needs no promotion.
  static constexpr bool kRescaled =
      kGroup32 || (kScales == ScaleMode::group_sums && kTileColumns == 256);
  static constexpr bool kDequantises = Policy::kBits < 16 && !kFp8;
  static constexpr uint32_t kRows = 128, kColumns = kTileColumns;
  // Tiles of few columns leave registers and shared memory for two CTAs, which hide each other's
  // latencies. Tiles of 64 columns have two K groups, each with every other stage of W:
  // dequantisation waits for the integer units, and two warps a scheduler are too few to hide that.
  // For weights that take few instructions, with as many stages as fit, it gains nothing
  // (docs/findings/gemm-hopper.md).
  static constexpr uint32_t kBlocks = kColumns < 64 ? 2 : 1;
  static constexpr uint32_t kKGroups =
      kColumns == 64 && kDequantises && is_costly_to_dequantise(kCode) ? 2 : 1;
  static constexpr uint32_t kShared = (228 / kBlocks - 1) * 1024;
  static constexpr uint32_t kLine = 128;                         // bytes of a row of a stage
  static constexpr uint32_t kDepth = kLine * 8 / Policy::kBits;  // elements of K of a stage of W
  static constexpr uint32_t kXDepth = kFp8 ? kLine : kLine / 2;
  static constexpr uint32_t kXSteps = kDepth / kXDepth;
  static constexpr uint32_t kBytes = kRows * kLine, kXBytes = kColumns * kLine;

  // A row of the scale table has a word (slot) for every 16, 32 or 64 elements; for INT4 with
  // promotion its zero points follow the scales. Rows of more than 16 bytes are padded by 16, so
  // that eight of them, or four, fall into different banks. Behind the rows the scales of x, [step
  // of x][column], permuted so that the four columns that a lane has of every 16 are consecutive.
  // With a rescaled accumulator a slot has two words (mixed/rescaled_scales.cuh), and the last unit
  // follows the slots.
  static constexpr uint32_t kSlotDepth = kScales == ScaleMode::e4m3_block          ? 16
                                         : kScales == ScaleMode::ue8m0 || kGroup32 ? 32
                                                                                   : kXDepth;
  static constexpr uint32_t kSlots = kScales == ScaleMode::none ? 0 : kDepth / kSlotDepth;
  static constexpr bool kZeros = kCode == GpuCode::int4;
  static constexpr uint32_t kWords = kZeros || kRescaled ? 2 * kSlots : kSlots;
  static constexpr uint32_t kPadded = kRescaled    ? kWords / 8 * 8 + (kWords % 8 == 0 ? 4 : 12)
                                      : kWords > 4 ? kWords + 4
                                                   : kWords;
  static constexpr uint32_t kScaleRowBytes = kPadded * 4;
  static constexpr uint32_t kLastUnit = kWords * 4;
  static constexpr uint32_t kXScales = kRows * kScaleRowBytes;
  HT_HOST_DEVICE static uint32_t x_scale_index(uint32_t column) {
    return column / 16 * 16 + column % 8 / 2 * 4 + column % 16 / 8 * 2 + column % 2;
  }
  static constexpr uint32_t kScaleTableBytes =
      kXScales + (kScalesAccumulator && !kRescaled ? kXSteps * kColumns * 4 : 0);

  // A warpgroup's staging buffer: columns of 64 FP32 values, padded so that a warp's fragments fall
  // into all banks, and the scales and biases of its rows; or two pieces of 32 columns in 16 bits
  // for TMA stores.
  static constexpr uint32_t kPiece = kColumns < 64 ? 16 : 32, kPieceRow = (64 + 4) * 4;
  static constexpr uint32_t kPieceBytes = 4096;
  static constexpr bool kCanTmaStore = kPiece == 32;
  static constexpr uint32_t kStaging = kCanTmaStore ? 9 * 1024 : 5 * 1024;
  static_assert(kPiece * kPieceRow + 512 <= kStaging);
  static_assert(!kCanTmaStore || 2 * kPieceBytes <= kStaging);

  // The partial accumulators of the second K group, in fragment order, for the first to add.
  static constexpr uint32_t kPartialBytes = kKGroups == 2 ? kRows * kColumns * 4 : 0;

  // 64 KB or more of x in flight; with few columns, what the latency of the loads needs. W gets the
  // rest, up to 128 KB.
  static constexpr uint32_t kXStages = kColumns == 256 ? 4 : kColumns == 64 ? 8 : 6;
  static constexpr uint32_t kLeft =
      kShared - kXStages * kXBytes - 2 * kStaging - kPartialBytes - 512;
  static constexpr uint32_t kFittingStages = kLeft / (kBytes + kScaleTableBytes);
  static constexpr uint32_t kStages =
      (kFittingStages < 8 ? kFittingStages : 8) / kKGroups * kKGroups;
  static_assert(kStages >= 3);

  static constexpr uint32_t kX = kStages * kBytes;
  static constexpr uint32_t kOut = kX + kXStages * kXBytes;
  static constexpr uint32_t kPartials = kOut + 2 * kStaging,
                            kScaleTables = kPartials + kPartialBytes;
  static constexpr uint32_t kBarriers = kScaleTables + kStages * kScaleTableBytes;
  using Ring = pipe::Ring<kStages, kBytes>;
  using XRing = pipe::Ring<kXStages, kXBytes>;
  static constexpr uint32_t kXBarriers = kBarriers + Ring::kSharedBytes;
  static constexpr uint32_t kSharedBytes = kXBarriers + XRing::kSharedBytes;
  static_assert(kSharedBytes <= kShared);

  // Cluster split-K: the partial accumulators take the place of the stages, [column][row].
  static constexpr uint32_t kSumRow = (kRows + 4) * 4;
  static constexpr bool kCanSplit = kColumns * kSumRow <= kOut;
};

}  // namespace halftone::gemm
