// The shared memory of a product on Hopper: a ring of stages of W, one of x, a table beside every
// stage of W for what multiplies its codes or their sums, and room for results on their way out.
//
// A stage of W is 128 rows of 128 bytes as stored, hence 64, 128 or 256 elements of K; one of x is
// kColumns rows of 64 elements. Both lie as the 128-byte swizzle has them. Of a W given as [K, N] a
// stage is two panels, 64 elements of K of 64 outputs each, which wgmma takes as they lie.
#pragma once
#include "ops/gemm/sm90/params.h"
#include "pipe/ring.h"

namespace halftone::gemm {

template <GpuCode kCode, Sm90Scales kScales, uint32_t kTileColumns>
struct Sm90Stages {
  using Policy = CodePolicy<kCode>;
  static constexpr bool kFp8 = kScales == Sm90Scales::fp8;
  static constexpr bool kShort = kScales == Sm90Scales::short_sums;
  static constexpr bool kSums = kScales == Sm90Scales::sums || kShort || kFp8;
  static constexpr bool kPlain = kCode <= GpuCode::bf16;  // numbers, without scales
  // 256 columns leave registers for one set of sums: in units of the last scale (sm90_sums.cuh). So
  // have sums of few elements, which need not be added to others then.
  static constexpr bool kUnits = kShort || (kScales == Sm90Scales::sums && kTileColumns == 256);
  static constexpr bool kExpands = Policy::kBits < 16 && !kFp8;
  static constexpr uint32_t kRows = 128, kColumns = kTileColumns;
  // Few columns leave registers and shared memory for two blocks, which hide each other's waits; of
  // 64 columns for two pairs of warpgroups, which take the stages of W by turns: what expands codes
  // waits for its integer units, and two warps a scheduler are too few to hide that. Of codes that
  // need few instructions, with as many stages as fit, it gains nothing (products-hopper.md).
  static constexpr uint32_t kBlocks = kColumns < 64 ? 2 : 1;
  static constexpr bool kManyInstructions =
      kCode == GpuCode::e4m3 || kCode == GpuCode::e5m2 || kCode == GpuCode::int4;
  static constexpr uint32_t kPairs = kColumns == 64 && kExpands && kManyInstructions ? 2 : 1;
  static constexpr uint32_t kShared = (228 / kBlocks - 1) * 1024;
  static constexpr uint32_t kLine = 128;                         // bytes of a row of a stage
  static constexpr uint32_t kDepth = kLine * 8 / Policy::kBits;  // elements of K of a stage of W
  static constexpr uint32_t kXDepth = kFp8 ? kLine : kLine / 2;
  static constexpr uint32_t kXSteps = kDepth / kXDepth;
  static constexpr uint32_t kBytes = kRows * kLine, kXBytes = kColumns * kLine;

  // A row of the table has a word for every 16, 32 or 64 elements, its slots; for sums of INT4 its
  // zero points follow the scales. Rows of more than 16 bytes lie 16 further apart, so that eight
  // of them, or four, are in different banks. After the rows the scales of x, [step of x][column],
  // of every 16 columns the four that a lane has as neighbours. Of sums in units a slot has two
  // words (sm90_unit_tables.cuh), and what the last unit is follows them.
  static constexpr uint32_t kSlotDepth = kScales == Sm90Scales::pairs              ? 16
                                         : kScales == Sm90Scales::powers || kShort ? 32
                                                                                   : kXDepth;
  static constexpr uint32_t kSlots = kScales == Sm90Scales::none ? 0 : kDepth / kSlotDepth;
  static constexpr bool kZeros = kCode == GpuCode::int4;
  static constexpr uint32_t kWords = kZeros || kUnits ? 2 * kSlots : kSlots;
  static constexpr uint32_t kPadded = kUnits       ? kWords / 8 * 8 + (kWords % 8 == 0 ? 4 : 12)
                                      : kWords > 4 ? kWords + 4
                                                   : kWords;
  static constexpr uint32_t kTableRow = kPadded * 4;
  static constexpr uint32_t kLastUnit = kWords * 4;
  static constexpr uint32_t kXScales = kRows * kTableRow;
  HT_HOST_DEVICE static uint32_t x_place(uint32_t column) {
    return column / 16 * 16 + column % 8 / 2 * 4 + column % 16 / 8 * 2 + column % 2;
  }
  static constexpr uint32_t kTable = kXScales + (kSums && !kUnits ? kXSteps * kColumns * 4 : 0);

  // A warpgroup's results: columns of 64 f32 each, with room between columns so that a warp's
  // fragments lie in all banks, and factors of its rows; or two pieces of 32 columns in 16 bits for
  // the copy engine.
  static constexpr uint32_t kPiece = kColumns < 64 ? 16 : 32, kPieceRow = (64 + 4) * 4;
  static constexpr uint32_t kPieceBytes = 4096;
  static constexpr bool kCanCopyOut = kPiece == 32;
  static constexpr uint32_t kStaging = kCanCopyOut ? 9 * 1024 : 5 * 1024;
  static_assert(kPiece * kPieceRow + 512 <= kStaging);
  static_assert(!kCanCopyOut || 2 * kPieceBytes <= kStaging);

  // The second pair's sums, as its threads have them, for the first to add.
  static constexpr uint32_t kHandover = kPairs == 2 ? kRows * kColumns * 4 : 0;

  // 64 KB of x in flight or more, of few columns what serves the loads' latency; W gets what is
  // left, up to 128 KB.
  static constexpr uint32_t kXStages = kColumns == 256 ? 4 : kColumns == 64 ? 8 : 6;
  static constexpr uint32_t kLeft = kShared - kXStages * kXBytes - 2 * kStaging - kHandover - 512;
  static constexpr uint32_t kFitting = kLeft / (kBytes + kTable);
  static constexpr uint32_t kStages = (kFitting < 8 ? kFitting : 8) / kPairs * kPairs;
  static_assert(kStages >= 3);

  static constexpr uint32_t kX = kStages * kBytes;
  static constexpr uint32_t kOut = kX + kXStages * kXBytes;
  static constexpr uint32_t kOfSecond = kOut + 2 * kStaging, kTables = kOfSecond + kHandover;
  static constexpr uint32_t kBarriers = kTables + kStages * kTable;
  using Ring = pipe::Ring<kStages, kBytes>;
  using XRing = pipe::Ring<kXStages, kXBytes>;
  static constexpr uint32_t kXBarriers = kBarriers + Ring::kSharedBytes;
  static constexpr uint32_t kSharedBytes = kXBarriers + XRing::kSharedBytes;
  static_assert(kSharedBytes <= kShared);

  // Where K is split, the sums of a block take the place of its stages: [column][row].
  static constexpr uint32_t kSumRow = (kRows + 4) * 4;
  static constexpr bool kCanSplit = kColumns * kSumRow <= kOut;
};

}  // namespace halftone::gemm
