// E4M3 straight to bf16 in the order in which a product wants it, for levels with VDPBF16PS: the
// high and the low byte of each number are looked up, and shuffles put them together.
#pragma once
#include "ops/attention/cpu_scales.h"

#if defined(__AVX512BF16__)
namespace halftone::HALFTONE_LEVEL {

struct Fp8Bytes {
  __m512i low, high, magnitude;
};
HALFTONE_INLINE Fp8Bytes look_up_e4m3(__m512i codes) {
  const auto& t = decode_detail::kFp8Bytes<true>;
  const __m512i low =
      _mm512_permutex2var_epi8(_mm512_load_si512(t.low), codes, _mm512_load_si512(t.low + 64));
  const __m512i magnitude =
      _mm512_permutex2var_epi8(_mm512_load_si512(t.high), codes, _mm512_load_si512(t.high + 64));
  // magnitude | (codes & 0x80)
  return {low, _mm512_ternarylogic_epi32(magnitude, codes, _mm512_set1_epi8(-128), 0xf8),
          magnitude};
}

// Integers of 8 bits the same way, by magnitude; -128 has none in the table.
struct IntegerBytes {
  alignas(64) uint8_t low[128], high[128];
};
inline constexpr IntegerBytes kIntegerBytes = [] {
  IntegerBytes t{};
  for (int i = 0; i < 128; ++i) {
    const uint16_t word = encode_bf16(static_cast<float>(i));
    t.low[i] = static_cast<uint8_t>(word);
    t.high[i] = static_cast<uint8_t>(word >> 8);
  }
  return t;
}();
HALFTONE_INLINE Fp8Bytes look_up_int8(__m512i codes) {
  const auto& t = kIntegerBytes;
  const __m512i magnitude = _mm512_abs_epi8(codes);
  const __m512i low =
      _mm512_permutex2var_epi8(_mm512_load_si512(t.low), magnitude, _mm512_load_si512(t.low + 64));
  const __m512i high = _mm512_permutex2var_epi8(_mm512_load_si512(t.high), magnitude,
                                                _mm512_load_si512(t.high + 64));
  return {low, _mm512_ternarylogic_epi32(high, codes, _mm512_set1_epi8(-128), 0xf8), magnitude};
}
template <bool kInt8>
HALFTONE_INLINE Fp8Bytes look_up(__m512i codes) {
  if constexpr (kInt8) return look_up_int8(codes);
  return look_up_e4m3(codes);
}

// Gathers whether int8 codes, a multiple of 64, are without -128.
struct Int8Check {
  __mmask64 lowest = 0;
  HALFTONE_INLINE void add(const uint8_t* codes, const uint8_t*, int64_t count) {
    for (int64_t i = 0; i < count; i += 64) {
      lowest |= _mm512_cmpeq_epi8_mask(load_raw<__m512i>(codes + i), _mm512_set1_epi8(-128));
    }
  }
  HALFTONE_INLINE bool passed() const { return lowest == 0; }
};

// A row of V.
template <bool kInt8>
struct ByteRow {
  const uint8_t* codes;
};
using Fp8Row = ByteRow<false>;
using Int8Row = ByteRow<true>;

// Columns x .. x + 63 of two rows as pairs. Unpacking works within 128-bit lanes: lane i first
// receives the codes of columns 4 i .. 4 i + 3 of every 16.
template <bool kInt8>
HALFTONE_INLINE void load_step(const ByteRow<kInt8>* rows, int64_t x, f32v (&b)[4]) {
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const Fp8Bytes even =
      look_up<kInt8>(_mm512_permutexvar_epi32(order, load_raw<__m512i>(rows[0].codes + x)));
  const Fp8Bytes odd =
      look_up<kInt8>(_mm512_permutexvar_epi32(order, load_raw<__m512i>(rows[1].codes + x)));
  const __m512i even_first = _mm512_unpacklo_epi8(even.low, even.high);
  const __m512i even_last = _mm512_unpackhi_epi8(even.low, even.high);
  const __m512i odd_first = _mm512_unpacklo_epi8(odd.low, odd.high);
  const __m512i odd_last = _mm512_unpackhi_epi8(odd.low, odd.high);
  b[0] = bits_as<f32v>(_mm512_unpacklo_epi16(even_first, odd_first));
  b[1] = bits_as<f32v>(_mm512_unpackhi_epi16(even_first, odd_first));
  b[2] = bits_as<f32v>(_mm512_unpacklo_epi16(even_last, odd_last));
  b[3] = bits_as<f32v>(_mm512_unpackhi_epi16(even_last, odd_last));
}

// x: 4 codes of each of 16 rows, to two steps of pairs.
template <bool kInt8 = false>
HALFTONE_INLINE __m512i expand_fp8_columns(__m512i x, __m512i (&step)[2]) {
  // Byte 4 i + (0, 1, 2, 3) of the first step is low[4 i], high[4 i], low[4 i + 1], high[4 i + 1].
  alignas(64) static constexpr auto kOrder = [] {
    struct Order {
      uint8_t byte[64];
    } order{};
    for (int i = 0; i < 64; ++i) {
      order.byte[i] = static_cast<uint8_t>(i / 4 * 4 + i % 4 / 2 + (i % 2) * 64);
    }
    return order;
  }();
  const Fp8Bytes bytes = look_up<kInt8>(x);
  const __m512i first = load_raw<__m512i>(kOrder.byte);
  const __m512i second = _mm512_add_epi8(first, _mm512_set1_epi8(2));
  step[0] = _mm512_permutex2var_epi8(bytes.low, first, bytes.high);
  step[1] = _mm512_permutex2var_epi8(bytes.low, second, bytes.high);
  return bytes.magnitude;
}

// MXFP8 multiplies by adding to the exponents of the numbers that are not 0. Scales of 2^-64 to
// 2^64 keep every number normal; others and NaN take another way.
HALFTONE_INLINE __m512i add_exponent(__m512i words, __m512i shift) {
  const __mmask32 number = _mm512_test_epi16_mask(words, _mm512_set1_epi16(0x7fff));
  return _mm512_mask_add_epi16(words, number, words, shift);
}
HALFTONE_INLINE bool shifts_exponents(__m128i least, __m128i most) {
  const __m128i below = _mm_min_epu8(least, _mm_set1_epi8(63));
  const __m128i above = _mm_max_epu8(most, _mm_set1_epi8(static_cast<char>(191)));
  return _mm_movemask_epi8(_mm_cmpeq_epi8(below, _mm_set1_epi8(63)) &
                           _mm_cmpeq_epi8(above, _mm_set1_epi8(static_cast<char>(191)))) == 0xffff;
}

// What a scale code adds to both words of a lane.
struct ExponentShifts {
  alignas(64) uint32_t shift[256];
};
inline constexpr ExponentShifts kExponentShifts = [] {
  ExponentShifts t{};
  for (int s = 0; s < 256; ++s) {
    t.shift[s] = static_cast<uint32_t>((s - 127) * 128 & 0xffff) * 0x10001u;
  }
  return t;
}();

// A row of V.
struct Mxfp8Row {
  const uint8_t* codes;
  const uint8_t* scales;
};

// As for Fp8Row: the first half of an unpacking is the first block of 32 columns.
HALFTONE_INLINE void load_step(const Mxfp8Row* rows, int64_t x, f32v (&b)[4]) {
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  __m512i first[2], last[2];
#pragma GCC unroll 2
  for (int r = 0; r < 2; ++r) {
    const uint8_t* scales = opaque(rows[r].scales + (x >> 5));
    const auto shift = [&](int block) {
      return _mm512_set1_epi32(static_cast<int>(kExponentShifts.shift[scales[block]]));
    };
    const Fp8Bytes bytes =
        look_up_e4m3(_mm512_permutexvar_epi32(order, load_raw<__m512i>(rows[r].codes + x)));
    first[r] = add_exponent(_mm512_unpacklo_epi8(bytes.low, bytes.high), shift(0));
    last[r] = add_exponent(_mm512_unpackhi_epi8(bytes.low, bytes.high), shift(1));
  }
  b[0] = bits_as<f32v>(_mm512_unpacklo_epi16(first[0], first[1]));
  b[1] = bits_as<f32v>(_mm512_unpackhi_epi16(first[0], first[1]));
  b[2] = bits_as<f32v>(_mm512_unpacklo_epi16(last[0], last[1]));
  b[3] = bits_as<f32v>(_mm512_unpackhi_epi16(last[0], last[1]));
}

// Gathers whether rows of up to 512 numbers, a multiple of 64, can be multiplied so.
struct Mxfp8Check {
  __m512i most = _mm512_setzero_si512();
  __m128i least_scale = _mm_set1_epi8(127), most_scale = least_scale;
  HALFTONE_INLINE void add(const uint8_t* codes, const uint8_t* scales, int64_t count) {
    for (int64_t i = 0; i < count; i += 64) {
      most = _mm512_max_epu8(most, load_raw<__m512i>(codes + i) | _mm512_set1_epi8(-128));
    }
    const auto blocks = static_cast<__mmask16>((1u << (count / 32)) - 1);
    const __m128i scale = _mm_mask_loadu_epi8(_mm_set1_epi8(127), blocks, scales);
    least_scale = _mm_min_epu8(least_scale, scale);
    most_scale = _mm_max_epu8(most_scale, scale);
  }
  HALFTONE_INLINE bool passed() const {
    return _mm512_cmpeq_epi8_mask(most, _mm512_set1_epi8(-1)) == 0 &&
           shifts_exponents(least_scale, most_scale);
  }
};

}  // namespace halftone::HALFTONE_LEVEL
#endif
