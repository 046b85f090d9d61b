// Parameters and shared memory of the grouped 8-bit small-M GEMM on sm_90a.
#pragma once
#include "ops/gemm/sm90/small_m/params.h"

namespace halftone::gemm {

struct Sm90GroupedSmallMParams {
  // static_weights also says that the list of M-chunks was written before the previous kernel
  // started (PDL).
  GpuGemm gemm;
  // One tensor map for all matrices, as in Sm90Params; and x, whose rows are sorted by expert.
  hw::TensorMap w, x;
  const uint8_t* w_first = nullptr;
  uint32_t w_shift = 0;
  uint32_t tiles = 0, steps = 0;  // tiles of a matrix; stages of a tile
  uint32_t log2_groups =
      0;  // with promotion: log2 of the intervals of 128 elements that share a scale
  // With scales in shared memory: bytes of a row, and to the next row.
  uint32_t scale_bytes = 0, scale_pitch = 0;
  uint32_t scales_aligned = 0;  // alignment of their rows: 16, 4 or 2 bytes
};

// Two CTAs an SM, each with a TMA warp beside the consumer warps, and one for scales.
template <GpuCode kCode, ScaleMode kScales, uint32_t kTiles>
struct Sm90GroupedSmallMW8Stages : Sm90SmallMW8Stage<kCode, kScales, kTiles, true> {
  using Stage = Sm90SmallMW8Stage<kCode, kScales, kTiles, true>;
  static constexpr uint32_t kThreads = (Stage::kWarps + (Stage::kSmemScales ? 2 : 1)) * 32;
  static constexpr uint32_t kMinBlocks = 2;

  // Accumulators, scales and biases: double-buffered, so that the epilogue of one tile overlaps the
  // next, where two stages leave the room.
  static constexpr uint32_t kEpilogueBytes = Stage::kAccumulatorBytes + 2 * kSm90ScaleBiasBytes;
  static constexpr uint32_t kMaxBytes = 227 * 1024 / kMinBlocks - 1024 - 1024;
  static constexpr uint32_t kEpilogueBuffers =
      2 * Stage::kBytes + 2 * kEpilogueBytes <= kMaxBytes ? 2 : 1;
  static constexpr uint32_t kFittingStages =
      (kMaxBytes - kEpilogueBuffers * kEpilogueBytes) / Stage::kBytes;
  static constexpr uint32_t kStages = kFittingStages < 4 ? kFittingStages : 4;
  static_assert(kStages >= 2, "one stage is read while another is filled");
  using Ring = pipe::Ring<kStages, Stage::kX + Stage::kDepth / 64 * Stage::kSlab>;

  static constexpr uint32_t kSums = kStages * Stage::kBytes;
  static constexpr uint32_t kScaleBias = kSums + kEpilogueBuffers * Stage::kAccumulatorBytes;
  static constexpr uint32_t kBarriers = kScaleBias + kEpilogueBuffers * 2 * kSm90ScaleBiasBytes;
  static constexpr uint32_t kSharedBytes = kBarriers + Ring::kSharedBytes;
};

}  // namespace halftone::gemm
