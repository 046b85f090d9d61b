// RMS and layer norm of rows, once per instruction level. Statistics first, in one pass or two; the
// last pass finds the row in the cache.
#include "ops/norm/kernels.h"
#include "simd/stream_lines.h"
#include "simd/vec.h"

namespace halftone::HALFTONE_LEVEL {

namespace {

// Four independent sums hide the latency of the additions.
constexpr int kSums = 4;

template <Format F>
HALFTONE_INLINE f32v load_some(const void* x, int64_t i, int count) {
  return count == kLanes ? load<F>(x, i) : load_partial<F>(x, i, count);
}
template <Format F>
HALFTONE_INLINE void store_some(void* x, int64_t i, f32v v, int count) {
  count == kLanes ? store<F>(x, i, v) : store_partial<F>(x, i, v, count);
}

// The sum over a row of term(element block i, count), always in the same order.
template <class Term>
HALFTONE_INLINE float sum_of(int64_t columns, const Term& term) {
  f32v sum[kSums] = {};
  int64_t i = 0;
  for (; i + kSums * kLanes <= columns; i += kSums * kLanes) {
    for (int s = 0; s < kSums; ++s) sum[s] = term(i + s * kLanes, kLanes, sum[s]);
  }
  for (; i + kLanes <= columns; i += kLanes) sum[0] = term(i, kLanes, sum[0]);
  if (i < columns) sum[1] = term(i, static_cast<int>(columns - i), sum[1]);
  return reduce_add((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

// Element block `i` of the row that is normalised; with a residual that is the sum, rounded as it
// is stored, so that the fused operation equals the separate ones.
template <Format X, bool Residual>
HALFTONE_INLINE f32v gather(const char* x, const char* residual, char* sum, int64_t i, int count) {
  f32v v = load_some<X>(x, i, count);
  if constexpr (Residual) {
    v = v + load_some<X>(residual, i, count);
    store_some<X>(sum, i, v, count);
    if constexpr (X == Format::bf16) v = widen_bf16(narrow_bf16(v));
    if constexpr (X == Format::f16) v = widen_f16(narrow_f16(v));
  }
  return v;
}

struct Statistics {
  float mean, scale;
};

// Eps is inside the root, added to the mean square (the variance of a layer norm).
template <Format X, bool Residual>
Statistics statistics(const NormArgs& args, const char* x, const char* residual, char* sum) {
  const auto count = static_cast<float>(args.columns);
  Statistics s{0, 0};
  float squares;
  if (!args.layer) {
    squares = sum_of(
        args.columns, [&](int64_t i, int n, f32v acc) __attribute__((always_inline)) {
          const f32v v = gather<X, Residual>(x, residual, sum, i, n);
          return fma(v, v, acc);
        });
  } else {
    const float total = sum_of(
        args.columns, [&](int64_t i, int n, f32v acc) __attribute__((always_inline)) {
          return acc + gather<X, Residual>(x, residual, sum, i, n);
        });
    s.mean = total / count;
    const char* row = Residual ? sum : x;
    const f32v mean = broadcast(s.mean);
    squares = sum_of(
        args.columns, [&](int64_t i, int n, f32v acc) __attribute__((always_inline)) {
          f32v v = load_some<X>(row, i, n) - mean;
          if (n < kLanes) {  // lanes beyond the row are not -mean but nothing
            float lane[kLanes] = {};
            float all[kLanes];
            store_raw(all, v);
            for (int k = 0; k < n; ++k) lane[k] = all[k];
            v = load_raw<f32v>(lane);
          }
          return fma(v, v, acc);
        });
  }
  s.scale = 1.0f / __builtin_sqrtf(squares / count + args.eps);
  return s;
}

template <Format X, Format W>
void finish(const NormArgs& args, const char* x, const char* next, char* out, Statistics s) {
  const f32v mean = broadcast(s.mean), scale = broadcast(s.scale);
  const f32v offset = broadcast(args.weight_offset);
  const auto at = [&](int64_t i, int n) __attribute__((always_inline)) {
    f32v v = (load_some<X>(x, i, n) - mean) * scale;
    if (args.weight != nullptr) v = v * (load_some<W>(args.weight, i, n) + offset);
    if (args.bias != nullptr) v = v + load_some<W>(args.bias, i, n);
    return v;
  };
  constexpr int kBytes = X == Format::f32 ? 4 : 2;
  constexpr int64_t kLine = 64 / kBytes;
  int64_t i = 0;
  if (args.streamed && reinterpret_cast<uintptr_t>(out) % 64 == 0) {
    for (; i + kLine <= args.columns; i += kLine) {
      if (next != nullptr) __builtin_prefetch(next + i * kBytes, 0, 2);
      alignas(64) unsigned char line[64];
      if constexpr (kLine >= 2 * kLanes) {
        for (int64_t k = 0; k < kLine; k += 2 * kLanes) {
          store_pair<X>(line, k, at(i + k, kLanes), at(i + k + kLanes, kLanes));
        }
      } else {
        store<X>(line, 0, at(i, kLanes));
      }
      stream_lines(line, 64, static_cast<uint8_t*>(static_cast<void*>(out + i * kBytes)));
    }
  }
  for (; i + 2 * kLanes <= args.columns; i += 2 * kLanes) {
    // The memory would idle while this row is written.
    if (next != nullptr) __builtin_prefetch(next + i * kBytes, 0, 2);
    const f32v a = at(i, kLanes), b = at(i + kLanes, kLanes);
    store_pair<X>(out, i, a, b);
  }
  for (; i < args.columns; i += kLanes) {
    const int n = args.columns - i < kLanes ? static_cast<int>(args.columns - i) : kLanes;
    store_some<X>(out, i, at(i, n), n);
  }
}

template <Format X>
void rows(const NormArgs& args, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const char* x = args.x[r];
    const char* next = r + 1 < end ? args.x[r + 1] : nullptr;
    Statistics s;
    if (args.residual.base != nullptr) {
      char* sum = args.sum[r];
      s = statistics<X, true>(args, x, args.residual[r], sum);
      x = sum;
    } else {
      s = statistics<X, false>(args, x, nullptr, nullptr);
    }
    switch (args.weight_format) {
      case Format::f32:
        finish<X, Format::f32>(args, x, next, args.out[r], s);
        break;
      case Format::f16:
        finish<X, Format::f16>(args, x, next, args.out[r], s);
        break;
      default:
        finish<X, Format::bf16>(args, x, next, args.out[r], s);
    }
  }
#if defined(__x86_64__)
  if (args.streamed) _mm_sfence();
#endif
}

}  // namespace

void norm_rows(const NormArgs& args, int64_t begin, int64_t end) {
  switch (args.format) {
    case Format::f32:
      return rows<Format::f32>(args, begin, end);
    case Format::f16:
      return rows<Format::f16>(args, begin, end);
    default:
      return rows<Format::bf16>(args, begin, end);
  }
}

}  // namespace halftone::HALFTONE_LEVEL
