// GEMV y = x W^T on CPUs for a few rows of x: W is streamed from end to end of its rows and
// dequantised in registers. The order of summation is that of gemm.h. `A` is the arithmetic.
#pragma once
#include <type_traits>

#include "ops/gemm/cpu/gemm.h"

namespace halftone::HALFTONE_LEVEL {

// Rows of W read side by side: as many streams for the prefetcher, as many as add_four takes.
inline constexpr int kGemvRows = 4;
// Rows of x that share a pass over W. With the four rows of W that makes 16 accumulators, which 32
// registers hold beside the packed weights.
inline constexpr int kGemvX = kLanes == 16 ? 4 : 1;
// Prefetch distance in bytes of a row of W: the latency of memory at a core's share of its
// bandwidth.
inline constexpr int64_t kPrefetchBytes = 2048;

// sums[0..4) += the lanes of v, or = when first.
HALFTONE_INLINE void add_four(const f32v v[kGemvRows], float* sums, bool first) {
#if defined(__AVX2__)
  const __m128 r = reduce_four(v);
  _mm_storeu_ps(sums, first ? r : _mm_add_ps(_mm_loadu_ps(sums), r));
#else
  add_lanes(v, sums, first);
#endif
}

// kChunks chunks of kGemvRows rows of W times kX rows of x into their accumulators. Where the
// accumulators of the rows of W alone must hide the FMA latency, they and, with scales, those of
// the chunks are interleaved: one after the other they would fill the scheduler before the next
// dependency chain starts. Elsewhere each row of W is consumed as it is dequantised, which takes
// fewer registers.
template <class A, Code C, bool kScaled, int kX, int kChunks>
HALFTONE_INLINE void add_chunks(const uint8_t* const packed[kGemvRows], const int32_t* zeros,
                                const float* scales, int64_t row_lanes,
                                const unsigned char* const x[kX], f32v acc[kX][kGemvRows]) {
  typedef typename A::Vector Vector;
  constexpr int64_t kVector = sizeof(Vector);
  constexpr int64_t kCodeBytes = A::kPerLane * kLanes * kBits<C> / 8;
  constexpr int kParts = A::kSteps / 4;
  constexpr bool kRowByRow = kX > 1 || kLanes < 16;
  static_assert(kScaled || kChunks == 1);
  f32v sum[kChunks][kX][kGemvRows];
#pragma GCC unroll 2
  for (int c = 0; c < kChunks; ++c) {
#pragma GCC unroll 4
    for (int m = 0; m < kX; ++m) {
#pragma GCC unroll 4
      for (int r = 0; r < kGemvRows; ++r) sum[c][m][r] = kScaled ? f32v{} : acc[m][r];
    }
  }
#pragma GCC unroll 4
  for (int part = 0; part < kParts; ++part) {
#pragma GCC unroll 2
    for (int c = 0; c < kChunks; ++c) {
      const int64_t at = c * A::kSteps * kVector + part * 4 * kVector;
      Vector ws[kGemvRows][4];
#pragma GCC unroll 4
      for (int r = 0; r < kGemvRows; ++r) {
        const uint8_t* from = packed[r] + c * kCodeBytes;
        // A line or two at a time: a burst fills the queue of outstanding lines and delays loads.
        constexpr int kLines = static_cast<int>(kCodeBytes / 64);
#pragma GCC unroll 4
        for (int i = part * kLines / kParts; i < (part + 1) * kLines / kParts; ++i) {
          __builtin_prefetch(from + kPrefetchBytes + 64 * i, 0, 3);
        }
        A::template expand<C>(from, zeros + r * row_lanes + c * kLanes, part, ws[r]);
        if constexpr (!kRowByRow) continue;
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
#pragma GCC unroll 4
          for (int m = 0; m < kX; ++m) {
            const auto xs = load_raw<Vector>(x[m] + at + j * kVector);
            sum[c][m][r] = A::multiply_add(ws[r][j], xs, sum[c][m][r]);
          }
        }
      }
      if constexpr (kRowByRow) continue;
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const auto xs = load_raw<Vector>(x[0] + at + j * kVector);
#pragma GCC unroll 4
        for (int r = 0; r < kGemvRows; ++r) {
          sum[c][0][r] = A::multiply_add(ws[r][j], xs, sum[c][0][r]);
        }
      }
    }
  }
#pragma GCC unroll 2
  for (int c = 0; c < kChunks; ++c) {
#pragma GCC unroll 4
    for (int r = 0; r < kGemvRows; ++r) {
      f32v scale{};
      if constexpr (kScaled) scale = load_raw<f32v>(scales + r * row_lanes + c * kLanes);
#pragma GCC unroll 4
      for (int m = 0; m < kX; ++m) {
        acc[m][r] = kScaled ? fma(sum[c][m][r], scale, acc[m][r]) : sum[c][m][r];
      }
    }
  }
}

// The chunk in which rows of FP32 end, as add_chunks would add it, but without the vectors beyond
// the last of `count` elements, which are 0 there.
template <int kX>
HALFTONE_INLINE void add_floats(const uint8_t* const rows[kGemvRows], int64_t count,
                                const unsigned char* const x[kX], f32v acc[kX][kGemvRows]) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t left = count - i, some = left < kLanes ? left : kLanes;
    for (int r = 0; r < kGemvRows; ++r) {
      const f32v ws = load_partial<Format::f32>(rows[r], i, static_cast<int>(some));
      for (int m = 0; m < kX; ++m) {
        const auto xs = load_raw<f32v>(x[m] + i * static_cast<int64_t>(sizeof(float)));
        acc[m][r] = fma(ws, xs, acc[m][r]);
      }
    }
  }
}

// Scales of a row of W for `count` chunks, times those of x where it has some.
template <class A>
HALFTONE_INLINE void gemv_scales(const Weights& w, const Groups& groups, const uint8_t* row,
                                 const float* x_scales, int64_t chunk0, int64_t count,
                                 float* lanes) {
  const bool scaled = scaled_in_row(w);
  if (scaled) scale_lanes<A::kPerLane>(w, groups, row, chunk0, count, lanes);
  for (int64_t c = 0; x_scales != nullptr && c < count; ++c) {
    const f32v xs = load_raw<f32v>(x_scales + (chunk0 + c) * kLanes);
    store_raw(lanes + c * kLanes, scaled ? load_raw<f32v>(lanes + c * kLanes) * xs : xs);
  }
}

// Rows of x from m0 on, at most kX.
template <class A, Code C, bool kScaled, int kX>
void gemv_rows(const Weights& w, int64_t n0, int64_t n1, const gemm::GemvArgs& args, int64_t m0) {
  constexpr int kBlock = kScaled ? A::kScaledBlockChunks : A::kBlockChunks;
  constexpr int kChunk = A::kPerLane * kLanes;
  constexpr int64_t kCodeBytes = kChunk * kBits<C> / 8;
  constexpr int64_t kXBytes = A::kSteps * static_cast<int64_t>(sizeof(typename A::Vector));
  const int64_t chunks = gemm::ceil_div(w.k, kChunk);
  const Groups groups = groups_of<A::kPerLane>(w);
  // Scales are spread to lanes for several blocks at once.
  constexpr int64_t kSpan = gemm::kMaxBlockChunks;
  static_assert(kSpan % kBlock == 0);
  alignas(64) float scales[kGemvRows][kSpan * kLanes];
  alignas(64) int32_t zeros[kGemvRows][kSpan * kLanes];
  alignas(64) uint8_t ends[kGemvRows][kCodeBytes];
  // Each of the rows read side by side continues with the row that follows it in memory, so that
  // the hardware prefetchers see a few long streams.
  const int64_t each = gemm::ceil_div(n1 - n0, kGemvRows);
  for (int64_t n = 0; n < each; ++n) {
    const uint8_t* rows[kGemvRows];
    const uint8_t* scale_rows[kGemvRows];
    const uint8_t* zero_rows[kGemvRows];
    int64_t row[kGemvRows];
    float total[kX][kGemvRows] = {};
    for (int r = 0; r < kGemvRows; ++r) {
      row[r] = n0 + r * each + n < n1 ? n0 + r * each + n : n1 - 1;  // spare ones repeat the last
      rows[r] = w.data + row[r] * w.row_bytes;
      if constexpr (kScaled) scale_rows[r] = w.scales + block_row(w, row[r]) * w.scale_row;
      if constexpr (C == Code::int4_asymmetric) {
        zero_rows[r] = w.zeros + block_row(w, row[r]) * w.zero_row;
      }
    }
    for (int64_t chunk0 = 0, c = kSpan; chunk0 < chunks; chunk0 += kBlock) {
      const unsigned char* xs[kX];
      for (int m = 0; m < kX; ++m) {
        const int64_t mine = m0 + m < args.m ? m0 + m : args.m - 1;  // here too
        xs[m] = static_cast<const unsigned char*>(args.x) + mine * args.x_row +
                chunk0 / A::kBlockChunks * args.x_block + chunk0 % A::kBlockChunks * kXBytes;
      }
      if (c == kSpan) {
        c = 0;
        const int64_t span = chunks - chunk0 < kSpan ? chunks - chunk0 : kSpan;
        for (int r = 0; r < kGemvRows; ++r) {
          if constexpr (kScaled) {
            gemv_scales<A>(w, groups, scale_rows[r], args.x_scales, chunk0, span, scales[r]);
          }
          if constexpr (C == Code::int4_asymmetric) {
            zero_lanes<A::kPerLane>(w, groups, zero_rows[r], chunk0, span, zeros[r]);
          }
        }
      }
      const int64_t count = chunks - chunk0 < kBlock ? chunks - chunk0 : kBlock;
      const int64_t whole = (chunk0 + count) * kChunk <= w.k ? count : count - 1;
      f32v acc[kX][kGemvRows] = {};
      // Two chunks at a time where their accumulators are separate and short.
      constexpr int kPair = kScaled && kLanes == 16 && kX == 1 && A::kSteps == 8 ? 2 : 1;
      const auto add = [&](auto chunks_at_once) {
        constexpr int kAtOnce = decltype(chunks_at_once)::value;
        add_chunks<A, C, kScaled, kX, kAtOnce>(rows, zeros[0] + c * kLanes, scales[0] + c * kLanes,
                                               kSpan * kLanes, xs, acc);
        for (int r = 0; r < kGemvRows; ++r) rows[r] += kAtOnce * kCodeBytes;
        for (int m = 0; m < kX; ++m) xs[m] += kAtOnce * kXBytes;
        c += kAtOnce;
      };
      const int64_t end = c + whole, last = c + count;
      while (c + kPair <= end) add(std::integral_constant<int, kPair>());
      if constexpr (C == Code::f32 && !kScaled) {
        if (c < last) add_floats<kX>(rows, w.k % kChunk, xs, acc);
        c = last;
      }
      while (c < last) {
        for (int r = 0; r < kGemvRows && c == end; ++r) {
          rows[r] = partial_packed<C, kChunk>(rows[r], w.k % kChunk, ends[r]);
        }
        add(std::integral_constant<int, 1>());
      }
      for (int m = 0; m < kX; ++m) add_four(acc[m], total[m], chunk0 == 0);
    }
    for (int m = 0; m < kX && m0 + m < args.m; ++m) {
      for (int r = 0; r < kGemvRows; ++r) {
        args.sums[(m0 + m) * args.sums_stride + row[r] - n0] = total[m][r];
      }
    }
  }
}

// One row of x has more packed weights in flight at once than rows side by side would.
template <class A, Code C, bool kScaled>
void gemv_code(const Weights& w, int64_t n0, int64_t n1, const gemm::GemvArgs& args) {
  int64_t m = 0;
  if constexpr (kGemvX > 1) {
    for (; args.m - m > 2; m += kGemvX) gemv_rows<A, C, kScaled, kGemvX>(w, n0, n1, args, m);
    for (; args.m - m > 1; m += 2) gemv_rows<A, C, kScaled, 2>(w, n0, n1, args, m);
  }
  for (; m < args.m; ++m) gemv_rows<A, C, kScaled, 1>(w, n0, n1, args, m);
}

template <class A>
void gemv_octets(const Weights& w, int64_t n0, int64_t n1, const gemm::GemvArgs& args) {
  with_octet_code(w.code, [&]<Code C>() {
    if (C == Code::int4_asymmetric || scaled_in_row(w) || args.x_scales != nullptr) {
      gemv_code<A, C, true>(w, n0, n1, args);
    } else if constexpr (C != Code::int4_asymmetric) {
      gemv_code<A, C, false>(w, n0, n1, args);
    }
  });
}

}  // namespace halftone::HALFTONE_LEVEL
