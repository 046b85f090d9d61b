// Shared memory of the grouped 4-bit small-M GEMM on sm_90a. Its parameters are
// Sm90GroupedSmallMParams.
#pragma once
#include "ops/gemm/sm90/small_m/w4_stages.h"

namespace halftone::gemm {

// Two CTAs an SM, each with four warps beside the consumers: one for TMA, one for scales where
// these are in shared memory, and two or three that permute x.
template <ScaleMode kScales, uint32_t kColumns>
struct Sm90GroupedSmallMW4Stages : Sm90SmallMW4Stage<kScales, kColumns, true> {
  using Stage = Sm90SmallMW4Stage<kScales, kColumns, true>;
  static constexpr uint32_t kLines = 1;  // of a row
  static constexpr uint32_t kPermuteWarps = Stage::kSmemScales ? 2 : 3;
  static constexpr uint32_t kMinBlocks = 2;
  static constexpr pipe::Roles kRoles{{{"multiply", Stage::kWarps, 96}, {"load", 4, 48}}};
  static constexpr uint32_t kThreads = kRoles.threads();
  static constexpr uint32_t kMaxBytes = 227 * 1024 / kMinBlocks - 1024 - 1024;
  static constexpr uint32_t kFittingStages = kMaxBytes / Stage::kBytes;
  static constexpr uint32_t kStages = kFittingStages < 4 ? kFittingStages : 4;
  static_assert(kStages >= 2, "one stage is read while another is filled");
  static_assert(Stage::kBytes % 1024 == 0, "the swizzle is one of addresses");
  using Ring = pipe::Ring<kStages, Stage::kScaleOffset>;

  // Of every stage: x is permuted; and whether BF16 can hold its UE8M0 scales.
  static constexpr uint32_t kBarriers = kStages * Stage::kBytes;
  static constexpr uint32_t kPermuted = kBarriers + Ring::kSharedBytes;
  static constexpr uint32_t kFit = kPermuted + kStages * 8;
  static constexpr uint32_t kSharedBytes = kFit + kStages * 4;
};

}  // namespace halftone::gemm
