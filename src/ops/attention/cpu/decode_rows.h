// Rows of V as operands of the P V of decode on the CPU, for ISA levels with VDPBF16PS: 64 columns
// of two rows at a time, dequantised in registers.
#pragma once
#include <type_traits>

#include "ops/attention/cpu/decode_dequantise.h"
#include "ops/attention/cpu/values.h"

#if defined(__AVX512BF16__)
namespace halftone::HALFTONE_LEVEL {

// Which of 64 columns lane j of vector v holds while a chunk is accumulated.
enum class Columns { natural, lanes, words, parity };
constexpr int column_of(Columns order, int v, int j) {
  return order == Columns::lanes    ? j / 4 * 16 + 4 * v + j % 4
         : order == Columns::words  ? 4 * j + v
         : order == Columns::parity ? v / 2 * 32 + 2 * j + v % 2
                                    : 16 * v + j;
}

// Permutes four vectors to (or, kBack, from) natural column order.
template <Columns kOrder, bool kBack = false>
HALFTONE_INLINE void reorder(f32v (&x)[4]) {
  struct Source {
    uint32_t index[4][16];  // lane of the first or second pair of vectors
    uint16_t second[4];
  };
  alignas(64) static constexpr Source kSource = [] {
    Source t{};
    for (int v = 0; v < 4; ++v) {
      for (int j = 0; j < 16; ++j) {
        const int column = column_of(kOrder, v, j);
        // Element `column` of the natural order is lane j of vector v.
        const int to = kBack ? v * 16 + j : column, from = kBack ? column : v * 16 + j;
        t.index[to / 16][to % 16] = static_cast<uint32_t>(from % 32);
        if (from >= 32) t.second[to / 16] = static_cast<uint16_t>(t.second[to / 16] | 1 << to % 16);
      }
    }
    return t;
  }();
  f32v y[4];
  for (int v = 0; v < 4; ++v) {
    const auto index = load_raw<__m512i>(kSource.index[v]);
    const __m512 low = _mm512_permutex2var_ps(bits_as<__m512>(x[0]), index, bits_as<__m512>(x[1]));
    const __m512 high = _mm512_permutex2var_ps(bits_as<__m512>(x[2]), index, bits_as<__m512>(x[3]));
    y[v] = bits_as<f32v>(_mm512_mask_blend_ps(kSource.second[v], low, high));
  }
  for (int v = 0; v < 4; ++v) x[v] = y[v];
}

// 64 columns of one row (FP32 dot products) or of two as pairs, from `at` bytes on; the scales of
// the columns are `scale_at` bytes on. all_in_tables() says whether all values met were in the
// tables.
template <Format F>
struct ValuePair;

template <>
struct ValuePair<Format::f32> {
  static constexpr Columns kColumns = Columns::natural;
  static constexpr int kBytes = 256;
  HALFTONE_INLINE void load(const RowPointer* rows, int64_t at, int64_t, f32v (&b)[4]) {
    for (int v = 0; v < 4; ++v) b[v] = load_raw<f32v>(rows[0].data + at + 64 * v);
  }
  HALFTONE_INLINE bool all_in_tables() const { return true; }
};
template <>
struct ValuePair<Format::f16> {
  static constexpr Columns kColumns = Columns::natural;
  static constexpr int kBytes = 128;
  HALFTONE_INLINE void load(const RowPointer* rows, int64_t at, int64_t, f32v (&b)[4]) {
    for (int v = 0; v < 4; ++v) b[v] = widen_f16(load_raw<u16v>(rows[0].data + at + 32 * v));
  }
  HALFTONE_INLINE bool all_in_tables() const { return true; }
};
template <>
struct ValuePair<Format::bf16> {
  static constexpr Columns kColumns = Columns::natural;
  static constexpr int kBytes = 128;
  HALFTONE_INLINE void load(const RowPointer* rows, int64_t at, int64_t, f32v (&b)[4]) {
    const uint16_t* pair[2] = {reinterpret_cast<const uint16_t*>(rows[0].data + at),
                               reinterpret_cast<const uint16_t*>(rows[1].data + at)};
    load_step(pair, 0, b);
  }
  HALFTONE_INLINE bool all_in_tables() const { return true; }
};

// Two rows of BF16 as stored, half a row a vector: split into even and odd columns. Saves the
// shuffles of pairing.
struct ValueHalves {
  static constexpr Columns kColumns = Columns::parity;
  static constexpr int kBytes = 128;
  HALFTONE_INLINE void load(const RowPointer* rows, int64_t at, int64_t, f32v (&b)[4]) {
    for (int v = 0; v < 4; ++v) b[v] = load_raw<f32v>(rows[v / 2].data + at + 64 * (v % 2));
  }
  HALFTONE_INLINE bool all_in_tables() const { return true; }
};
template <class Dot, Format F>
using ValuesOf = std::conditional_t<std::is_same_v<Dot, SplitBf16Dot> && F == Format::bf16,
                                    ValueHalves, ValuePair<F>>;

// Bytes of two rows interleaved before they are looked up: half the shuffles of pairing words.
template <bool kInt8>
struct BytePair {
  static constexpr Columns kColumns = Columns::lanes;
  static constexpr int kBytes = 64;
  __m512i most = _mm512_setzero_si512();  // of the magnitudes looked up
  HALFTONE_INLINE void words(const RowPointer* rows, int64_t at, __m512i (&b)[4]) {
    const auto even = load_raw<__m512i>(rows[0].data + at);
    const auto odd = load_raw<__m512i>(rows[1].data + at);
    const Fp8Bytes first = look_up<kInt8>(_mm512_unpacklo_epi8(even, odd));
    const Fp8Bytes last = look_up<kInt8>(_mm512_unpackhi_epi8(even, odd));
    b[0] = _mm512_unpacklo_epi8(first.low, first.high);
    b[1] = _mm512_unpackhi_epi8(first.low, first.high);
    b[2] = _mm512_unpacklo_epi8(last.low, last.high);
    b[3] = _mm512_unpackhi_epi8(last.low, last.high);
    most = _mm512_max_epu8(most, _mm512_max_epu8(first.magnitude, last.magnitude));
  }
  HALFTONE_INLINE void load(const RowPointer* rows, int64_t at, int64_t, f32v (&b)[4]) {
    __m512i x[4];
    words(rows, at, x);
    for (int v = 0; v < 4; ++v) b[v] = bits_as<f32v>(x[v]);
  }
  HALFTONE_INLINE bool all_in_tables() const { return !kInt8 || _mm512_movepi8_mask(most) == 0; }
};
template <>
struct ValuePair<Format::fp8_e4m3> : BytePair<false> {};
template <>
struct ValuePair<Format::int8> : BytePair<true> {};

// The scales of two rows' blocks of 32, in the words of the lanes of their columns, as what to add
// to BF16 exponents; scales of 2^-64 to 2^64 keep every value normal.
struct PairShifts {
  __m512i least = _mm512_set1_epi16(127), most = least;
  HALFTONE_INLINE __m512i load(const RowPointer* rows, int64_t scale_at) {
    uint16_t even, odd;
    std::memcpy(&even, rows[0].scales + scale_at, 2);
    std::memcpy(&odd, rows[1].scales + scale_at, 2);
    const __m512i packed = _mm512_set1_epi32(static_cast<int>(even | uint32_t{odd} << 16));
    const __m256i first = _mm256_set1_epi32(static_cast<int>(0x80028000));
    const __m256i second = _mm256_set1_epi32(static_cast<int>(0x80038001));
    const __m512i order = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
    const __m512i scales = _mm512_shuffle_epi8(packed, order);
    least = _mm512_min_epu16(least, scales);
    most = _mm512_max_epu16(most, scales);
    return _mm512_slli_epi16(_mm512_sub_epi16(scales, _mm512_set1_epi16(127)), 7);
  }
  HALFTONE_INLINE bool all_in_tables() const {
    return (_mm512_cmplt_epu16_mask(least, _mm512_set1_epi16(63)) |
            _mm512_cmpgt_epu16_mask(most, _mm512_set1_epi16(191))) == 0;
  }
};

template <>
struct ValuePair<Format::mxfp8> {
  static constexpr Columns kColumns = Columns::lanes;
  static constexpr int kBytes = 64;
  BytePair<false> bytes;
  PairShifts shifts;
  HALFTONE_INLINE void load(const RowPointer* rows, int64_t at, int64_t scale_at, f32v (&b)[4]) {
    __m512i x[4];
    bytes.words(rows, at, x);
    const __m512i shift = shifts.load(rows, scale_at);
    for (int v = 0; v < 4; ++v) b[v] = bits_as<f32v>(add_exponent(x[v], shift));
  }
  // The upper byte of NaN is 0x7f, that of numbers at most 0x43.
  HALFTONE_INLINE bool all_in_tables() const {
    return _mm512_cmpeq_epi8_mask(bytes.most, _mm512_set1_epi8(0x7f)) == 0 &&
           shifts.all_in_tables();
  }
};

// Word j of both rows interleaved: columns 4 j .. 4 j + 3.
template <>
struct ValuePair<Format::mxfp4> {
  static constexpr Columns kColumns = Columns::words;
  static constexpr int kBytes = 32;
  PairShifts shifts;
  HALFTONE_INLINE void load(const RowPointer* rows, int64_t at, int64_t scale_at, f32v (&b)[4]) {
    alignas(64) static constexpr uint16_t kPairs[32] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                                        37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                                        11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    const __m512i even = _mm512_castsi256_si512(load_raw<__m256i>(rows[0].data + at));
    const __m512i odd = _mm512_castsi256_si512(load_raw<__m256i>(rows[1].data + at));
    const __m512i packed = _mm512_permutex2var_epi16(even, load_raw<__m512i>(kPairs), odd);
    const __m512i shift = shifts.load(rows, scale_at);
    const auto table = load_raw<__m512i>(decode_detail::kE2m1Words.entry);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      const __m512i index =
          v == 0 ? packed : _mm512_srli_epi16(packed, static_cast<unsigned>(4 * v));
      b[v] = bits_as<f32v>(add_exponent(_mm512_permutexvar_epi16(index, table), shift));
    }
  }
  HALFTONE_INLINE bool all_in_tables() const { return shifts.all_in_tables(); }
};

// Every scale has its table of 16 products; see Fp4Row.
template <>
struct ValuePair<Format::nvfp4> {
  static constexpr Columns kColumns = Columns::natural;
  static constexpr int kBytes = 32;
  HALFTONE_INLINE void load(const RowPointer* rows, int64_t at, int64_t scale_at, f32v (&b)[4]) {
    const Fp4Row<Format::nvfp4> pair[2] = {{rows[0].data + at, rows[0].scales + scale_at},
                                           {rows[1].data + at, rows[1].scales + scale_at}};
    load_step(pair, 0, b);
  }
  HALFTONE_INLINE bool all_in_tables() const { return true; }
};

// Rows dequantised before, for values that are in no table.
template <Format F>
struct DequantisedPair {
  static constexpr Columns kColumns = ValuePair<F>::kColumns;
  static constexpr int kBytes = 0;
  HALFTONE_INLINE void load(const RowPointer* rows, int64_t at, int64_t, f32v (&b)[4]) {
    ValuePair<Format::bf16>().load(rows, at, 0, b);
    reorder<kColumns, true>(b);
  }
  HALFTONE_INLINE bool all_in_tables() const { return true; }
};

}  // namespace halftone::HALFTONE_LEVEL
#endif
