// Parameters and shared memory of the 8-bit small-M GEMM on sm_90a.
#pragma once
#include "hw/copy/tensor_map.h"
#include "ops/gemm/sm90/epilogue_rows.cuh"
#include "ops/gemm/sm90/fused_gemms.h"
#include "pipe/ring.h"

namespace halftone::gemm {

struct Sm90SmallMParams {
  GpuGemm gemm;
  // Tensor maps of each fused W and its scales; or of W and the up half of a gate, which lie beside
  // each other in a tile.
  hw::TensorMap w[kSm90MaxFused + 1], scales[kSm90MaxFused + 1], x;
  Sm90FusedGemm fused_gemms[kSm90MaxFused];
  uint32_t log2_groups =
      0;  // with promotion: log2 of the intervals of 128 elements that share a scale
};

inline constexpr uint32_t kSm90SmallMDepth = 256;  // elements of K of a stage

// A tile is 128 rows of W (sm90/tile.cuh) by 8 kTiles rows of x. A stage has 256 elements of K: of
// W [32 rows][128 bytes of a row][row], of x [64 elements][row], both in lines of 128 bytes under
// the swizzle; then, for scale modes that multiply weights, kScalePitch bytes of scales a row: TMA
// boxes of 16 bytes, or in grouped GEMMs what a warp copies.
template <GpuCode kCode, ScaleMode kScales, uint32_t kTiles, bool kExperts = false>
struct Sm90SmallMW8Stage {
  static_assert(CodePolicy<kCode>::kBits == 8);
  static constexpr ScaleMode kScaleMode = kScales;
  static constexpr uint32_t kXTiles = kTiles, kLine = 128;
  static constexpr uint32_t kRows = 128, kColumns = 8 * kTiles;
  static constexpr uint32_t kDepth = kSm90SmallMDepth;
  static constexpr uint32_t kLines = kDepth / kLine;               // of a row
  static constexpr uint32_t kRowBlockBytes = 32 * kLines * kLine;  // bytes of 32 rows
  static constexpr uint32_t kSlab = kColumns * kLine;              // bytes of 64 elements of x
  static constexpr uint32_t kX = kRows / 32 * kRowBlockBytes,
                            kScaleOffset = kX + kDepth / 64 * kSlab;
  static constexpr bool kSmemScales = kScales == ScaleMode::ue8m0;
  static constexpr uint32_t kScaleBytes = kDepth / 32, kScalePitch = kExperts ? kScaleBytes : 16;
  static constexpr uint32_t kBytes = kScaleOffset + (kSmemScales ? kRows * kScalePitch : 0);

  // Four warps along the rows, 32 each, by two along K.
  static constexpr uint32_t kWarps = 8;

  // Accumulators of a tile: [row of x][row of W], in lines that start four banks apart.
  static constexpr uint32_t kAccumulatorRow = (kRows + 4) * 4,
                            kAccumulatorBytes = kColumns * kAccumulatorRow;
};

// Two CTAs an SM.
template <GpuCode kCode, ScaleMode kScales, uint32_t kTiles>
struct Sm90SmallMW8Stages : Sm90SmallMW8Stage<kCode, kScales, kTiles> {
  using Stage = Sm90SmallMW8Stage<kCode, kScales, kTiles>;
  static constexpr uint32_t kThreads = Stage::kWarps * 32, kMinBlocks = 2;
  static constexpr uint32_t kMaxBytes = 227 * 1024 / kMinBlocks - 1024 - 1024;
  static constexpr uint32_t kFittingStages = kMaxBytes / Stage::kBytes;
  static constexpr uint32_t kStages = kFittingStages < 4 ? kFittingStages : 4;
  static_assert(kStages >= 2, "one stage is read while another is filled");
  using Ring = pipe::Ring<kStages, Stage::kBytes>;

  // In the epilogue accumulators take the place of the stages.
  static_assert(Stage::kAccumulatorBytes <= kStages * Stage::kBytes);
  static constexpr uint32_t kScaleBias = kStages * Stage::kBytes;
  static constexpr uint32_t kBarriers = kScaleBias + 2 * kSm90ScaleBiasBytes;
  // Which fused W the CTA has, for the producer thread: registers are short.
  static constexpr uint32_t kMatrix = kBarriers + Ring::kSharedBytes;
  static constexpr uint32_t kSharedBytes = kMatrix + 16;
};

}  // namespace halftone::gemm
