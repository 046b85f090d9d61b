// Codes to f32 in vector lanes, for every instruction level. Included by level sources.
#pragma once
#include "ops/product/product.h"
#include "simd/vec.h"

#if defined(__AVX512VBMI__)
#include "ops/product/expand_vbmi.h"
#endif

namespace halftone::HALFTONE_LEVEL {

using product::Code;

// E4M3 in the top byte of each lane. Exponent 0 has no hidden bit: read as if its exponent were 1
// with a hidden bit, it is too large by exactly 2^-6. (Placing the bits and multiplying by 2^120
// is shorter, but a multiplication of subnormals costs tens of cycles.)
HALFTONE_INLINE f32v e4m3_top(u32v t) {
  const u32v magnitude = (t >> 4) & 0x07f00000u;
  const f32v normal = bits_as<f32v>(magnitude + (120u << 23));
  const f32v subnormal = bits_as<f32v>(magnitude + (121u << 23)) - broadcast(0x1p-6f);
  const i32v small = bits_as<i32v>(magnitude < broadcast_u32(0x00800000u));
  const i32v nan = bits_as<i32v>(magnitude == broadcast_u32(0x07f00000u));
  const u32v value = bits_as<u32v>(select(small, subnormal, normal));
  return bits_as<f32v>(value | (t & 0x80000000u) | (bits_as<u32v>(nan) & 0x7fc00000u));
}

// E5M2 in the top byte: infinity and NaN keep their meaning.
HALFTONE_INLINE f32v e5m2_top(u32v t) {
  const u32v magnitude = (t >> 3) & 0x0fe00000u;
  const f32v normal = bits_as<f32v>(magnitude + (112u << 23));
  const f32v subnormal = bits_as<f32v>(magnitude + (113u << 23)) - broadcast(0x1p-14f);
  const i32v small = bits_as<i32v>(magnitude < broadcast_u32(0x00800000u));
  const i32v special = bits_as<i32v>(magnitude >= broadcast_u32(0x0f800000u));
  const u32v value = bits_as<u32v>(select(small, subnormal, normal));
  return bits_as<f32v>(value | (t & 0x80000000u) | (bits_as<u32v>(special) & 0x7f800000u));
}

// 2^(code - 127). Code 0 is the subnormal 2^-127 and code 255 a NaN: both set bit 22.
HALFTONE_INLINE f32v ue8m0(u32v code) {
  const i32v edge = bits_as<i32v>(((code + 1) & 0xfeu) == u32v{});
  return bits_as<f32v>((code << 23) | (bits_as<u32v>(edge) & 0x00400000u));
}

// E2M1 in the low four bits; the bits above are ignored.
HALFTONE_INLINE f32v e2m1(u32v code) {
#if defined(__AVX512F__)
  const __m512 table = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f,
                                      -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
  return bits_as<f32v>(_mm512_permutexvar_ps(bits_as<__m512i>(code), table));
#elif defined(__AVX2__)
  const __m256 table = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
  const f32v magnitude = bits_as<f32v>(_mm256_permutevar8x32_ps(table, bits_as<__m256i>(code)));
  return bits_as<f32v>(bits_as<u32v>(magnitude) | ((code << 28) & 0x80000000u));
#else
  // Exponent 0 has no hidden bit: as 1.m with the exponent of 1, less 1, it is exact.
  const u32v magnitude = (code & 7u) << 22;
  const f32v normal = bits_as<f32v>(magnitude + (126u << 23));
  const f32v subnormal = bits_as<f32v>(magnitude + (127u << 23)) - broadcast(1.0f);
  const f32v value = select(bits_as<i32v>((code & 6u) == u32v{}), subnormal, normal);
  return bits_as<f32v>(bits_as<u32v>(value) | ((code << 28) & 0x80000000u));
#endif
}

HALFTONE_INLINE f32v to_float(i32v x) { return __builtin_convertvector(x, f32v); }

// int4 in the low four bits, less 8.
HALFTONE_INLINE f32v int4_symmetric(u32v code) {
#if defined(__AVX512F__)
  const __m512 table = _mm512_setr_ps(-8.0f, -7.0f, -6.0f, -5.0f, -4.0f, -3.0f, -2.0f, -1.0f, 0.0f,
                                      1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f);
  return bits_as<f32v>(_mm512_permutexvar_ps(bits_as<__m512i>(code), table));
#else
  return to_float(bits_as<i32v>(code & 15u) - 8);
#endif
}

template <Code C>
inline constexpr int kBits = C == Code::f32                                          ? 32
                             : C == Code::f16 || C == Code::bf16                     ? 16
                             : C == Code::e4m3 || C == Code::e5m2 || C == Code::int8 ? 8
                                                                                     : 4;

// Dwords 0, 2, 4, ... and 1, 3, 5, ... of two vectors: the lower and upper half of each octet of
// bytes.
HALFTONE_INLINE void split_octets(const uint8_t* p, u32v* low, u32v* high) {
  const u32v a = load_raw<u32v>(p), b = load_raw<u32v>(p + sizeof(u32v));
#if defined(__AVX512F__)
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  *low = bits_as<u32v>(_mm512_permutex2var_epi32(bits_as<__m512i>(a), even, bits_as<__m512i>(b)));
  *high = bits_as<u32v>(_mm512_permutex2var_epi32(bits_as<__m512i>(a), odd, bits_as<__m512i>(b)));
#elif defined(__AVX2__)
  *low = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
  *high = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
#else
  *low = __builtin_shufflevector(a, b, 0, 2, 4, 6);
  *high = __builtin_shufflevector(a, b, 1, 3, 5, 7);
#endif
}

// Which element of its octet vector j of a chunk holds: those of the lower and the upper half in
// turn, as pairs of bf16 split into floats.
HALFTONE_INLINE constexpr int octet_element(int j) { return j % 2 * 4 + j / 2; }

// Vectors 4 half .. 4 half + 3 of the 8 of a chunk: lane d of vector j is element 8d +
// octet_element(j) (octets), or element j * lanes + d (plain floats). `zeros`: zero point of each
// lane.
template <Code C>
HALFTONE_INLINE void expand_half(const uint8_t* p, [[maybe_unused]] const int32_t* zeros, int half,
                                 f32v out[4]) {
  if constexpr (C == Code::f32) {
    for (int j = 0; j < 4; ++j) out[j] = load<Format::f32>(p, (4 * half + j) * kLanes);
  } else if constexpr (C == Code::f16) {
    for (int j = 0; j < 4; ++j) out[j] = load<Format::f16>(p, (4 * half + j) * kLanes);
  } else if constexpr (C == Code::bf16) {
    for (int j = 0; j < 4; ++j) out[j] = load<Format::bf16>(p, (4 * half + j) * kLanes);
#if defined(__AVX512VBMI__)
  } else if constexpr (kBits<C> <= 8) {
    // A dword of bf16 pairs is the two floats whose upper halves it holds.
    const __m512i a = load_raw<__m512i>(p);
    const __m512i b = kBits<C> == 8 ? load_raw<__m512i>(p + 64) : a;
    words pairs[2];
    expand_words<C>(a, b, zeros, half, pairs);
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      out[2 * j] = bits_as<f32v>(bits_as<u32v>(pairs[j]) << 16);
      out[2 * j + 1] = bits_as<f32v>(bits_as<u32v>(pairs[j]) & 0xffff0000u);
    }
#endif
  } else if constexpr (kBits<C> == 8) {
    u32v parts[2];
    split_octets(p, &parts[0], &parts[1]);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const int element = octet_element(4 * half + j);
      const u32v top = parts[element / 4] << (24 - 8 * (element % 4));
      if constexpr (C == Code::e4m3) {
        out[j] = e4m3_top(top);
      } else if constexpr (C == Code::e5m2) {
        out[j] = e5m2_top(top);
      } else {
        out[j] = to_float(bits_as<i32v>(top) >> 24);
      }
    }
  } else {
    const u32v raw = load_raw<u32v>(p);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const u32v code = raw >> (4 * octet_element(4 * half + j));
      if constexpr (C == Code::e2m1) {
        out[j] = e2m1(code);
      } else if constexpr (C == Code::int4) {
        out[j] = int4_symmetric(code);
      } else {
        out[j] = to_float(bits_as<i32v>(code & 15u) - load_raw<i32v>(zeros));
      }
    }
  }
}

}  // namespace halftone::HALFTONE_LEVEL
