// One row of x times W on Hopper: what the kernel is told, and its shared memory.
#pragma once
#include "hw/copy/tensor_map.h"
#include "ops/gemm/sm90/fused_gemms.h"
#include "pipe/ring.h"

namespace halftone::gemm {

// Scales along K: there are none; NVFP4's, a byte for 16 elements; or any for 32 elements or more:
// powers of two in a byte, f16 or bf16, f32.
enum class Sm90GemvScales : uint8_t { none, pairs, powers, halves, words };

// RMS norm of the row of x before it is multiplied, with weights in bf16.
struct Sm90GemvNorm {
  const uint8_t* weight = nullptr;  // null: there is none
  float eps = 0, offset = 0;        // added to the mean of squares; to each weight
  bool operator==(const Sm90GemvNorm&) const = default;
};

struct Sm90GemvParams {
  GpuGemm gemm;
  Sm90GemvNorm norm;
  // Of each W, or of it and of the other halves of gates, rows as lines of 128 bytes; and of their
  // scales.
  hw::TensorMap w[kSm90MaxFused + 1], scales[kSm90MaxFused + 1];
  Sm90FusedGemm fused_gemms[kSm90MaxFused];
  uint32_t tiles = 0;       // of all
  uint32_t spans = 0;       // lines of a row
  uint32_t log2_group = 0;  // elements that share a scale, ...
  uint32_t log2_rows = 0;   // ... and rows of the tensor; 31: all
  // Where scales are copied with the codes: bytes of a row and span, rows of W that share one, and
  // rows of scales in a copy: 8, or 1 if all of the copy's rows of W share them.
  uint32_t scale_span = 0, scale_shared = 1, scale_rows = 8;
};

inline constexpr uint32_t kSm90GemvKept = 16384;

// How rows of x lie in shared memory, of each span the elements of all rows: as they are, or beside
// codes of 8 bits and f16 in two parts, the second beyond the first's place in the banks.
template <GpuCode kCode>
struct Sm90GemvXLayout {
  static constexpr bool kTwoParts = CodePolicy<kCode>::kBits == 8 || kCode == GpuCode::f16_terms;
  static constexpr uint32_t kSpanBytes = 1024 / CodePolicy<kCode>::kBits * 2;
  HT_HOST_DEVICE static uint32_t second_part(uint32_t k) { return k * 2 + 16; }
  HT_HOST_DEVICE static uint32_t bytes(uint32_t k) {
    return (kTwoParts ? second_part(k) : 0) + k * 2;
  }
};

// A tile is 16 rows of W, or 8 and the other halves of their gates. A stage has as many spans of
// 128 bytes of each row as there are warps to multiply: one each.
//
// `kCopied`: scales come by tensor copies, those of a row and its spans together, rows next to one
// another under the swizzle as wide as they are; else lanes load them.
template <GpuCode kCode, Sm90GemvScales kScales, bool kSmemScales>
struct Sm90GemvStages {
  static constexpr uint32_t kBits = CodePolicy<kCode>::kBits, kRows = 16, kSpan = 128;
  static constexpr uint32_t kDepth = kSpan * 8 / kBits;  // elements of a span
  // Codes of 4 bits are bound by instructions and want every warp that fits; the others by memory,
  // and want what is in flight to belong to one block, as its warps then share x.
  static constexpr uint32_t kWarps = kBits == 4 ? 8 : 16, kMinBlocks = kBits == 4 ? 3 : 1;
  static constexpr uint32_t kStages = kBits == 4 ? 3 : 4;
  // Beside them one that copies and one that makes results of sums.
  static constexpr uint32_t kThreads = kWarps * 32 + 64;

  // Of codes, both halves of the tile: [half][span][8 rows][128 bytes]; then of scales
  // [half][8 rows][of each warp as many bytes, 128 at most].
  static constexpr uint32_t kHalf = kWarps * 8 * kSpan, kScaleLine = 128;
  static constexpr uint32_t kScaleHalf = 8 * kScaleLine;
  static_assert(kSmemScales || kScales != Sm90GemvScales::pairs);
  static_assert(!kSmemScales || kScales != Sm90GemvScales::none);
  static constexpr uint32_t kBytes = 2 * (kHalf + (kSmemScales ? kScaleHalf : 0));
  using Ring = pipe::Ring<kStages, kBytes>;

  // Shared memory: stages; zeros; sums of two tiles; barriers; x.
  static constexpr uint32_t kZeros = kStages * kBytes, kZeroBytes = 256;
  static constexpr uint32_t kSums = kZeros + kZeroBytes, kSumBytes = kWarps * kRows * 4;
  using SumRing = pipe::Ring<2, 0>;
  static constexpr uint32_t kBarriers = kSums + 2 * kSumBytes;
  static constexpr uint32_t kSumBarriers = kBarriers + Ring::kSharedBytes;
  static constexpr uint32_t kXRead = kSumBarriers + SumRing::kSharedBytes;
  // The exponent of two of x, maxima of warps, x itself.
  static constexpr uint32_t kExponent = kXRead + 8, kMaxima = kExponent + 4, kX = kBarriers + 256;
  static_assert(kMaxima + kWarps * 4 <= kX && kX % 128 == 0);

  HT_HOST_DEVICE static uint32_t shared_bytes(uint32_t k) {
    return kX + Sm90GemvXLayout<kCode>::bytes(k);
  }
};

}  // namespace halftone::gemm
