// GEMM y = x W^T on CPUs for many rows of x, for one ISA level: register tiles of kTileRows rows of
// x by kTileColumns rows of W, which are dequantised into a strip first. `A` is the arithmetic: its
// vector type, the steps of a chunk and the multiply-add (f32.cpp, bf16.cpp).
#pragma once
#include "ops/gemm/cpu/prefetch.h"
#include "ops/gemm/cpu/scales.h"

namespace halftone::HALFTONE_LEVEL {

#if defined(__AVX512F__)
// Adds the lanes of 8 vectors, each by halving as reduce_add does.
HALFTONE_INLINE __m256 reduce_eight(const f32v v[8]) {
  __m512 q[2];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const __m512 a = bits_as<__m512>(v[i]), b = bits_as<__m512>(v[i + 2]);
    const __m512 c = bits_as<__m512>(v[i + 4]), d = bits_as<__m512>(v[i + 6]);
    const __m512 ab =
        _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    const __m512 cd =
        _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
    q[i] = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
  }
  // Quarters now hold rows 0, 2, 4, 6 (q[0]) and 1, 3, 5, 7 (q[1]), four lanes each.
  const __m512d x = _mm512_castps_pd(q[0]), y = _mm512_castps_pd(q[1]);
  const __m512 pairs = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)),
                                     _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
  const __m512 sums = _mm512_add_ps(pairs, _mm512_permute_ps(pairs, 0xb1));
  const __m512i pick = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 0, 0, 0, 0, 0, 0, 0, 0);
  return _mm512_castps512_ps256(_mm512_permutexvar_ps(pick, sums));
}

HALFTONE_INLINE __m128 reduce_four(const f32v v[4]) {
  const __m512 a = bits_as<__m512>(v[0]), b = bits_as<__m512>(v[1]);
  const __m512 c = bits_as<__m512>(v[2]), d = bits_as<__m512>(v[3]);
  const __m512 ab =
      _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  const __m512 cd =
      _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
  const __m512 q =
      _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
  const __m512 pairs = _mm512_add_ps(q, _mm512_permute_ps(q, 0x4e));
  const __m512 sums = _mm512_add_ps(pairs, _mm512_permute_ps(pairs, 0xb1));
  const __m512i pick = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  return _mm512_castps512_ps128(_mm512_permutexvar_ps(pick, sums));
}
#elif defined(__AVX2__)
HALFTONE_INLINE __m128 reduce_four(const f32v v[4]) {
  const __m256 a = bits_as<__m256>(v[0]), b = bits_as<__m256>(v[1]);
  const __m256 c = bits_as<__m256>(v[2]), d = bits_as<__m256>(v[3]);
  const __m256 ac =
      _mm256_add_ps(_mm256_permute2f128_ps(a, c, 0x20), _mm256_permute2f128_ps(a, c, 0x31));
  const __m256 bd =
      _mm256_add_ps(_mm256_permute2f128_ps(b, d, 0x20), _mm256_permute2f128_ps(b, d, 0x31));
  const __m256d x = _mm256_castps_pd(ac), y = _mm256_castps_pd(bd);
  const __m256 pairs = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)),
                                     _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
  const __m256 sums = _mm256_add_ps(pairs, _mm256_permute_ps(pairs, 0xb1));
  const __m256i pick = _mm256_setr_epi32(0, 2, 4, 6, 0, 0, 0, 0);
  return _mm256_castps256_ps128(_mm256_permutevar8x32_ps(sums, pick));
}
#endif

// 24 accumulators of 3 rows of x and 8 of W leave room for the operands in 32 registers; 12 of 3
// and 4 in 16. Either way there are enough independent accumulators to hide the latency of the FMA.
inline constexpr int kTileRows = 3;
inline constexpr int kTileColumns = kLanes == 16 ? 8 : 4;

// sums[0..kTileColumns) += the lanes of v, or = when first.
HALFTONE_INLINE void add_lanes(const f32v v[kTileColumns], float* sums, bool first) {
#if defined(__AVX512F__)
  const __m256 r = reduce_eight(v);
  _mm256_storeu_ps(sums, first ? r : _mm256_add_ps(_mm256_loadu_ps(sums), r));
#elif defined(__AVX2__)
  const __m128 r = reduce_four(v);
  _mm_storeu_ps(sums, first ? r : _mm_add_ps(_mm_loadu_ps(sums), r));
#else
  for (int n = 0; n < kTileColumns; ++n) {
    const float r = reduce_add(v[n]);
    sums[n] = first ? r : sums[n] + r;
  }
#endif
}

// Which operands have scales within the row.
enum class Scaled { none, weight, both };

// kColumns columns, from `column` on, of kRows rows of x (`row` bytes apart) times a strip. With
// scales an accumulator holds one chunk, and is scaled and added to the total.
template <class A, Scaled kWhich, int kRows, int kColumns>
HALFTONE_INLINE void gemm_columns(const unsigned char* x, int64_t row, const unsigned char* strip,
                                  const float* scales, [[maybe_unused]] const float* x_scales,
                                  int64_t chunks, int column, f32v total[kRows][kTileColumns]) {
  constexpr bool kScaled = kWhich != Scaled::none;
  [[maybe_unused]] constexpr int64_t kScaleRow = int64_t{A::kBlockChunks} * kLanes;
  typedef typename A::Vector Vector;
  constexpr int kSize = sizeof(Vector);
  strip += column * kSize;
  scales += column * kLanes;
  f32v acc[kRows][kColumns] = {}, sum[kRows][kColumns] = {};
  for (int64_t c = 0; c < chunks; ++c) {
#pragma GCC unroll 2
    for (int j = 0; j < A::kSteps; ++j) {
      Vector xs[kRows];
#pragma GCC unroll 3
      for (int m = 0; m < kRows; ++m) xs[m] = load_raw<Vector>(x + m * row);
      x += kSize;
#pragma GCC unroll 8
      for (int n = 0; n < kColumns; ++n) {
        const Vector ws = load_raw<Vector>(strip + n * kSize);
#pragma GCC unroll 3
        for (int m = 0; m < kRows; ++m) acc[m][n] = A::multiply_add(ws, xs[m], acc[m][n]);
      }
      strip += kTileColumns * kSize;
    }
    if constexpr (kScaled) {
#pragma GCC unroll 8
      for (int n = 0; n < kColumns; ++n) {
        const f32v s = load_raw<f32v>(scales + n * kLanes);
#pragma GCC unroll 3
        for (int m = 0; m < kRows; ++m) {
          if constexpr (kWhich == Scaled::both) {
            const f32v both = s * load_raw<f32v>(x_scales + m * kScaleRow);
            sum[m][n] = fma(acc[m][n], both, sum[m][n]);
          } else {
            sum[m][n] = fma(acc[m][n], s, sum[m][n]);
          }
          acc[m][n] = f32v{};
        }
      }
      scales += kTileColumns * kLanes;
      if constexpr (kWhich == Scaled::both) x_scales += kLanes;
    }
  }
#pragma GCC unroll 3
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < kColumns; ++n) total[m][column + n] = kScaled ? sum[m][n] : acc[m][n];
  }
}

// One tile. With scales it is done in two halves, so that accumulators and totals fit the
// registers: a chunk's accumulators start from 0, so that half as many independent ones are enough.
template <class A, Scaled kWhich, int kRows>
HALFTONE_INLINE void gemm_tile(const unsigned char* x, int64_t row, const unsigned char* strip,
                               const float* scales, const float* x_scales, int64_t chunks,
                               float* sums, int64_t sums_stride, bool first) {
  f32v total[kRows][kTileColumns];
  if constexpr (kWhich != Scaled::none) {
    constexpr int kHalf = kTileColumns / 2;
    gemm_columns<A, kWhich, kRows, kHalf>(x, row, strip, scales, x_scales, chunks, 0, total);
    gemm_columns<A, kWhich, kRows, kHalf>(x, row, strip, scales, x_scales, chunks, kHalf, total);
  } else {
    gemm_columns<A, kWhich, kRows, kTileColumns>(x, row, strip, nullptr, nullptr, chunks, 0, total);
  }
#pragma GCC unroll 3
  for (int m = 0; m < kRows; ++m) add_lanes(total[m], sums + m * sums_stride, first);
}

template <class A, Scaled kWhich>
void gemm_rows(const gemm::GemmArgs& p) {
  const auto* x = static_cast<const unsigned char*>(p.x);
  const auto* strip = static_cast<const unsigned char*>(p.strip);
  const float* x_scales = p.x_scales;
  float* sums = p.sums;
  int64_t m = p.m;
  for (; m >= kTileRows; m -= kTileRows) {
    prefetch_lines(*p.prefetch);
    gemm_tile<A, kWhich, kTileRows>(x, p.x_row, strip, p.scales, x_scales, p.chunks, sums,
                                    p.sums_stride, p.first);
    x += kTileRows * p.x_row;
    if constexpr (kWhich == Scaled::both) x_scales += kTileRows * A::kBlockChunks * kLanes;
    sums += kTileRows * p.sums_stride;
  }
  if (m > 0) prefetch_lines(*p.prefetch);
  if (m == 2) {
    gemm_tile<A, kWhich, 2>(x, p.x_row, strip, p.scales, x_scales, p.chunks, sums, p.sums_stride,
                            p.first);
  }
  if (m == 1) {
    gemm_tile<A, kWhich, 1>(x, p.x_row, strip, p.scales, x_scales, p.chunks, sums, p.sums_stride,
                            p.first);
  }
}

template <class A>
void gemm_pass(const gemm::GemmArgs& p) {
  if (p.x_scales != nullptr) {
    gemm_rows<A, Scaled::both>(p);
  } else if (p.scales != nullptr) {
    gemm_rows<A, Scaled::weight>(p);
  } else {
    gemm_rows<A, Scaled::none>(p);
  }
}

// The packed values of the chunk in which K ends: copied and filled with the value 0, which meets
// zeros of x (every format decodes 0 to a finite number).
template <Code C, int kChunk>
HALFTONE_INLINE const uint8_t* partial_packed(const uint8_t* p, int64_t elements, uint8_t* copy) {
  const int64_t bytes = (elements * kBits<C> + 7) / 8;
#if defined(__AVX512BW__)
  // Otherwise it becomes string instructions: they start slowly, and loads wait for their stores.
  static_assert(kChunk * kBits<C> / 8 % 64 == 0);
  for (int64_t i = 0; i < kChunk * kBits<C> / 8; i += 64) {
    const int64_t left = bytes - i;
    const __mmask64 held = left >= 64 ? ~0ull : left > 0 ? (1ull << left) - 1 : 0;
    _mm512_store_si512(copy + i, _mm512_maskz_loadu_epi8(held, p + i));
  }
#else
  std::memset(copy, 0, kChunk * kBits<C> / 8);
  std::memcpy(copy, p, static_cast<size_t>(bytes));
#endif
  return copy;
}

// Dequantises `count` chunks, at most a block, of up to kTileColumns rows.
template <class A, Code C>
void dequantise_rows(const Weights& w, int64_t n0, int64_t rows, int64_t chunk0, int64_t count,
                     void* strip, float* scales) {
  typedef typename A::Vector Vector;
  constexpr int kBlock = A::kBlockChunks, kChunk = A::kPerLane * kLanes;
  constexpr int64_t kCodeBytes = kChunk * kBits<C> / 8;
  constexpr int64_t kStep = kTileColumns * sizeof(Vector);
  const int64_t whole = (chunk0 + count) * kChunk <= w.k ? count : count - 1;
  const bool scaled = scaled_in_row(w);
  const Groups groups = groups_of<A::kPerLane>(w);
  alignas(64) uint8_t copy[kCodeBytes];
  alignas(64) float row_scales[kBlock * kLanes] = {};
  alignas(64) int32_t zeros[kBlock * kLanes] = {};
  auto* out = static_cast<unsigned char*>(strip);
  for (int64_t r = 0; r < kTileColumns; ++r, out += sizeof(Vector), scales += kLanes) {
    if (r >= rows) {  // rows that do not exist are 0
      for (int64_t i = 0; i < count * A::kSteps; ++i) store_raw(out + i * kStep, Vector{});
      for (int64_t c = 0; scaled && c < count; ++c) {
        store_raw(scales + c * kTileColumns * kLanes, f32v{});
      }
      continue;
    }
    const uint8_t* packed = w.data + (n0 + r) * w.row_bytes + chunk0 * kCodeBytes;
    if (scaled) {
      const int64_t row = block_row(w, n0 + r);
      scale_lanes<A::kPerLane>(w, groups, w.scales + row * w.scale_row, chunk0, count, row_scales);
      if constexpr (C == Code::int4_asymmetric) {
        zero_lanes<A::kPerLane>(w, groups, w.zeros + row * w.zero_row, chunk0, count, zeros);
      }
      for (int64_t c = 0; c < count; ++c) {
        store_raw(scales + c * kTileColumns * kLanes, load_raw<f32v>(row_scales + c * kLanes));
      }
    }
    for (int64_t c = 0; c < count; ++c) {
      Vector ws[A::kSteps];
      const uint8_t* p = packed + c * kCodeBytes;
      const uint8_t* from = c < whole ? p : partial_packed<C, kChunk>(p, w.k % kChunk, copy);
      for (int part = 0; part < A::kSteps / 4; ++part) {
        A::template expand<C>(from, zeros + c * kLanes, part, ws + 4 * part);
      }
#pragma GCC unroll 16
      for (int j = 0; j < A::kSteps; ++j) store_raw(out + (c * A::kSteps + j) * kStep, ws[j]);
    }
  }
}

}  // namespace halftone::HALFTONE_LEVEL
