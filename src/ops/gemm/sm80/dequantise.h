// Dequantisation for mma.sync: eight consecutive packed weights of a lane to four pairs of BF16,
// exactly. A value that BF16 cannot hold is the sum of two or three that it can, its terms; each is
// multiplied separately.
//
// A policy has: kBits of a value; kType of the MMA; kHalfSums, whether FP16 accumulates between
// promotions; kTerms; kPairExtent, the elements that share the pair which `expand` needs beside the
// values, of a scale (16) or of a zero point (32), or 0; kFactor, the alpha that undoes its
// scaling; and
//   expand(codes, scale, pairs): pairs[term], the largest term last,
//   arrange(x): the eight elements of x in the order of the pairs.
#pragma once
#include "hw/bits.h"
#include "hw/convert/convert.h"
#include "hw/pair.h"
#include "hw/present.h"
#include "hw/types.h"

namespace halftone::gemm {

// X(name, bits) of the types of weights: floats without scales along K, and quantised values of 8
// and 4 bits. Instances are made from these lists. `f16_terms`: FP16 as two BF16 terms.
// `dequantised`: any weight that BF16 holds exactly, scales included, and that has no type of its
// own: it becomes BF16 on its way to shared memory.
#define HALFTONE_GPU_CODES_W16(X) \
  X(f32, 32) X(f16, 16) X(f16_terms, 16) X(bf16, 16) X(dequantised, 16)
#define HALFTONE_GPU_CODES_W8(X) X(e4m3, 8) X(e5m2, 8) X(int8, 8)
#define HALFTONE_GPU_CODES_W4(X) X(e2m1, 4) X(int4, 4)
// And FP16 with FP16 accumulation, of large tiles alone.
#define HALFTONE_GPU_CODES(X) \
  HALFTONE_GPU_CODES_W16(X) HALFTONE_GPU_CODES_W8(X) HALFTONE_GPU_CODES_W4(X) X(f16_sums, 16)

enum class GpuCode : uint8_t {
#define HALFTONE_X(name, bits) name,
  HALFTONE_GPU_CODES(HALFTONE_X)
#undef HALFTONE_X
};
constexpr uint32_t bits_of(GpuCode code) {
  switch (code) {
#define HALFTONE_X(name, bits) \
  case GpuCode::name:          \
    return bits;
    HALFTONE_GPU_CODES(HALFTONE_X)
#undef HALFTONE_X
  }
  return 0;
}
// Floats, without scales along K.
constexpr bool is_plain(GpuCode code) { return bits_of(code) >= 16; }

template <GpuCode>
struct CodePolicy;

struct PlainOrder {
  static constexpr bool kHalfSums = false;
  static constexpr uint32_t kUnscaled = 0;  // unused
  HT_DEVICE static void arrange(uint32_t (&)[4]) {}
};

// a * multiplier + c in BF16x2, exact wherever it is used here.
HT_DEVICE uint32_t fma_bf16x2(uint32_t a, uint32_t multiplier, uint32_t c) {
  return hw::fma_pair<hw::Type::bf16x2>(a, multiplier, c);
}
inline constexpr uint32_t kMinusZeros = 0x80008000;  // adding it changes nothing
HT_HOST_DEVICE uint32_t twice(uint32_t half) { return half | half << 16; }

// x = terms[2] + terms[1] + terms[0], the upper 8 significant bits first: bits that are cut off
// make up the next term. Infinities and NaN are the last term alone.
template <uint32_t kTerms>
HT_DEVICE void split_pair(float low, float high, uint32_t (&terms)[kTerms]) {
  const auto finite = [](float x) {
    return (std::bit_cast<uint32_t>(x) & 0x7f800000u) != 0x7f800000u;
  };
  HT_UNROLL
  for (uint32_t t = kTerms; t-- > 0;) {
    const uint32_t a = std::bit_cast<uint32_t>(low), b = std::bit_cast<uint32_t>(high);
    terms[t] = hw::prmt(a, b, 0x7632);
    // A NaN may have all its bits in the half that is cut off.
    if (low != low) terms[t] |= 0x00000040;
    if (high != high) terms[t] |= 0x00400000;
    low = finite(low) ? low - std::bit_cast<float>(a & 0xffff0000u) : 0;
    high = finite(high) ? high - std::bit_cast<float>(b & 0xffff0000u) : 0;
  }
}

template <>
struct CodePolicy<GpuCode::bf16> : PlainOrder {
  static constexpr uint32_t kBits = 16, kTerms = 1;
  static constexpr hw::Type kType = hw::Type::bf16;
  static constexpr uint32_t kPairExtent = 0;
  HT_DEVICE static void expand(const uint32_t (&codes)[4], uint32_t, uint32_t (&pairs)[1][4]) {
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) pairs[0][i] = codes[i];
  }
};

// With activations in FP16.
template <>
struct CodePolicy<GpuCode::f16> : CodePolicy<GpuCode::bf16> {
  static constexpr hw::Type kType = hw::Type::f16;
};

template <>
struct CodePolicy<GpuCode::dequantised> : CodePolicy<GpuCode::bf16> {};

template <>
struct CodePolicy<GpuCode::f16_sums> : CodePolicy<GpuCode::f16> {
  static constexpr bool kHalfSums = true;
};

template <>
struct CodePolicy<GpuCode::f16_terms> : PlainOrder {
  static constexpr uint32_t kBits = 16, kTerms = 2;
  static constexpr hw::Type kType = hw::Type::bf16;
  static constexpr uint32_t kPairExtent = 0;
  HT_DEVICE static void expand(const uint32_t (&codes)[4], uint32_t, uint32_t (&pairs)[2][4]) {
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      uint32_t terms[2];
      split_pair(hw::cvt_f32_f16(static_cast<uint16_t>(codes[i])),
                 hw::cvt_f32_f16(static_cast<uint16_t>(codes[i] >> 16)), terms);
      pairs[0][i] = terms[0], pairs[1][i] = terms[1];
    }
  }
};

template <>
struct CodePolicy<GpuCode::f32> : PlainOrder {
  static constexpr uint32_t kBits = 32, kTerms = 3;
  static constexpr hw::Type kType = hw::Type::bf16;
  static constexpr uint32_t kPairExtent = 0;
  HT_DEVICE static void expand(const uint32_t (&codes)[8], uint32_t, uint32_t (&pairs)[3][4]) {
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      uint32_t terms[3];
      split_pair(std::bit_cast<float>(codes[2 * i]), std::bit_cast<float>(codes[2 * i + 1]), terms);
      HT_UNROLL
      for (uint32_t t = 0; t < 3; ++t) pairs[t][i] = terms[t];
    }
  }
};

// FP8: exponent and mantissa are moved to where BF16 has them, and a power of two corrects the
// bias, subnormals included. kHighest: the smallest magnitude that is not finite.
template <hw::Type kFp8, uint32_t kShift, uint32_t kMagnitude, uint32_t kBias, uint32_t kHighest>
struct Fp8Policy : PlainOrder {
  static constexpr uint32_t kUnscaled = 0x3f803f80;
  static constexpr uint32_t kBits = 8, kTerms = 1;
  static constexpr hw::Type kType = hw::Type::bf16;
  static constexpr uint32_t kPairExtent = 0;
  // Sets bits of 0x80808080 where one of four values is not finite: an addition flips the sign, and
  // carries into the next byte only where it has done so.
  HT_DEVICE static uint32_t special(uint32_t codes) {
    return codes ^ (codes + (0x80 - kHighest) * 0x01010101u);
  }
  // A value beside eight copies of its sign is shifted up until one of these is the sign bit.
  HT_DEVICE static void expand_finite(const uint32_t (&codes)[2], uint32_t,
                                      uint32_t (&pairs)[1][4]) {
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t signs = hw::prmt(codes[i / 2], 0, i % 2 == 0 ? 0x9180 : 0xb3a2);
      const uint32_t bits = signs << (8 - kShift) & twice(0x8000 | kMagnitude);
      pairs[0][i] = fma_bf16x2(bits, twice(kBias), kMinusZeros);
    }
  }
  // By conversion instructions where the architecture has them: half the instructions, and none in
  // the pipe of shifts and masks.
  HT_DEVICE static void expand(const uint32_t (&codes)[2], uint32_t, uint32_t (&pairs)[1][4]) {
    if constexpr (hw::ThisTarget::has(hw::Feature::fp8_convert)) {
      if (hw::present<hw::Feature::fp8_convert>()) {
        HT_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
          const auto two = static_cast<uint16_t>(codes[i / 2] >> 16 * (i % 2));
          const uint32_t halves = hw::cvt_f16x2_fp8x2<kFp8>(two);
          pairs[0][i] = hw::cvt_bf16x2(hw::cvt_f32_f16(static_cast<uint16_t>(halves)),
                                       hw::cvt_f32_f16(static_cast<uint16_t>(halves >> 16)));
        }
        return;
      }
    }
    expand_finite(codes, 0, pairs);
    // NaN and infinity have other bits in BF16. Four values are checked in one addition.
    HT_UNROLL
    for (uint32_t word = 0; word < 2; ++word) {
      if ((special(codes[word]) & 0x80808080u) == 0) continue;
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t code = codes[word] >> 8 * i & 0x7f;
        if (code < kHighest) continue;
        // The infinity of E5M2 is its smallest such value; E4M3 has none.
        const bool nan = code > kHighest || kHighest == 0x7f;
        pairs[0][word * 2 + i / 2] |= (nan ? 0x7fffu : 0x7f80u) << 16 * (i % 2);
        if (!nan) pairs[0][word * 2 + i / 2] &= ~(0x007fu << 16 * (i % 2));
      }
    }
  }
};
template <>
struct CodePolicy<GpuCode::e4m3> : Fp8Policy<hw::Type::e4m3, 4, 0x07f0, 0x7b80, 0x7f> {};  // 2^120
template <>
struct CodePolicy<GpuCode::e5m2> : Fp8Policy<hw::Type::e5m2, 3, 0x0fe0, 0x7780, 0x7c> {};  // 2^112

// The lower seven bits as 128 + them, less 128, or 256 for a negative number.
template <>
struct CodePolicy<GpuCode::int8> : PlainOrder {
  static constexpr uint32_t kBits = 8, kTerms = 1;
  static constexpr hw::Type kType = hw::Type::bf16;
  static constexpr uint32_t kPairExtent = 0;
  HT_DEVICE static void expand(const uint32_t (&codes)[2], uint32_t, uint32_t (&pairs)[1][4]) {
    constexpr uint8_t kAndOr = (hw::kLop3A & hw::kLop3B) | hw::kLop3C;
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t lower = hw::prmt(codes[i / 2], 0, i % 2 == 0 ? 0x4140 : 0x4342);
      const uint32_t bits = hw::lop3<kAndOr>(lower, 0x007f007f, 0x43004300);
      const uint32_t offset = hw::lop3<kAndOr>(lower, 0x00800080, 0xc300c300);
      pairs[0][i] = fma_bf16x2(bits, 0x3f803f80, offset);
    }
  }
};

// Four bits: nibbles i and i + 4 make a pair, which takes one shift and mask; x is arranged alike.
struct NibbleOrder {
  static constexpr bool kHalfSums = false;
  HT_DEVICE static void arrange(uint32_t (&x)[4]) {
    const uint32_t first = x[0], second = x[1];
    x[0] = hw::prmt(first, x[2], 0x5410), x[1] = hw::prmt(first, x[2], 0x7632);
    const uint32_t third = x[3];
    x[2] = hw::prmt(second, third, 0x5410), x[3] = hw::prmt(second, third, 0x7632);
  }
  HT_DEVICE static uint32_t moved(uint32_t codes, int left) {
    return left >= 0 ? codes << left : codes >> -left;
  }
};

// Exponent and mantissa are moved to their place; the pair, a scale times a power of two, corrects
// the bias: 2^126 for the scale 1. An E4M3 scale would overflow with that: it comes times 2^118,
// and kFactor corrects the accumulator.
template <>
struct CodePolicy<GpuCode::e2m1> : NibbleOrder {
  static constexpr uint32_t kBits = 4, kTerms = 1;
  static constexpr hw::Type kType = hw::Type::bf16;
  static constexpr uint32_t kPairExtent = 16;
  static constexpr uint32_t kUnscaled = 0x7e807e80;
  static constexpr float kFactor = 256;
  HT_DEVICE static uint32_t pair_of(float scale) {
    return hw::cvt_bf16x2(scale * 0x1p118f, scale * 0x1p118f);
  }
  // From eight E4M3 scales.
  HT_DEVICE static void pairs_of(const uint32_t (&scales)[2], uint32_t (&pairs)[8]) {
    uint32_t twos[1][4];
    CodePolicy<GpuCode::e4m3>::expand(scales, 0, twos);
    HT_UNROLL
    for (uint32_t i = 0; i < 8; ++i) {
      const uint32_t two = i % 2 == 0 ? fma_bf16x2(twos[0][i / 2], twice(0x7a80), kMinusZeros)
                                      : twos[0][i / 2];  // times 2^118
      twos[0][i / 2] = two;
      pairs[i] = hw::prmt(two, 0, i % 2 == 0 ? 0x1010 : 0x3232);
    }
  }
  // From two.
  HT_DEVICE static void pairs_of(uint16_t scales, uint32_t (&pairs)[2]) {
    if constexpr (hw::ThisTarget::has(hw::Feature::fp8_convert)) {
      if (hw::present<hw::Feature::fp8_convert>()) {
        const uint32_t halves = hw::cvt_f16x2_fp8x2<hw::Type::e4m3>(scales);
        pairs[0] = pair_of(hw::cvt_f32_f16(static_cast<uint16_t>(halves)));
        pairs[1] = pair_of(hw::cvt_f32_f16(static_cast<uint16_t>(halves >> 16)));
        return;
      }
    }
    uint32_t twos[1][4];
    CodePolicy<GpuCode::e4m3>::expand({scales, 0}, 0, twos);
    const uint32_t two = fma_bf16x2(twos[0][0], twice(0x7a80), kMinusZeros);  // times 2^118
    pairs[0] = hw::prmt(two, 0, 0x1010), pairs[1] = hw::prmt(two, 0, 0x3232);
  }
  // Times 2^-126. One multiplication puts a value in two places, its sign into the highest bit and
  // the rest to exponent and mantissa: shifts and masks share one pipe of half the throughput,
  // which four-bit weights keep busy.
  HT_DEVICE static void places(const uint32_t (&codes)[1], uint32_t (&pairs)[4]) {
    HT_UNROLL
    for (int i = 0; i < 4; ++i) {
      const bool odd = i % 2 != 0;
      const uint32_t code = (i < 2 ? codes[0] : codes[0] >> 8) & (odd ? 0x00f000f0 : 0x000f000f);
      pairs[i] = code * (odd ? 0x104 : 0x1040) & 0x81c081c0;
    }
  }
  HT_DEVICE static void expand(const uint32_t (&codes)[1], uint32_t scale,
                               uint32_t (&pairs)[1][4]) {
    places(codes, pairs[0]);
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) pairs[0][i] = fma_bf16x2(pairs[0][i], scale, kMinusZeros);
  }
  // Four bytes of two neighbours each, a scale for each pair.
  HT_DEVICE static void expand_neighbours(uint32_t bytes, const uint32_t (&scales)[4],
                                          uint32_t (&pairs)[1][4]) {
    const uint32_t even = bytes & 0x0f0f0f0f, odd = bytes >> 4 & 0x0f0f0f0f;
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      // Copies of the highest bit of a byte here are zeros.
      const uint32_t code = hw::prmt(even, odd, 0x8480 + 0x0101 * i);
      pairs[0][i] = fma_bf16x2(code * 0x1040 & 0x81c081c0, scales[i], kMinusZeros);
    }
  }
};

// The value as 128 + itself, less 128 + the zero point.
template <>
struct CodePolicy<GpuCode::int4> : NibbleOrder {
  static constexpr uint32_t kBits = 4, kTerms = 1;
  static constexpr hw::Type kType = hw::Type::bf16;
  static constexpr uint32_t kPairExtent = 32;
  static constexpr uint32_t kUnscaled = 0xc308c308;  // the zero point 8
  HT_DEVICE static uint32_t pair_of(uint32_t zero) { return twice(0xc300 + zero); }
  HT_DEVICE static void expand(const uint32_t (&codes)[1], uint32_t offset,
                               uint32_t (&pairs)[1][4]) {
    HT_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint32_t bits = hw::lop3<(hw::kLop3A & hw::kLop3B) | hw::kLop3C>(
          moved(codes[0], -4 * i), 0x000f000f, 0x43004300);
      pairs[0][i] = fma_bf16x2(bits, 0x3f803f80, offset);
    }
  }
  // Four bytes of two neighbours each.
  HT_DEVICE static void expand_neighbours(uint32_t bytes, uint32_t offset,
                                          uint32_t (&pairs)[1][4]) {
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t bits = hw::lop3<(hw::kLop3A & hw::kLop3B) | hw::kLop3C>(
          hw::prmt(bytes, bytes >> 4, 0x0400 + 0x0101 * i), 0x000f000f, 0x43004300);
      pairs[0][i] = fma_bf16x2(bits, 0x3f803f80, offset);
    }
  }
};

}  // namespace halftone::gemm
