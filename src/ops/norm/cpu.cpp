// RMS norm and layer norm of rows on the CPU, compiled for every ISA level. Statistics first, in
// one pass or two; the last pass finds the row in the cache.
#include "ops/norm/kernels.h"
#include "simd/two.h"

namespace halftone::HALFTONE_LEVEL {

namespace {

template <Format F>
inline constexpr int64_t kBytes = kTwoBytes<F> / kTwo;

template <Format F, bool kSplit>
HALFTONE_INLINE Two load_some(const char* p, int64_t count) {
  return count < kTwo ? load_two_partial<F, kSplit>(p, count) : load_two<F, kSplit>(p);
}
template <Format F, bool kSplit>
HALFTONE_INLINE void store_some(char* p, Two v, int64_t count, bool streamed = false) {
  count < kTwo ? store_two_partial<F, kSplit>(p, v, count) : store_two<F, kSplit>(p, v, streamed);
}

// The sum over a row of term(first element, count, sum so far), always in the same order. Four
// independent sums hide the latency of the additions.
template <class Term>
HALFTONE_INLINE float sum_of(int64_t columns, const Term& term) {
  Two sum[2] = {};
  int64_t i = 0;
  for (; i + 2 * kTwo <= columns; i += 2 * kTwo) {
    for (int s = 0; s < 2; ++s) sum[s] = term(i + s * kTwo, kTwo, sum[s]);
  }
  for (; i < columns; i += kTwo) {
    sum[0] = term(i, columns - i < kTwo ? columns - i : kTwo, sum[0]);
  }
  return reduce_add((sum[0].a + sum[1].a) + (sum[0].b + sum[1].b));
}

// Elements of the row to normalise; with a residual that is the sum, rounded as it is stored, so
// that the fused operation equals the separate ones.
template <Format X, bool kSplit, bool Residual>
HALFTONE_INLINE Two gather(const char* x, const char* residual, char* sum, int64_t i,
                           int64_t count) {
  const Two v = load_some<X, kSplit>(x + i * kBytes<X>, count);
  if constexpr (!Residual) return v;
  const Two r = load_some<X, kSplit>(residual + i * kBytes<X>, count);
  const Two total = {v.a + r.a, v.b + r.b};
  store_some<X, kSplit>(sum + i * kBytes<X>, total, count);
  if constexpr (X == Format::bf16) {
    const u32v words = round_two<kSplit>(total);
    return load_two<X, kSplit>(&words);
  }
  if constexpr (X == Format::f16) {
    return {widen_f16(narrow_f16(total.a)), widen_f16(narrow_f16(total.b))};
  }
  return total;
}

struct Statistics {
  float mean, scale;
};

// Eps is inside the root, added to the mean square (the variance of a layer norm).
template <Format X, bool kSplit, bool Residual>
Statistics statistics(const NormArgs& args, const char* x, const char* residual, char* sum) {
  const auto count = static_cast<float>(args.columns);
  Statistics s{0, 0};
  float squares;
  if (!args.layer) {
    squares = sum_of(
        args.columns, [&](int64_t i, int64_t n, Two acc) __attribute__((always_inline)) {
          const Two v = gather<X, kSplit, Residual>(x, residual, sum, i, n);
          return Two{fma(v.a, v.a, acc.a), fma(v.b, v.b, acc.b)};
        });
  } else {
    const float total = sum_of(
        args.columns, [&](int64_t i, int64_t n, Two acc) __attribute__((always_inline)) {
          const Two v = gather<X, kSplit, Residual>(x, residual, sum, i, n);
          return Two{acc.a + v.a, acc.b + v.b};
        });
    s.mean = total / count;
    const char* row = Residual ? sum : x;
    const f32v mean = broadcast(s.mean), one = broadcast(1);
    squares = sum_of(
        args.columns, [&](int64_t i, int64_t n, Two acc) __attribute__((always_inline)) {
          Two v = load_some<X, kSplit>(row + i * kBytes<X>, n);
          v = {v.a - mean, v.b - mean};
          if (n < kTwo) {  // lanes past the row are 0, not -mean
            char ones[kTwoBytes<X>];
            store_two<X>(ones, {one, one});
            const Two valid = load_two_partial<X, kSplit>(ones, n);
            v = {v.a * valid.a, v.b * valid.b};
          }
          return Two{fma(v.a, v.a, acc.a), fma(v.b, v.b, acc.b)};
        });
  }
  s.scale = 1.0f / __builtin_sqrtf(squares / count + args.eps);
  return s;
}

template <Format X, Format W, bool kSplit>
void finish(const NormArgs& args, const char* x, const char* next, char* out, Statistics s) {
  const f32v mean = broadcast(s.mean), scale = broadcast(s.scale);
  const f32v offset = broadcast(args.weight_offset);
  const auto* weight = static_cast<const char*>(args.weight);
  const auto* bias = static_cast<const char*>(args.bias);
  const bool streamed = args.streamed && reinterpret_cast<uintptr_t>(out) % 64 == 0;
  for (int64_t i = 0; i < args.columns; i += kTwo) {
    const int64_t n = args.columns - i < kTwo ? args.columns - i : kTwo;
    if (next != nullptr) {  // the memory would idle while this row is written
      for (int line = 0; line < kTwoBytes<X>; line += 64) {
        __builtin_prefetch(next + i * kBytes<X> + line, 0, 2);
      }
    }
    Two v = load_some<X, kSplit>(x + i * kBytes<X>, n);
    v = {(v.a - mean) * scale, (v.b - mean) * scale};
    if (weight != nullptr) {
      const Two w = load_some<W, kSplit>(weight + i * kBytes<W>, n);
      v = {v.a * (w.a + offset), v.b * (w.b + offset)};
    }
    if (bias != nullptr) {
      const Two b = load_some<W, kSplit>(bias + i * kBytes<W>, n);
      v = {v.a + b.a, v.b + b.b};
    }
    store_some<X, kSplit>(out + i * kBytes<X>, v, n, streamed);
  }
}

template <Format X, Format W>
void rows(const NormArgs& args, int64_t begin, int64_t end) {
  constexpr bool kSplit = X == W;
  for (int64_t r = begin; r < end; ++r) {
    const char* x = args.x[r];
    const char* next = r + 1 < end ? args.x[r + 1] : nullptr;
    Statistics s;
    if (args.residual.base != nullptr) {
      char* sum = args.sum[r];
      s = statistics<X, kSplit, true>(args, x, args.residual[r], sum);
      x = sum;
    } else {
      s = statistics<X, kSplit, false>(args, x, nullptr, nullptr);
    }
    finish<X, W, kSplit>(args, x, next, args.out[r], s);
  }
#if defined(__x86_64__)
  if (args.streamed) _mm_sfence();
#endif
}

template <Format X>
void rows_of(const NormArgs& args, int64_t begin, int64_t end) {
  switch (args.weight_format) {
    case Format::f32:
      return rows<X, Format::f32>(args, begin, end);
    case Format::f16:
      return rows<X, Format::f16>(args, begin, end);
    default:
      return rows<X, Format::bf16>(args, begin, end);
  }
}

}  // namespace

void norm_rows(const NormArgs& args, int64_t begin, int64_t end) {
  switch (args.format) {
    case Format::f32:
      return rows_of<Format::f32>(args, begin, end);
    case Format::f16:
      return rows_of<Format::f16>(args, begin, end);
    default:
      return rows_of<Format::bf16>(args, begin, end);
  }
}

}  // namespace halftone::HALFTONE_LEVEL
