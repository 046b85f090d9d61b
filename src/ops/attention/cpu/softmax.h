// Softmax of one row of one chunk on the CPU: scores to P, with the row's row_max and row_sum.
#pragma once
#include "ops/attention/cpu/kernel.h"
#include "simd/vec.h"

namespace halftone::HALFTONE_LEVEL {

inline constexpr float kMinusInfinity = -__builtin_inff();

#if defined(__AVX512F__)
// As max() of simd/vec.h, which the compiler does not recognise as the instruction.
HALFTONE_INLINE f32v maximum_of(f32v a, f32v b) {
  return bits_as<f32v>(_mm512_max_ps(bits_as<__m512>(a), bits_as<__m512>(b)));
}
// The maximum over lanes, in every lane.
HALFTONE_INLINE f32v broadcast_max(f32v a) {
  __m512 x = bits_as<__m512>(a);
  x = _mm512_max_ps(x, _mm512_shuffle_f32x4(x, x, 0x4e));
  x = _mm512_max_ps(x, _mm512_shuffle_f32x4(x, x, 0xb1));
  x = _mm512_max_ps(x, _mm512_permute_ps(x, 0x4e));
  return bits_as<f32v>(_mm512_max_ps(x, _mm512_permute_ps(x, 0xb1)));
}
#else
HALFTONE_INLINE f32v maximum_of(f32v a, f32v b) { return max(a, b); }
HALFTONE_INLINE f32v broadcast_max(f32v a) { return broadcast(reduce_max(a)); }
#endif

// 2^x for x <= 0; exactly 0 below -127, NaN stays NaN. x = n + r with |r| <= 1/2. The short
// polynomial is within 2^-17, well below the 2^-8 of a P in BF16, the long one within 2^-26.
template <bool kExact>
HALFTONE_INLINE f32v exp2_negative(f32v x) {
  const f32v magic = broadcast(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  x = maximum_of(broadcast(-127.0f), x);      // in this order, so that NaN passes
  const f32v shifted = x + magic;
  const f32v r = x - (shifted - magic);
  f32v p;
  if constexpr (kExact) {
    p = broadcast(1.545316336e-04f);
    p = fma(p, r, broadcast(1.339086331e-03f));
    p = fma(p, r, broadcast(9.618083015e-03f));
    p = fma(p, r, broadcast(5.550356954e-02f));
    p = fma(p, r, broadcast(2.402265072e-01f));
    p = fma(p, r, broadcast(6.931471825e-01f));
  } else {
    p = broadcast(9.656710550e-03f);
    p = fma(p, r, broadcast(5.583828315e-02f));
    p = fma(p, r, broadcast(2.402253002e-01f));
    p = fma(p, r, broadcast(6.931367517e-01f));
  }
  p = fma(p, r, broadcast(1.0f));
  // n = -127 gives the factor 0.
  return p * bits_as<f32v>((bits_as<u32v>(shifted) + (127u - 0x4b400000u)) << 23);
}

// The exponent bits of x, or `least` if that is more.
HALFTONE_INLINE u32v exponent_at_least(f32v x, uint32_t least) {
  const u32v exponent = bits_as<u32v>(x) & 0x7f800000u, lowest = broadcast_u32(least);
#if defined(__AVX512F__)
  return bits_as<u32v>(_mm512_max_epu32(bits_as<__m512i>(exponent), bits_as<__m512i>(lowest)));
#else
  return select(bits_as<i32v>(exponent < lowest), lowest, exponent);
#endif
}

// Nearest E4M3 value, ties to even, of 0 <= x <= 448: adding and subtracting 1.5 * 2^23 units in
// the last place of x rounds it; below 2^-6 the unit stays that of the subnormals.
HALFTONE_INLINE f32v round_e4m3(f32v x) {
  const u32v exponent = exponent_at_least(x, (127u - 6) << 23);
  const f32v magic = bits_as<f32v>((exponent + (20u << 23)) | 0x400000u);
  return (x + magic) - magic;
}

// Nearest E2M1 value, ties to even, of 0 <= x; at most 6. NaN stays NaN.
HALFTONE_INLINE f32v round_e2m1(f32v x) {
  x = min(broadcast(6.0f), x);
  const u32v exponent = exponent_at_least(x, 127u << 23);
  const f32v magic = bits_as<f32v>((exponent + (22u << 23)) | 0x400000u);
  return (x + magic) - magic;
}

// P of keys [begin, end) in NVFP4, by the rule of docs/numerics.md: blocks of 16 keys from a
// multiple of 16, scale * element. Keys of a block outside [begin, end) count as 0.
static inline void round_nvfp4(float* p, int64_t begin, int64_t end) {
  constexpr int kVectorsOfBlock = 16 / kLanes;
  for (int64_t block = begin / 16 * 16; block < end; block += 16) {
    f32v x[kVectorsOfBlock], largest = {};
    for (int v = 0; v < kVectorsOfBlock; ++v) {
      const int64_t i = block + v * kLanes;
      x[v] = i >= begin && i < end ? load_raw<f32v>(p + i) : f32v{};
      largest = maximum_of(x[v], largest);
    }
    const f32v scale = round_e4m3(broadcast_max(largest) * 448.0f);
    const f32v inverse = select(scale == 0.0f, f32v{}, kNvfp4PScale / scale);
    for (int v = 0; v < kVectorsOfBlock; ++v) {
      const int64_t i = block + v * kLanes;
      if (i >= begin && i < end) store_raw(p + i, round_e2m1(x[v] * inverse) * scale);
    }
  }
}

struct RowStats {
  float maximum, sum;
};

// P is not negative; the instruction flushes subnormals to 0, as the dot products do.
HALFTONE_INLINE u16v round_bf16(f32v x) {
#if defined(__AVX512BF16__)
  return bits_as<u16v>(_mm512_cvtneps_pbh(bits_as<__m512>(x)));
#else
  return narrow_bf16(x);
#endif
}

// s: scores of keys [begin, end) of the chunk (multiples of kLanes), of which [low, high) are
// visible to the row. Scores become score * row_scale (* key_scales[key]) in base-2 exponents; P
// (of Element, rounded) is written to p, times value_scales[key] if there are any. The sum is that
// of the unrounded P: the rounding errors of P then do not bias the divisor.
template <class Element, AttentionRounding kRounding>
RowStats softmax_row(float* s, Element* p, int64_t begin, int64_t end, int64_t low, int64_t high,
                     float row_scale, const float* key_scales, const float* value_scales) {
  constexpr bool kExact = sizeof(Element) == 4;
  i32v lane;
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  const f32v scale = broadcast(row_scale);
  f32v maximum = broadcast(kMinusInfinity);
  for (int64_t i = begin; i < end; i += kLanes) {
    f32v x = load_raw<f32v>(s + i) * scale;
    if (key_scales != nullptr) x *= load_raw<f32v>(key_scales + i);
    if (i < low || i + kLanes > high) {
      const i32v key = lane + broadcast_i32(static_cast<int32_t>(i));
      const i32v visible = (key >= broadcast_i32(static_cast<int32_t>(low))) &
                           (key < broadcast_i32(static_cast<int32_t>(high)));
      x = select(visible, x, broadcast(kMinusInfinity));
    }
    store_raw(s + i, x);
    maximum = maximum_of(x, maximum);
  }
  const float m = reduce_max(maximum);
  // A row of -inf alone keeps the sum 0; NaN stays NaN.
  const f32v offset = broadcast(m == kMinusInfinity ? 0.0f : m);
  f32v sum = {};
  for (int64_t i = begin; i < end; i += kLanes) {
    f32v x = exp2_negative<kExact>(load_raw<f32v>(s + i) - offset);
    sum += x;
    const f32v exact = x;
    if constexpr (kRounding == AttentionRounding::e4m3) x = round_e4m3(x * kE4m3PScale);
    if constexpr (kRounding == AttentionRounding::f16) x = widen_f16(narrow_f16(x));
    if constexpr (kRounding == AttentionRounding::nvfp4) {
      store_raw(s + i, x);
      continue;
    }
    if (value_scales != nullptr) {  // of masked keys they need not be finite
      x = select(exact == 0.0f, exact, x * load_raw<f32v>(value_scales + i));
    }
    if constexpr (sizeof(Element) == 2) {
      store_raw(p + i, round_bf16(x));
    } else {
      if constexpr (kRounding == AttentionRounding::bf16 || kRounding == AttentionRounding::e4m3) {
        x = widen_bf16(narrow_bf16(x));
      }
      store_raw(p + i, x);
    }
  }
  if constexpr (kRounding == AttentionRounding::nvfp4) {
    round_nvfp4(s, begin, end);
    for (int64_t i = begin; i < end; i += kLanes) {
      const f32v x = load_raw<f32v>(s + i);  // exact in BF16: 6 significant bits
      if constexpr (sizeof(Element) == 2) {
        store_raw(p + i, round_bf16(x));
      } else {
        store_raw(p + i, x);
      }
    }
  }
  return {m, reduce_add(sum)};
}

template <class Element>
using SoftmaxRow = RowStats (*)(float* s, Element* p, int64_t begin, int64_t end, int64_t low,
                                int64_t high, float row_scale, const float* key_scales,
                                const float* value_scales);

template <class Element>
SoftmaxRow<Element> softmax_row_of(AttentionRounding rounding) {
  if (rounding == AttentionRounding::e4m3) return softmax_row<Element, AttentionRounding::e4m3>;
  if (rounding == AttentionRounding::nvfp4) return softmax_row<Element, AttentionRounding::nvfp4>;
  if constexpr (sizeof(Element) == 4) {
    if (rounding == AttentionRounding::none) return softmax_row<Element, AttentionRounding::none>;
    if (rounding == AttentionRounding::f16) return softmax_row<Element, AttentionRounding::f16>;
  }
  return softmax_row<Element, AttentionRounding::bf16>;
}

}  // namespace halftone::HALFTONE_LEVEL
