// GEMM and GEMV of BF16 activations by the BF16 dot-product instruction (VDPBF16PS), two elements
// of K a lane. Every weight of 8 bits or fewer is exact in BF16, and BF16 products are exact in
// FP32, so only the order of summation differs from the FP32 kernels, and that VDPBF16PS reads and
// writes subnormals as zero: operands below 2^-126 count as 0, and so do sums that stay below it.
#if defined(__AVX512BF16__) && defined(__AVX512VBMI__)

// GCC 12 takes the undefined operand of its own AVX-512 intrinsics for a mistake.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include "ops/gemm/cpu/epilogue.h"
#include "ops/gemm/cpu/gemv.h"
#include "ops/gemm/cpu/pack_avx512.h"

namespace halftone::HALFTONE_LEVEL {

namespace {

using gemm::Kernels;

constexpr int kChunk = 16 * kLanes;

struct Bf16 {
  typedef words Vector;
  // 16 elements a lane, so that the multiplication by scales costs one slot in nine.
  static constexpr int kPerLane = 16;
  static constexpr int kSteps = 8;
  static constexpr int kBlockChunks = 8;  // a strip takes 32 KiB
  // Scales, 4 KiB of a strip, and 12 KiB of x would fill the L1 cache to the last line.
  static constexpr int kScaledBlockChunks = kBlockChunks / 2;

  HALFTONE_INLINE static f32v multiply_add(words w, words x, f32v acc) {
    return bits_as<f32v>(
        _mm512_dpbf16_ps(bits_as<__m512>(acc), bits_as<__m512bh>(w), bits_as<__m512bh>(x)));
  }

  // Vectors 4 part .. 4 part + 3 of a chunk: quantised values as expand_pairs orders them, BF16 in
  // natural order.
  template <Code C>
  HALFTONE_INLINE static void expand(const uint8_t* p, const int32_t* zeros, int part,
                                     words out[4]) {
    if constexpr (C == Code::bf16) {
      for (int j = 0; j < 4; ++j) out[j] = load_raw<words>(p + 64 * (4 * part + j));
    } else if constexpr (C == Code::int8_rows) {
      for (int i = 0; i < 4; i += 2) {
        decode_pairs_x2<Format::int8>(p, 32 * (4 * part + i), out + i);
      }
    } else {
      for (int pair = 0; pair < 2; ++pair) expand_pairs<C>(p, zeros, part, pair, out + 2 * pair);
    }
  }
};
static_assert(Bf16::kBlockChunks * Bf16::kSteps * sizeof(words) <= gemm::kBlockBytes);

// As expand_pairs orders the elements of W.
constexpr StepOrder<uint16_t> kOrder([](int i, int j) {
  return 16 * (i / 2) + 8 * (j / 4) + 4 * (i % 2) + j % 4;
});

void pack(const void* x, Format, bool octets, int64_t k, void* out, int64_t stride) {
  const auto* from = static_cast<const uint16_t*>(x);
  for (int64_t k0 = 0, chunk = 0; k0 < k; k0 += kChunk, ++chunk) {
    uint16_t last[kChunk] = {};
    const uint16_t* values = from + k0;
    if (k - k0 < kChunk) {
      std::memcpy(last, values, static_cast<size_t>(k - k0) * 2);
      values = last;
    }
    auto* to = reinterpret_cast<uint16_t*>(static_cast<unsigned char*>(out) +
                                           chunk / Bf16::kBlockChunks * stride) +
               chunk % Bf16::kBlockChunks * kChunk;
    if (octets) {
      pack_steps(values, kOrder, to);
    } else {
      std::memcpy(to, values, sizeof last);
    }
  }
}

void gemv(const Weights& w, int64_t n0, int64_t n1, const gemm::GemvArgs& args) {
  if (w.code == Code::bf16) return gemv_code<Bf16, Code::bf16, false>(w, n0, n1, args);
  if (w.code == Code::int8_rows) return gemv_code<Bf16, Code::int8_rows, false>(w, n0, n1, args);
  gemv_octets<Bf16>(w, n0, n1, args);
}

void expand(const Weights& w, int64_t n0, int64_t rows, int64_t chunk0, int64_t count, void* strip,
            float* scales) {
  if (w.code == Code::bf16) {
    return dequantise_rows<Bf16, Code::bf16>(w, n0, rows, chunk0, count, strip, scales);
  }
  if (w.code == Code::int8_rows) {
    return dequantise_rows<Bf16, Code::int8_rows>(w, n0, rows, chunk0, count, strip, scales);
  }
  with_octet_code(w.code, [&]<Code C>() {
    dequantise_rows<Bf16, C>(w, n0, rows, chunk0, count, strip, scales);
  });
}

}  // namespace

extern const Kernels bf16_kernels;
const Kernels bf16_kernels = {kLanes, kChunk,       Bf16::kBlockChunks, Bf16::kScaledBlockChunks,
                              2,      kTileColumns, Format::bf16,       pack,
                              gemv,   expand,       gemm_pass<Bf16>,    epilogue_row};

}  // namespace halftone::HALFTONE_LEVEL

#endif
