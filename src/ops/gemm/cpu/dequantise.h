// Dequantisation of packed weights on CPUs: the values of a chunk of K to vector lanes. Included by
// ISA-level sources.
//
// What a value decodes to is in simd/decode.h; here is which lane gets it.
#pragma once
#include "ops/gemm/cpu/kernels.h"
#include "simd/decode.h"

namespace halftone::HALFTONE_LEVEL {

using gemm::Code;

template <Code C>
inline constexpr Format kFormat = gemm::format_of(C);
template <Code C>
inline constexpr int kBits = bits_of(kFormat<C>);

// Calls f.template operator()<C>() for a code of octet_order().
template <class F>
HALFTONE_INLINE void with_octet_code(Code code, const F& f) {
  switch (code) {
    case Code::e4m3:
      return f.template operator()<Code::e4m3>();
    case Code::e5m2:
      return f.template operator()<Code::e5m2>();
    case Code::int8:
      return f.template operator()<Code::int8>();
    case Code::e2m1:
      return f.template operator()<Code::e2m1>();
    case Code::int4:
      return f.template operator()<Code::int4>();
    default:
      return f.template operator()<Code::int4_asymmetric>();
  }
}

// Elements i .. i + kLanes - 1 of a code that is no octet.
template <Code C>
HALFTONE_INLINE f32v load_plain(const uint8_t* p, int64_t i) {
  if constexpr (C == Code::int8_rows) {
    const u8v x = load_raw<u8v>(p + i);
#if defined(__AVX512F__)
    return float_from(bits_as<i32v>(_mm512_maskz_cvtepi8_epi32(0xffff, bits_as<__m128i>(x))));
#elif defined(__AVX2__)
    return float_from(
        bits_as<i32v>(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(bits_as<long long>(x)))));
#else
    return float_from(bits_as<i32v>(widen_u8(x) << 24) >> 24);
#endif
  } else {
    return load<kFormat<C>>(p, i);
  }
}

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

#if defined(__AVX512VBMI__)
typedef uint16_t words __attribute__((vector_size(64)));

// Bytes of 128 values that become words of steps 0 and 1 (and, plus 2, of steps 2 and 3): word w of
// step j is byte 4w + j, as unpacking the low and high halves of 128-bit lanes wants them.
struct Arrangement {
  alignas(64) uint8_t bytes[2][64];
};
constexpr Arrangement arrangement() {
  Arrangement a{};
  for (int pair = 0; pair < 2; ++pair) {
    for (int lane = 0; lane < 4; ++lane) {
      for (int i = 0; i < 16; ++i) {
        a.bytes[pair][16 * lane + i] =
            static_cast<uint8_t>(4 * (8 * lane + i % 8) + 2 * pair + i / 8);
      }
    }
  }
  return a;
}
inline constexpr Arrangement kArrangement = arrangement();

// Two vectors of words from 128 values in two vectors (8 bits) or one (4 bits): word w of vector j
// is element 4w + 2 pair + j.
template <Code C>
HALFTONE_INLINE void expand_words(__m512i a, [[maybe_unused]] __m512i b,
                                  [[maybe_unused]] const int32_t* zeros, int pair, words out[2]) {
  if constexpr (kBits<C> == 8) {
    const __m512i order = load_raw<__m512i>(kArrangement.bytes[pair]);
    __m512i high, low;
    lookup_bytes<kFormat<C>>(_mm512_permutex2var_epi8(a, order, b), &high, &low);
    out[0] = bits_as<words>(_mm512_unpacklo_epi8(low, high));
    out[1] = bits_as<words>(_mm512_unpackhi_epi8(low, high));
  } else {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const __m512i codes = _mm512_srli_epi16(a, static_cast<unsigned>(8 * pair + 4 * j));
      if constexpr (C == Code::int4_asymmetric) {
        const __m512i zero = load_raw<__m512i>(zeros);
        const __m512i shift = _mm512_sub_epi16(_mm512_set1_epi16(15),
                                               _mm512_or_si512(zero, _mm512_slli_epi32(zero, 16)));
        out[j] = bits_as<words>(lookup_int4(codes, shift));
      } else {
        out[j] = bits_as<words>(lookup_nibbles<kFormat<C>>(codes));
      }
    }
  }
}
#endif

// Which element of its octet vector j of a chunk holds: alternating between the lower and the upper
// half, as BF16 pairs split into floats.
HALFTONE_INLINE constexpr int octet_element(int j) { return j % 2 * 4 + j / 2; }

#if defined(__AVX512VBMI__)
// BF16 pairs: of a chunk of 16 elements a lane, words 4 half + 2 pair and the next. Word w of
// vector j is element 16 (w / 2) + 8 (j / 4) + 4 (w % 2) + j % 4.
template <Code C>
HALFTONE_INLINE void expand_pairs(const uint8_t* p, const int32_t* zeros, int half, int pair,
                                  words out[2]) {
  if constexpr (kBits<C> == 8) {
    // Of each 16 bytes the lower or upper half: 128 values as expand_words wants them.
    const __m512i pick = half == 0 ? _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14)
                                   : _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
    const __m512i a = load_raw<__m512i>(p), b = load_raw<__m512i>(p + 64);
    const __m512i c = load_raw<__m512i>(p + 128), d = load_raw<__m512i>(p + 192);
    expand_words<C>(_mm512_permutex2var_epi64(a, pick, b), _mm512_permutex2var_epi64(c, pick, d),
                    zeros, pair, out);
  } else {
    u32v parts[2];
    split_octets(p, &parts[0], &parts[1]);
    const auto part = bits_as<__m512i>(parts[half]);
    expand_words<C>(part, part, zeros, pair, out);
  }
}

// Elements of a lane of a chunk of floats: one octet where a dword of values is dequantised by
// arithmetic, two where they are dequantised as BF16 pairs.
inline constexpr int kFloatsPerLane = 16;

// Vectors 4 part .. 4 part + 3 of a chunk: lane d of vector j is element 16d + 8 (j / 8) +
// octet_element(j % 8) (codes), or element j * lanes + d (plain floats). `zeros`: zero point of
// each lane.
template <Code C>
HALFTONE_INLINE void expand_floats(const uint8_t* p, [[maybe_unused]] const int32_t* zeros,
                                   int part, f32v out[4]) {
  if constexpr (!gemm::octet_order(C)) {
    for (int j = 0; j < 4; ++j) out[j] = load_plain<C>(p, (4 * part + j) * kLanes);
  } else if constexpr (kBits<C> == 4 && C != Code::int4_asymmetric) {
    // One look-up of a float a code takes as many operations as one of a pair and its splitting,
    // but VPERMW is two of them on processors of Intel.
    u32v octets[2];
    split_octets(p, &octets[0], &octets[1]);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      out[j] = decode_code<kFormat<C>>(octets[part / 2] >> (4 * octet_element(part % 2 * 4 + j)));
    }
  } else {
    // A dword of bf16 pairs is the two floats whose upper halves it holds.
    words pairs[2];
    expand_pairs<C>(p, zeros, part / 2, part % 2, pairs);
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      out[2 * j] = bits_as<f32v>(bits_as<u32v>(pairs[j]) << 16);
      out[2 * j + 1] = bits_as<f32v>(bits_as<u32v>(pairs[j]) & 0xffff0000u);
    }
  }
}
#else
inline constexpr int kFloatsPerLane = 8;

template <Code C>
HALFTONE_INLINE void expand_floats(const uint8_t* p, [[maybe_unused]] const int32_t* zeros,
                                   int part, f32v out[4]) {
  if constexpr (!gemm::octet_order(C)) {
    for (int j = 0; j < 4; ++j) out[j] = load_plain<C>(p, (4 * part + j) * kLanes);
  } else {
    u32v octets[2];
    if constexpr (kBits<C> == 8) {
      split_octets(p, &octets[0], &octets[1]);
    } else {
      octets[0] = load_raw<u32v>(p);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const int element = octet_element(4 * part + j);
      if constexpr (kBits<C> == 8) {
        out[j] = decode_code<kFormat<C>>(octets[element / 4] >> (8 * (element % 4)));
      } else if constexpr (C == Code::int4_asymmetric) {
        const u32v code = (octets[0] >> (4 * element)) & 15u;
        out[j] = float_from(bits_as<i32v>(code) - load_raw<i32v>(zeros));
      } else {
        out[j] = decode_code<kFormat<C>>(octets[0] >> (4 * element));
      }
    }
  }
}
#endif

}  // namespace halftone::HALFTONE_LEVEL
