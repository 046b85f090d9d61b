// The shared memory of the product of FP8 by FP8 on Hopper: a ring of stages of 128 elements of K,
// x, W and their scales together, and room for results on their way out.
#pragma once
#include "ops/gemm/sm90/epilogue_rows.cuh"
#include "pipe/epilogue.h"
#include "pipe/ring.h"

namespace halftone::gemm {

struct Sm90Fp8Stages {
  static constexpr uint32_t kRows = kSm90Rows, kXRows = 256, kDepth = kSm90Line;
  static constexpr uint32_t kGroups = 2;  // warpgroups that multiply, ...
  static constexpr uint32_t kSubTiles = 2,
                            kWarpgroupRows = 64;  // ... 64 rows of x each, in two turns:
  static constexpr uint32_t kSubTileRows =
      kGroups * kWarpgroupRows;  // both have work where a tile is half full
  static_assert(kSubTiles * kSubTileRows == kXRows);
  static constexpr uint32_t kXBytes = kXRows * kSm90Line, kBytes = kXBytes + kRows * kSm90Line;

  // Scales of the rows of x, then of the runs of W's rows that share one: 32, as gates and their
  // other halves alternate by 32 rows.
  static constexpr uint32_t kRowGroup = 32, kRowGroups = kRows / kRowGroup;
  static constexpr uint32_t kRowGroupScales = kXRows * 4,
                            kScaleBytes = kRowGroupScales + kRowGroups * 4;

  // A warpgroup's results: pieces of 16 rows a warp for the copy engine; or 32 rows of 64 sums,
  // with room between rows so that a warp's pairs lie in all banks, and the factors of both panels.
  using Store = pipe::WarpStore<64, 1>;
  static constexpr uint32_t kPiece = 32, kPieceRow = (64 + 8) * 4, kPanels = kRows / 64;
  static constexpr uint32_t kScaleBias = kPiece * kPieceRow;
  static constexpr uint32_t kStaging = 11 * 1024;
  static_assert(4 * Store::kSharedBytes <= kScaleBias, "the copies and the factors lie together");
  static_assert(kScaleBias + kPanels * kSm90ScaleBiasBytes <= kStaging);

  static constexpr uint32_t kStages = 3;  // four are slower (docs/findings/gemm-hopper.md)
  static constexpr uint32_t kOut = kStages * kBytes;
  static constexpr uint32_t kScales = kOut + kGroups * kStaging;
  static constexpr uint32_t kBarriers = kScales + kStages * kScaleBytes;
  // Stages are released by the blocks of a pair: its copies of x go to both.
  using Ring = pipe::Ring<kStages, kBytes, hw::Scope::cluster>;
  static constexpr uint32_t kSharedBytes = kBarriers + Ring::kSharedBytes;
  static_assert(kSharedBytes <= 227 * 1024);
};

}  // namespace halftone::gemm
