// Fused dot products on vectors: compiled once per ISA level, the same bits at each.
#include "sim/numerics/mma_kernels.h"
#include "simd/lanes.h"

namespace halftone::HALFTONE_LEVEL {
namespace {

using sim::MmaGroups;
using sim::MmaIntegers;
using sim::MmaRule;
using sim::MmaVectors;

constexpr int kHalf = kLanes / 2;
typedef float f32h __attribute__((vector_size(kHalf * 4)));
typedef int32_t i32h __attribute__((vector_size(kHalf * 4)));
typedef double f64h __attribute__((vector_size(kHalf * 8)));
typedef int64_t i64h __attribute__((vector_size(kHalf * 8)));

// Columns of the product that one pass takes: the loads of A serve all of them.
constexpr int kColumns = 4;

HALFTONE_INLINE i32v larger(i32v a, i32v b) {
#if defined(__AVX512F__)
  return bits_as<i32v>(_mm512_maskz_max_epi32(0xffff, bits_as<__m512i>(a), bits_as<__m512i>(b)));
#elif defined(__AVX2__)
  return bits_as<i32v>(_mm256_max_epi32(bits_as<__m256i>(a), bits_as<__m256i>(b)));
#elif defined(__SSE4_1__)
  return bits_as<i32v>(_mm_max_epi32(bits_as<__m128i>(a), bits_as<__m128i>(b)));
#else
  return a > b ? a : b;
#endif
}
HALFTONE_INLINE i32v smaller(i32v a, i32v b) { return -larger(-a, -b); }
// Towards zero.
HALFTONE_INLINE i32v truncated(f32v x) {
#if defined(__AVX512F__)
  return bits_as<i32v>(_mm512_maskz_cvttps_epi32(0xffff, bits_as<__m512>(x)));
#elif defined(__AVX2__)
  return bits_as<i32v>(_mm256_cvttps_epi32(bits_as<__m256>(x)));
#else
  return __builtin_convertvector(x, i32v);
#endif
}

template <class Half, class Full>
HALFTONE_INLINE Half half(const Full& x, int which) {
  Half y;
  std::memcpy(&y, reinterpret_cast<const char*>(&x) + which * sizeof y, sizeof y);
  return y;
}

// Exponents as the tensor core sees those of FP32 values; zeros have none.
HALFTONE_INLINE i32v exponents_of(f32v x, int min_exponent) {
  const u32v magnitude = bits_as<u32v>(x) & 0x7fffffffu;
  const i32v exponent = larger(bits_as<i32v>(magnitude >> 23) - 127, broadcast_i32(min_exponent));
  return magnitude == 0 ? broadcast_i32(sim::kMmaZeroExponent) : exponent;
}

// 2^exponent for exponents of normal values.
HALFTONE_INLINE f64h power(i64h exponent) { return bits_as<f64h>((exponent + 1023) << 52); }

// sum * 2^exponent, rounded as the rule says, as FP32. Sums are exact integers.
template <MmaRule::Output kOutput>
HALFTONE_INLINE f32h rounded(f64h sum, i64h exponent) {
  constexpr bool kF16 = kOutput == MmaRule::Output::f16;
  constexpr int kFraction = kF16 ? 10 : kOutput == MmaRule::Output::f32 ? 23 : 13;
  constexpr int64_t kMinExponent = kF16 ? -14 : -126;
  const f64h value = sum * power(exponent);
  i64h leading = ((bits_as<i64h>(value) >> 52) & 0x7ff) - 1023;
  leading = leading > kMinExponent ? leading : kMinExponent + i64h{};
  const f64h scaled = value * power(kFraction - leading);
  if constexpr (kF16) {
    const double shift = 0x1.8p52;  // the sum has no bits below 1
    const f64h whole = ((scaled + shift) - shift) * power(leading - kFraction);
    const f64h magnitude = whole < 0 ? -whole : whole;
    const f64h infinity = __builtin_inf() + f64h{};
    return __builtin_convertvector(magnitude > 65504.0 ? (whole < 0 ? -infinity : infinity) : whole,
                                   f32h);
  } else {
    const i32h whole = __builtin_convertvector(scaled, i32h);
    return __builtin_convertvector(
        __builtin_convertvector(whole, f64h) * power(leading - kFraction), f32h);
  }
}

// The bits of x, with the one NaN that the unit writes.
HALFTONE_INLINE u32v one_nan(f32v x) {
  const u32v bits = bits_as<u32v>(x);
  return (bits & 0x7fffffffu) > 0x7f800000u ? broadcast_u32(0x7fffffffu) : bits;
}

// One column of the result for one vector of rows, exponents within FP32's comfort: every product
// is exact in FP32, or so small that it is cut off whole.
// Sixteen products of less than 4 * 2^25 fit a 32-bit sum.
constexpr int kTermsOfSum = 16;

// Where `largest` may lie for that: 2^(25 - largest) is a normal number, products of this size
// do not overflow, and what underflows lies more than 25 bits below.
constexpr int kSmallestNarrow = -90, kLargestNarrow = 120;

// Exponents of any size: the same in FP64.
template <MmaRule::Output kOutput>
HALFTONE_INLINE f32v wide_column(const MmaVectors& x, int fraction_bits, int row, int column,
                                 int begin, int end, i32v largest, i32v scale, f32v c) {
  f32v result;
  for (int h = 0; h < 2; ++h) {
    const i64h exponent = __builtin_convertvector(half<i32h>(largest, h), i64h);
    const i64h shift = fraction_bits - exponent;
    // Block scales are part of `largest`; far smaller products vanish, whatever the power is.
    i64h product_shift = shift + __builtin_convertvector(half<i32h>(scale, h), i64h);
    product_shift = product_shift < -900 ? -900 + i64h{} : product_shift;
    product_shift = product_shift > 900 ? 900 + i64h{} : product_shift;
    const f64h factor = power(product_shift);
    const auto whole = [](f64h v) __attribute__((always_inline)) {
      return __builtin_convertvector(__builtin_convertvector(v, i32h), f64h);
    };
    f64h sum = whole(__builtin_convertvector(half<f32h>(c, h), f64h) * power(shift));
    for (int k = begin; k < end; ++k) {
      const f64h a = __builtin_convertvector(
          load_raw<f32h>(x.a_values + k * x.a_stride + row + h * kHalf), f64h);
      sum += whole(a * static_cast<double>(x.b_values[column * x.b_stride + k]) * factor);
    }
    const f32h part = rounded<kOutput>(sum, exponent - fraction_bits);
    std::memcpy(reinterpret_cast<char*>(&result) + h * sizeof part, &part, sizeof part);
  }
  return result;
}

template <MmaRule::Output kOutput, int kCount>
HALFTONE_INLINE void fused_columns(const MmaVectors& x, int fraction_bits, int row, int column,
                                   int begin, int end) {
  constexpr int kMinExponent = kOutput == MmaRule::Output::f16 ? -14 : -126;
  i32v largest[kCount], scale[kCount];
  f32v c[kCount];
  for (int j = 0; j < kCount; ++j) largest[j] = broadcast_i32(2 * sim::kMmaZeroExponent);
  const int32_t* eb = x.b_exponents + column * x.b_stride;
  for (int k = begin; k < end; ++k) {
    const i32v ea = load_raw<i32v>(x.a_exponents + k * x.a_stride + row);
    for (int j = 0; j < kCount; ++j) largest[j] = larger(largest[j], ea + eb[j * x.b_stride + k]);
  }
  i32v special[kCount], outside = {};
  for (int j = 0; j < kCount; ++j) {
    c[j] = load_raw<f32v>(x.sums + (column + j) * x.a_stride + row);
    scale[j] = i32v{};
    if (x.a_scales != nullptr) scale[j] = load_raw<i32v>(x.a_scales + row) + x.b_scales[column + j];
    special[j] = (bits_as<u32v>(c[j]) & 0x7f800000u) == 0x7f800000u;
    const f32v finite = bits_as<f32v>(bits_as<i32v>(c[j]) & ~special[j]);
    largest[j] = larger(largest[j] + scale[j], exponents_of(finite, kMinExponent));
    // Lanes without any term give zero with any exponent.
    largest[j] = largest[j] < sim::kMmaNoExponent ? i32v{} : largest[j];
    outside |= (largest[j] < kSmallestNarrow) | (largest[j] > kLargestNarrow);
  }
  f32v result[kCount];
  if (any(outside)) {
    for (int j = 0; j < kCount; ++j) {
      const f32v finite = bits_as<f32v>(bits_as<i32v>(c[j]) & ~special[j]);
      result[j] = wide_column<kOutput>(x, fraction_bits, row, column + j, begin, end, largest[j],
                                       scale[j], finite);
    }
  } else {
    f32v factor[kCount];
    f64h sum[kCount][2];
    for (int j = 0; j < kCount; ++j) {
      const i32v shift = fraction_bits + 127 - largest[j];
      const i32v product_shift =
          smaller(larger(shift + scale[j], broadcast_i32(1)), broadcast_i32(254));
      factor[j] = bits_as<f32v>(product_shift << 23);
      const f32v finite = bits_as<f32v>(bits_as<i32v>(c[j]) & ~special[j]);
      const i32v whole = truncated(finite * bits_as<f32v>(shift << 23));
      for (int h = 0; h < 2; ++h) sum[j][h] = __builtin_convertvector(half<i32h>(whole, h), f64h);
    }
    const float* b = x.b_values + column * x.b_stride;
    for (int k = begin; k < end;) {
      const int stop = end - k > kTermsOfSum ? k + kTermsOfSum : end;
      i32v part[kCount] = {};
      for (; k < stop; ++k) {
        const f32v a = load_raw<f32v>(x.a_values + k * x.a_stride + row);
        for (int j = 0; j < kCount; ++j)
          part[j] += truncated(a * b[j * x.b_stride + k] * factor[j]);
      }
      for (int j = 0; j < kCount; ++j)
        for (int h = 0; h < 2; ++h)
          sum[j][h] += __builtin_convertvector(half<i32h>(part[j], h), f64h);
    }
    for (int j = 0; j < kCount; ++j) {
      for (int h = 0; h < 2; ++h) {
        const i64h exponent = __builtin_convertvector(half<i32h>(largest[j], h), i64h);
        const f32h part = rounded<kOutput>(sum[j][h], exponent - fraction_bits);
        std::memcpy(reinterpret_cast<char*>(&result[j]) + h * sizeof part, &part, sizeof part);
      }
    }
  }
  for (int j = 0; j < kCount; ++j) {
    store_raw(x.sums + (column + j) * x.a_stride + row,
              special[j] != 0 ? one_nan(c[j]) : bits_as<u32v>(result[j]));
  }
}

template <MmaRule::Output kOutput>
void fused_output(const MmaRule& rule, const MmaVectors& x) {
  for (int row = 0; row < x.rows; row += kLanes) {
    for (int begin = 0; begin < x.k; begin += rule.k) {
      const int end = x.k - begin > rule.k ? begin + rule.k : x.k;
      int column = 0;
      for (; column + kColumns <= x.n; column += kColumns)
        fused_columns<kOutput, kColumns>(x, rule.fraction_bits, row, column, begin, end);
      for (; column < x.n; ++column)
        fused_columns<kOutput, 1>(x, rule.fraction_bits, row, column, begin, end);
    }
  }
}

void fused(const MmaRule& rule, const MmaVectors& x) {
  switch (rule.output) {
    case MmaRule::Output::f32:
      return fused_output<MmaRule::Output::f32>(rule, x);
    case MmaRule::Output::f32_e8m13:
      return fused_output<MmaRule::Output::f32_e8m13>(rule, x);
    default:
      return fused_output<MmaRule::Output::f16>(rule, x);
  }
}

template <int kCount>
HALFTONE_INLINE void multiply_add_columns(const MmaVectors& x, int row, int column) {
  f32v sum[kCount];
  for (int j = 0; j < kCount; ++j)
    sum[j] = load_raw<f32v>(x.sums + (column + j) * x.a_stride + row);
  const float* b = x.b_values + column * x.b_stride;
  for (int k = 0; k < x.k; ++k) {
    const f32v a = load_raw<f32v>(x.a_values + k * x.a_stride + row);
    for (int j = 0; j < kCount; ++j) {
#if defined(__AVX512F__)
      sum[j] = bits_as<f32v>(_mm512_fmadd_ps(
          bits_as<__m512>(a), _mm512_set1_ps(b[j * x.b_stride + k]), bits_as<__m512>(sum[j])));
#elif defined(__FMA__)
      sum[j] = bits_as<f32v>(_mm256_fmadd_ps(
          bits_as<__m256>(a), _mm256_set1_ps(b[j * x.b_stride + k]), bits_as<__m256>(sum[j])));
#else
      sum[j] += a * b[j * x.b_stride + k];
#endif
    }
  }
  for (int j = 0; j < kCount; ++j) store_raw(x.sums + (column + j) * x.a_stride + row, sum[j]);
}

void multiply_add(const MmaVectors& x) {
  constexpr int kMany = 2 * kColumns;  // enough chains to hide the latency of an addition
  for (int row = 0; row < x.rows; row += kLanes) {
    int column = 0;
    for (; column + kMany <= x.n; column += kMany) multiply_add_columns<kMany>(x, row, column);
    for (; column < x.n; ++column) multiply_add_columns<1>(x, row, column);
  }
}

void integer(const MmaIntegers& x) {
  for (int row = 0; row < x.rows; row += kLanes) {
    for (int column = 0; column < x.n; ++column) {
      i32v sum = {};
      for (int k = 0; k < x.k; ++k)
        sum += load_raw<i32v>(x.a + k * x.a_stride + row) * x.b[column * x.b_stride + k];
      store_raw(x.sums + column * x.a_stride + row, sum);
    }
  }
}

constexpr int kGroup = 16;

// The sum of one chunk for one column and one vector of rows.
HALFTONE_INLINE f32v grouped_column(const MmaRule& rule, const MmaGroups& x, int row, int column,
                                    int begin, int end, f32v c) {
  constexpr int kMaxGroups = 16;
  i32v term[kMaxGroups], exponent[kMaxGroups];
  i32v largest = exponents_of(c, -126);
  int count = 0;
  for (int k = begin; k < end; k += kGroup, ++count) {
    i32v sum = {};
    for (int i = k; i < k + kGroup; ++i)
      sum +=
          load_raw<i32v>(x.a + i * x.a_stride + row) * x.b[static_cast<int64_t>(column) * x.k + i];
    const int64_t at = k / kGroup, groups = x.k / kGroup;
    const i32v scale = load_raw<i32v>(x.a_significands + at * x.a_stride + row) *
                       x.b_significands[column * groups + at];
    term[count] = sum * scale;
    exponent[count] =
        load_raw<i32v>(x.a_exponents + at * x.a_stride + row) + x.b_exponents[column * groups + at];
    exponent[count] = scale == 0 ? broadcast_i32(sim::kMmaZeroExponent) : exponent[count];
    largest = larger(largest, exponent[count]);
  }
  largest = largest < sim::kMmaNoExponent ? i32v{} : largest;
  f32v result;
  for (int h = 0; h < 2; ++h) {
    const i64h top = __builtin_convertvector(half<i32h>(largest, h), i64h);
    // Terms of up to 46 bits: whole numbers in FP64.
    const auto whole = [](f64h v) __attribute__((always_inline)) {
      return __builtin_convertvector(__builtin_convertvector(v, i64h), f64h);
    };
    f64h sum =
        whole(__builtin_convertvector(half<f32h>(c, h), f64h) * power(rule.fraction_bits - top));
    for (int i = 0; i < count; ++i) {
      i64h shift = __builtin_convertvector(half<i32h>(exponent[i], h), i64h) - top;
      shift = shift < -900 ? -900 + i64h{} : shift;  // vanishes
      sum += whole(__builtin_convertvector(half<i32h>(term[i], h), f64h) *
                   power(shift + (rule.fraction_bits - 2 - x.fraction)));
    }
    const f32h part = rounded<MmaRule::Output::f32>(sum, top - rule.fraction_bits);
    std::memcpy(reinterpret_cast<char*>(&result) + h * sizeof part, &part, sizeof part);
  }
  return result;
}

void grouped(const MmaRule& rule, const MmaGroups& x) {
  for (int row = 0; row < x.rows; row += kLanes) {
    for (int column = 0; column < x.n; ++column) {
      float* at = x.sums + column * x.a_stride + row;
      for (int begin = 0; begin < x.k; begin += rule.k) {
        const int end = x.k - begin > rule.k ? begin + rule.k : x.k;
        const f32v c = load_raw<f32v>(at);
        const i32v special = (bits_as<u32v>(c) & 0x7f800000u) == 0x7f800000u;
        const f32v finite = bits_as<f32v>(bits_as<i32v>(c) & ~special);
        const f32v result = grouped_column(rule, x, row, column, begin, end, finite);
        store_raw(at, special != 0 ? one_nan(c) : bits_as<u32v>(result));
      }
    }
  }
}

// Splits off values that are not finite and stores; the scalar tails use the same vector code.
HALFTONE_INLINE i32v store_decoded(f32v value, i32v special, int min_exponent, bool finite,
                                   float* values, int32_t* exponents) {
  if (finite) value = bits_as<f32v>(bits_as<i32v>(value) & ~special);
  store_raw(values, value);
  store_raw(exponents, exponents_of(value, min_exponent));
  return special;
}

template <class Code, class Vector, class Decode>
HALFTONE_INLINE bool decode_all(const Code* codes, int n, int min_exponent, bool finite,
                                float* values, int32_t* exponents, Decode decode) {
  i32v special = {};
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    i32v here;
    const f32v value = decode(load_raw<Vector>(codes + i), here);
    special |= store_decoded(value, here, min_exponent, finite, values + i, exponents + i);
  }
  if (i < n) {
    Code tail[kLanes] = {};
    float value_tail[kLanes];
    int32_t exponent_tail[kLanes];
    std::memcpy(tail, codes + i, static_cast<size_t>(n - i) * sizeof(Code));
    i32v here;
    const f32v value = decode(load_raw<Vector>(tail), here);
    special |= store_decoded(value, here, min_exponent, finite, value_tail, exponent_tail);
    std::memcpy(values + i, value_tail, static_cast<size_t>(n - i) * 4);
    std::memcpy(exponents + i, exponent_tail, static_cast<size_t>(n - i) * 4);
  }
  return any(special);
}

bool decode16(bool bf16, const uint16_t* codes, int n, int min_exponent, bool finite, float* values,
              int32_t* exponents) {
  if (bf16) {
    return decode_all<uint16_t, u16v>(
        codes, n, min_exponent, finite, values, exponents,
        [](u16v x, i32v & special) __attribute__((always_inline)) {
          const u32v wide = widen_u16(x) << 16;
          special = (wide & 0x7f800000u) == 0x7f800000u;
          return bits_as<f32v>(wide);
        });
  }
  return decode_all<uint16_t, u16v>(
      codes, n, min_exponent, finite, values, exponents,
      [](u16v x, i32v & special) __attribute__((always_inline)) {
        const u32v wide = widen_u16(x);
        special = (wide & 0x7c00u) == 0x7c00u;
        // The multiplication moves the exponent's bias and normalises subnormals.
        const f32v moved = bits_as<f32v>((wide & 0x7fffu) << 13) * 0x1p112f;
        const u32v top = bits_as<u32v>(special) & 0x7f800000u;
        return bits_as<f32v>(bits_as<u32v>(moved) | top | ((wide & 0x8000u) << 16));
      });
}

bool decode32(const uint32_t* codes, int n, int min_exponent, bool finite, float* values,
              int32_t* exponents) {
  return decode_all<uint32_t, u32v>(
      codes, n, min_exponent, finite, values, exponents,
      [](u32v x, i32v & special) __attribute__((always_inline)) {
        const u32v kept = x & 0xffffe000u;
        special = (kept & 0x7f800000u) == 0x7f800000u;
        return bits_as<f32v>(kept);
      });
}

bool decode8(const float* table, const uint8_t* codes, int n, int min_exponent, bool finite,
             float* values, int32_t* exponents) {
  bool special = false;
  for (int i = 0; i < n; i += kLanes) {
    const int count = n - i < kLanes ? n - i : kLanes;
    float lane[kLanes] = {};
    for (int j = 0; j < count; ++j) lane[j] = table[codes[i + j]];
    const f32v value = load_raw<f32v>(lane);
    const i32v here = (bits_as<u32v>(value) & 0x7f800000u) == 0x7f800000u;
    float value_lane[kLanes];
    int32_t exponent_lane[kLanes];
    special |= any(store_decoded(value, here, min_exponent, finite, value_lane, exponent_lane));
    std::memcpy(values + i, value_lane, static_cast<size_t>(count) * 4);
    std::memcpy(exponents + i, exponent_lane, static_cast<size_t>(count) * 4);
  }
  return special;
}

}  // namespace

extern const sim::MmaKernels kMmaKernels;
const sim::MmaKernels kMmaKernels = {fused,    multiply_add, integer, grouped,
                                     decode16, decode32,     decode8};

}  // namespace halftone::HALFTONE_LEVEL
