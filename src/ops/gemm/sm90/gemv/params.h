// Parameters and shared memory of the GEMV on sm_90a.
#pragma once
#include "hw/copy/tensor_map.h"
#include "ops/gemm/scale_mode.h"
#include "ops/gemm/sm90/fused_gemms.h"
#include "pipe/ring.h"

namespace halftone::gemm {

// A fused RMS norm of the row of x, with weights in BF16.
struct Sm90GemvNorm {
  const uint8_t* weight = nullptr;  // null: no norm
  float eps = 0, offset = 0;        // added to the mean of squares; to each weight
  bool operator==(const Sm90GemvNorm&) const = default;
};

struct Sm90GemvParams {
  GpuGemm gemm;
  Sm90GemvNorm norm;
  // Tensor maps of each fused W, or of W and the up half of a gate, rows as lines of 128 bytes; and
  // of their scales.
  hw::TensorMap w[kSm90MaxFused + 1], scales[kSm90MaxFused + 1];
  Sm90FusedGemm fused_gemms[kSm90MaxFused];
  uint32_t tiles = 0;       // of all matrices
  uint32_t spans = 0;       // lines of a row
  uint32_t log2_group = 0;  // elements that share a scale, ...
  uint32_t log2_rows = 0;   // ... and rows of the tensor; 31: all
  // With scales copied by TMA beside the weights: bytes of a row and span, rows of W that share a
  // scale, and rows of scales in a copy: 8, or 1 if all of the copy's rows of W share them.
  uint32_t scale_span = 0, scale_shared = 1, scale_rows = 8;
};

inline constexpr uint32_t kSm90GemvKept = 16384;

// How rows of x lie in shared memory, span by span the elements of all rows: as they are, or beside
// 8-bit and FP16 weights in two parts, the second offset from the first's banks.
template <GpuCode kCode>
struct Sm90GemvXLayout {
  static constexpr bool kTwoParts = CodePolicy<kCode>::kBits == 8 || kCode == GpuCode::f16_terms;
  static constexpr uint32_t kSpanBytes = 1024 / CodePolicy<kCode>::kBits * 2;
  HT_HOST_DEVICE static uint32_t second_part(uint32_t k) { return k * 2 + 16; }
  HT_HOST_DEVICE static uint32_t bytes(uint32_t k) {
    return (kTwoParts ? second_part(k) : 0) + k * 2;
  }
};

// A tile is 16 rows of W, or 8 and the up halves of their gates. A stage has as many spans of 128
// bytes of each row as there are consumer warps: one each.
//
// `kSmemScales`: scales come by TMA, those of a row and its spans together, consecutive rows under
// a swizzle as wide as they are; else lanes load them.
template <GpuCode kCode, ScaleMode kScales, bool kSmemScales>
struct Sm90GemvStages {
  static constexpr uint32_t kBits = CodePolicy<kCode>::kBits, kRows = 16, kSpan = 128;
  static constexpr uint32_t kDepth = kSpan * 8 / kBits;  // elements of a span
  // 4-bit weights are bound by instructions and want every warp that fits; the others by memory,
  // and want the bytes in flight to belong to one CTA, whose warps share x.
  static constexpr uint32_t kWarps = kBits == 4 ? 8 : 16, kMinBlocks = kBits == 4 ? 3 : 1;
  static constexpr uint32_t kStages = kBits == 4 ? 3 : 4;
  // Two more: a producer and an epilogue warp.
  static constexpr uint32_t kThreads = kWarps * 32 + 64;

  // Weights, both halves of the tile: [half][span][8 rows][128 bytes]; then scales [half][8
  // rows][as many bytes of each warp, 128 at most].
  static constexpr uint32_t kHalf = kWarps * 8 * kSpan, kScaleLine = 128;
  static constexpr uint32_t kScaleHalf = 8 * kScaleLine;
  static_assert(kSmemScales || kScales != ScaleMode::e4m3_block);
  static_assert(!kSmemScales || kScales != ScaleMode::none);
  static constexpr uint32_t kBytes = 2 * (kHalf + (kSmemScales ? kScaleHalf : 0));
  using Ring = pipe::Ring<kStages, kBytes>;

  // Shared memory: stages; zeros; accumulators of two tiles; barriers; x.
  static constexpr uint32_t kZeros = kStages * kBytes, kZeroBytes = 256;
  static constexpr uint32_t kSums = kZeros + kZeroBytes, kSumBytes = kWarps * kRows * 4;
  using SumRing = pipe::Ring<2, 0>;
  static constexpr uint32_t kBarriers = kSums + 2 * kSumBytes;
  static constexpr uint32_t kSumBarriers = kBarriers + Ring::kSharedBytes;
  static constexpr uint32_t kXRead = kSumBarriers + SumRing::kSharedBytes;
  // The exponent that scales x, maxima of warps, x itself.
  static constexpr uint32_t kExponent = kXRead + 8, kMaxima = kExponent + 4, kX = kBarriers + 256;
  static_assert(kMaxima + kWarps * 4 <= kX && kX % 128 == 0);

  HT_HOST_DEVICE static uint32_t shared_bytes(uint32_t k) {
    return kX + Sm90GemvXLayout<kCode>::bytes(k);
  }
};

}  // namespace halftone::gemm
