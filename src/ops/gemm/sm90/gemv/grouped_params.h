// Parameters and shared memory of the grouped GEMV on sm_90a.
#pragma once
#include "ops/gemm/sm90/gemv/params.h"

namespace halftone::gemm {

struct Sm90GroupedGemvParams {
  // static_weights also says that the list of M-chunks was written before the previous kernel
  // started (PDL).
  GpuGemm gemm;
  // One tensor map for all matrices, as in Sm90Params.
  hw::TensorMap w;
  const uint8_t* w_first = nullptr;
  uint32_t w_shift = 0;
  hw::TensorMap scales;  // for `lines`: three-dimensional, like w
  const uint8_t* first_scale = nullptr;
  uint32_t scale_shift = 0;
  uint32_t scale_span = 0;                 // bytes of a row and span
  uint32_t scale_line = 0;                 // for `lines`, in shared memory: 64 or 128 bytes
  uint32_t scale_rows = 0;                 // for `rows`: bytes of the rows of half a tile, ...
  uint32_t scale_room = 0;                 // ... and their offset in shared memory
  uint32_t spans = 0;                      // lines of a row of W
  uint32_t log2_group = 0, log2_rows = 0;  // as in Sm90GemvParams
  // Bytes from the scales of a tile's rows to those of the next tile; 0: the distance is not
  // constant.
  uint32_t scale_tile = 0;
  uint32_t tiles = 0;                 // of a matrix
  uint32_t warps_k = 0, warps_n = 0;  // of a tile: along K, and along rows of W
  uint32_t x_elements = 0;            // elements of all rows of x that shared memory has room for
};

// A tile is 16 rows of W for each of warps_n warps, half of them the up halves of gates. A stage
// has a span of 128 bytes of them for each of warps_k warps.
template <GpuCode kCode, ScaleCopy kScaleMode>
struct Sm90GroupedGemvStages {
  using XLayout = Sm90GemvXLayout<kCode>;
  static constexpr uint32_t kBits = CodePolicy<kCode>::kBits, kSpan = 128;
  static constexpr uint32_t kDepth = kSpan * 8 / kBits;
  static constexpr uint32_t kMaxRows = 4;  // of x
  // 12 warps have the divisors that rows of 3, 6, 8, 12 and 16 spans want. Two CTAs fill the
  // registers of an SM, and one computes while the other stages rows of x.
  static constexpr uint32_t kWarps = 12, kMinBlocks = 2, kStages = 3;
  // Two more: a producer and an epilogue warp.
  static constexpr uint32_t kThreads = kWarps * 32 + 64;

  // Both halves of the tile: [half][span][rows][128 bytes]; then scales in lines,
  // [half][rows][line].
  static constexpr uint32_t kHalf = kWarps * 8 * kSpan;
  static constexpr uint32_t kScaleHalf = kScaleMode == ScaleCopy::tensor_lines ? 2048 : 0;
  static constexpr uint32_t kBytes = 2 * (kHalf + kScaleHalf);
  // Tiles whose rows of scales are in shared memory at once: one more than there are stages, so
  // that whoever may fill a slot finds it free.
  static constexpr uint32_t kScaleTiles = kStages + 1;
  using Ring = pipe::Ring<kStages, kBytes>;

  // Shared memory: stages; zeros; accumulators of two tiles, [row of x][warp along K][row of W],
  // with the exponents of the rows of x; barriers; of the chunk, where scales start and those
  // exponents; maxima of warps; x.
  static constexpr uint32_t kZeros = kStages * kBytes,
                            kZeroBytes = 256 + (kMaxRows - 1) * XLayout::kSpanBytes;
  static constexpr uint32_t kSumRow = kWarps * 16 * 4, kSumExponents = kMaxRows * kSumRow;
  static constexpr uint32_t kSums = kZeros + kZeroBytes, kSumBytes = kSumExponents + 16;
  using SumRing = pipe::Ring<2, 0>;
  static constexpr uint32_t kBarriers = kSums + 2 * kSumBytes;
  static constexpr uint32_t kSumBarriers = kBarriers + Ring::kSharedBytes;
  static constexpr uint32_t kXRead = kSumBarriers + SumRing::kSharedBytes;
  static constexpr uint32_t kScales = (kXRead + 8 + 15) / 16 * 16;
  static constexpr uint32_t kExponents = kScales + 32;
  static constexpr uint32_t kMaxima = kExponents + kMaxRows * 4;
  static_assert(kScales % 16 == 0);
  static constexpr uint32_t kX = (kMaxima + kWarps * 4 + 127) / 128 * 128;

  // Elements of a padded row of `k`: the padding is zeros.
  HT_HOST_DEVICE static uint32_t padded(uint32_t k) { return (k + kDepth - 1) / kDepth * kDepth; }
};

}  // namespace halftone::gemm
