// E2M1 with block scales straight to BF16, for ISA levels with VDPBF16PS: 16 values a scale by
// table lookup, or, with keys in the lanes, a scale a lane.
#pragma once
#include "ops/attention/cpu/fp8.h"

#if defined(__AVX512BF16__)
namespace halftone::HALFTONE_LEVEL {

// The 16 values of E2M1 times each scale, in BF16: 8 KB, of which a row touches little.
struct Fp4Tables {
  alignas(64) uint16_t value[256][16];
};
template <Format F>
constexpr Fp4Tables fp4_tables() {
  constexpr bool kE4m3 = scale_format_of(F) == Format::fp8_e4m3;
  Fp4Tables t{};
  for (int s = 0; s < 256; ++s) {
    const auto scale_code = static_cast<uint8_t>(s);
    const bool nan = kE4m3 ? (s & 0x7f) == 0x7f : s == 255;
    for (int code = 0; code < 16; ++code) {
      if (nan) {
        t.value[s][code] = 0x7fc0;
        continue;
      }
      const float scale = kE4m3 ? decode_e4m3(scale_code) : decode_ue8m0(scale_code);
      const double value = static_cast<double>(decode_e2m1(static_cast<uint8_t>(code))) * scale;
      const bool overflows = value > 0x1.fffffep127 || value < -0x1.fffffep127;
      t.value[s][code] = overflows ? static_cast<uint16_t>(value > 0 ? 0x7f80 : 0xff80)
                                   : encode_bf16(static_cast<float>(value));
    }
  }
  return t;
}
template <Format F>
inline constexpr Fp4Tables kFp4Tables = fp4_tables<F>();

// The values of one scale, twice, so that bit 4 of an index does not matter.
template <Format F>
HALFTONE_INLINE __m512i fp4_table(uint8_t scale) {
  return _mm512_broadcast_i64x4(load_raw<__m256i>(kFp4Tables<F>.value[scale]));
}

// Whole groups of 32 elements of a row.
template <Format F>
HALFTONE_INLINE int64_t dequantise_fp4(const uint8_t* row, const uint8_t* scales, int64_t count,
                                       uint16_t* out) {
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    const __m512i index = decode_detail::spread_nibbles(row + i / 2);
    if constexpr (scale_group_of(F) == 32) {
      store_raw(out + i, _mm512_permutexvar_epi16(index, fp4_table<F>(scales[i / 32])));
    } else {
      const __m512i low = _mm512_permutexvar_epi16(index, fp4_table<F>(scales[i / 16]));
      store_raw(out + i, _mm512_mask_permutexvar_epi16(low, 0xffff0000u, index,
                                                       fp4_table<F>(scales[i / 16 + 1])));
    }
  }
  return i;
}

// A row of V.
template <Format F>
struct Fp4Row {
  const uint8_t* packed;
  const uint8_t* scales;
};

// Columns x .. x + 63 of two rows as pairs. Eight columns of both rows share a 64-bit lane, where a
// bit-field extraction picks each word's nibble (other bits above it).
template <Format F>
HALFTONE_INLINE void load_step(const Fp4Row<F>* rows, int64_t x, f32v (&b)[4]) {
  // Lane q mod 4 holds columns 2q and 2q + 1: bit offsets 8q and 8q + 4, of the odd row 32 more.
  alignas(64) static constexpr uint64_t kFields[8] = {
      0x2424040420200000, 0x2c2c0c0c28280808, 0x3434141430301010, 0x3c3c1c1c38381818,
      0x2424040420200000, 0x2c2c0c0c28280808, 0x3434141430301010, 0x3c3c1c1c38381818};
  const __m512i fields = load_raw<__m512i>(kFields);
  const __m512i first = _mm512_setr_epi32(0, 8, 0, 8, 0, 8, 0, 8, 1, 9, 1, 9, 1, 9, 1, 9);
  constexpr int kShift = scale_group_of(F) == 16 ? 4 : 5;
  const uint8_t* even_scales = opaque(rows[0].scales + (x >> kShift));
  const uint8_t* odd_scales = opaque(rows[1].scales + (x >> kShift));
  const __m512i packed =
      _mm512_inserti64x4(_mm512_castsi256_si512(load_raw<__m256i>(rows[0].packed + (x >> 1))),
                         load_raw<__m256i>(rows[1].packed + (x >> 1)), 1);
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    const int block = (16 * v) >> kShift;
    const __m512i order = _mm512_add_epi32(first, _mm512_set1_epi32(2 * v));
    const __m512i index =
        _mm512_multishift_epi64_epi8(fields, _mm512_permutexvar_epi32(order, packed));
    const __m512i even = _mm512_permutexvar_epi16(index, fp4_table<F>(even_scales[block]));
    b[v] = bits_as<f32v>(
        _mm512_mask_permutexvar_epi16(even, 0xaaaaaaaau, index, fp4_table<F>(odd_scales[block])));
  }
}

// Eight scales of each of 16 rows, with the rows in the lanes.
struct Fp4Scales {
  f32v value[8];
};
template <Format F>
HALFTONE_INLINE void load_scales(const uint8_t* const* rows, int64_t first, int64_t count,
                                 Fp4Scales* scales) {
  EncodedScales encoded;
  load_encoded_scales(rows, first, count, &encoded);
  for (int i = 0; i < 8; ++i) {
    const auto scale_code = bits_as<u8v>(encoded.encoded[i]);
    scales->value[i] =
        scale_format_of(F) == Format::fp8_e4m3 ? decode_e4m3(scale_code) : decode_ue8m0(scale_code);
  }
}

// Takes the upper halves of two vectors as pairs.
HALFTONE_INLINE __m512i upper_halves() {
  alignas(64) static constexpr uint16_t kUpper[32] = {1,  33, 3,  35, 5,  37, 7,  39, 9,  41, 11,
                                                      43, 13, 45, 15, 47, 17, 49, 19, 51, 21, 53,
                                                      23, 55, 25, 57, 27, 59, 29, 61, 31, 63};
  return load_raw<__m512i>(kUpper);
}

// x: 8 values of each of 16 rows. Stores four steps of pairs to out + i * stride. Values times the
// scale are exact in BF16, so the upper half of the FP32 is the value.
HALFTONE_INLINE void dequantise_columns(u32v x, f32v scale, uint32_t* out, int64_t stride) {
  const __m512 table = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f,
                                      -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const auto value = [&](int nibble) {  // the permutation looks at the low four bits only
      const auto code = bits_as<__m512i>(x >> (4 * nibble));
      return bits_as<u32v>(bits_as<f32v>(_mm512_permutexvar_ps(code, table)) * scale);
    };
    store_raw(out + i * stride,
              _mm512_permutex2var_epi16(bits_as<__m512i>(value(2 * i)), upper_halves(),
                                        bits_as<__m512i>(value(2 * i + 1))));
  }
}

// The same with `shift` added to the exponents of the values that are not 0.
HALFTONE_INLINE void shift_columns(__m512i x, __m512i shift, uint32_t* out, int64_t stride) {
  const __m512i table = load_raw<__m512i>(decode_detail::kE2m1Words.entry);
  // Bit offsets of nibbles 0 and 1 in the words of both 32-bit halves.
  const __m512i fields = _mm512_set1_epi64(0x2424202004040000);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i field = _mm512_add_epi8(fields, _mm512_set1_epi8(static_cast<char>(8 * i)));
    const __m512i index = _mm512_multishift_epi64_epi8(field, x);
    store_raw(out + i * stride, add_exponent(_mm512_permutexvar_epi16(index, table), shift));
  }
}

}  // namespace halftone::HALFTONE_LEVEL
#endif
