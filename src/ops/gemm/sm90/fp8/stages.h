// The shared memory of the FP8 GEMM on sm_90a: a ring of stages of 128 elements of K, with x, W and
// their scales in one stage, and staging buffers for the epilogue.
#pragma once
#include "ops/gemm/sm90/epilogue_rows.cuh"
#include "pipe/epilogue.h"
#include "pipe/ring.h"

namespace halftone::gemm {

struct Sm90Fp8Stages {
  static constexpr uint32_t kRows = kSm90Rows, kXRows = 256, kDepth = kSm90Line;
  static constexpr uint32_t kGroups = 2;  // consumer warpgroups, ...
  static constexpr uint32_t kSubTiles = 2,
                            kWarpgroupRows = 64;  // ... 64 rows of x each, in two sub-tiles:
  static constexpr uint32_t kSubTileRows =
      kGroups * kWarpgroupRows;  // both have work where a tile is half full
  static_assert(kSubTiles * kSubTileRows == kXRows);
  static constexpr uint32_t kXBytes = kXRows * kSm90Line, kBytes = kXBytes + kRows * kSm90Line;

  // Scales of the rows of x, then of the row groups of W that share one: 32 rows, as gates and
  // their up halves alternate by 32.
  static constexpr uint32_t kRowGroup = 32, kRowGroups = kRows / kRowGroup;
  static constexpr uint32_t kRowGroupScales = kXRows * 4,
                            kScaleBytes = kRowGroupScales + kRowGroups * 4;

  // A warpgroup's staging buffer: pieces of 16 rows a warp for TMA stores; or 32 rows of 64 sums,
  // padded so that a warp's pairs fall into all banks, and the scales and biases of both panels.
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
  // Both CTAs of a cluster release a stage: the copies of x are multicast.
  using Ring = pipe::Ring<kStages, kBytes, hw::Scope::cluster>;
  static constexpr uint32_t kSharedBytes = kBarriers + Ring::kSharedBytes;
  static_assert(kSharedBytes <= 227 * 1024);
};

}  // namespace halftone::gemm
