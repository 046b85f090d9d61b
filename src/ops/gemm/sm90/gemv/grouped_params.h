// A few rows of x for each expert times its W on Hopper: what the kernel is told, and its shared
// memory.
#pragma once
#include "ops/gemm/sm90/gemv/params.h"

namespace halftone::gemm {

// How scales along K, if there are any, come to the warps: lanes load them; in lines of as many
// bytes as the spans of a stage have, by tensor copies with its codes; or the rows of a tile as
// they lie, 16 bytes or not, by bulk copies with its first stage. What lanes load waits in the
// memory's queues behind the copies of W that were asked for before.
enum class Sm90ExpertScales : uint8_t { loaded, lines, rows };

struct Sm90GroupedGemvParams {
  // Its static_weights also says that the list of parts had been written before the kernel ahead
  // began its turn.
  GpuGemm gemm;
  // All matrices in one map, as in Sm90Params.
  hw::TensorMap w;
  const uint8_t* w_first = nullptr;
  uint32_t w_shift = 0;
  hw::TensorMap scales;  // of `lines`, in three dimensions as w
  const uint8_t* first_scale = nullptr;
  uint32_t scale_shift = 0;
  uint32_t scale_span = 0;                 // copied bytes of a row and span
  uint32_t scale_line = 0;                 // of `lines`, in shared memory: 64 or 128 bytes
  uint32_t scale_rows = 0;                 // of `rows`: bytes of the rows of half a tile, ...
  uint32_t scale_room = 0;                 // ... and where they lie in shared memory
  uint32_t spans = 0;                      // lines of a row of W
  uint32_t log2_group = 0, log2_rows = 0;  // as in Sm90GemvParams
  // Bytes from the scales of a tile's rows to those of the next tile; 0: they are no such steps.
  uint32_t scale_tile = 0;
  uint32_t tiles = 0;                 // of a matrix
  uint32_t warps_k = 0, warps_n = 0;  // of a tile: along K, and along rows of W
  uint32_t x_elements = 0;            // of all rows of x that have room in shared memory
};

// A tile is 16 rows of W for each of warps_n, half of them the other halves of gates. A stage has a
// span of 128 bytes of them for each of warps_k.
template <GpuCode kCode, Sm90ExpertScales kScaleMode>
struct Sm90GroupedGemvStages {
  using XLayout = Sm90GemvXLayout<kCode>;
  static constexpr uint32_t kBits = CodePolicy<kCode>::kBits, kSpan = 128;
  static constexpr uint32_t kDepth = kSpan * 8 / kBits;
  static constexpr uint32_t kMaxRows = 4;  // of x
  // 12 has the divisors that rows of 3, 6, 8, 12 and 16 spans want. Two blocks fill the chip's
  // registers, and one multiplies while the other brings rows of x.
  static constexpr uint32_t kWarps = 12, kMinBlocks = 2, kStages = 3;
  // Beside them one that copies and one that makes results of sums.
  static constexpr uint32_t kThreads = kWarps * 32 + 64;

  // Both halves of the tile: [half][span][rows][128 bytes]; then scales in lines,
  // [half][rows][line].
  static constexpr uint32_t kHalf = kWarps * 8 * kSpan;
  static constexpr uint32_t kScaleHalf = kScaleMode == Sm90ExpertScales::lines ? 2048 : 0;
  static constexpr uint32_t kBytes = 2 * (kHalf + kScaleHalf);
  // So many tiles have their rows of scales in shared memory at once: one more than there are
  // stages, so that whoever may fill a place finds it left.
  static constexpr uint32_t kScaleTiles = kStages + 1;
  using Ring = pipe::Ring<kStages, kBytes>;

  // Shared memory: stages; zeros; sums of two tiles, [row of x][warp along K][row of W], with the
  // exponents of two of the rows of x; barriers; of the part, where scales lie and those exponents;
  // maxima of warps; x.
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

  // Elements of a row of `k`: those that it has not are zeros.
  HT_HOST_DEVICE static uint32_t padded(uint32_t k) { return (k + kDepth - 1) / kDepth * kDepth; }
};

}  // namespace halftone::gemm
