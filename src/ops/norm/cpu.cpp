// RMS norm of rows, once per instruction level. Two passes: the second finds the row in the cache.
#include "ops/norm/kernels.h"
#include "simd/vec.h"

namespace halftone::HALFTONE_LEVEL {

namespace {

// Four independent sums hide the latency of the additions.
constexpr int kSums = 4;

// Element block `i` of the row that is normalised; with a residual that is the sum, rounded as it
// is stored, so that the fused operation equals the separate ones.
template <Format X, bool Residual>
HALFTONE_INLINE f32v gather(const char* x, char* residual, int64_t i, int count) {
  f32v v = count == kLanes ? load<X>(x, i) : load_partial<X>(x, i, count);
  if constexpr (Residual) {
    v = v + (count == kLanes ? load<X>(residual, i) : load_partial<X>(residual, i, count));
    if (count == kLanes) {
      store<X>(residual, i, v);
    } else {
      store_partial<X>(residual, i, v, count);
    }
    if constexpr (X == Format::bf16) v = widen_bf16(narrow_bf16(v));
    if constexpr (X == Format::f16) v = widen_f16(narrow_f16(v));
  }
  return v;
}

template <Format X, Format W, bool Residual>
void norm(const NormArgs& args, int64_t begin, int64_t end) {
  const int64_t columns = args.columns;
  const int64_t whole = columns / kLanes * kLanes;
  const int rest = static_cast<int>(columns - whole);
  for (int64_t r = begin; r < end; ++r) {
    const char* x = args.x[r];
    char* residual = Residual ? args.residual[r] : nullptr;
    char* out = args.out[r];

    f32v sum[kSums] = {};
    int64_t i = 0;
    for (; i + kSums * kLanes <= columns; i += kSums * kLanes) {
      for (int s = 0; s < kSums; ++s) {
        const f32v v = gather<X, Residual>(x, residual, i + s * kLanes, kLanes);
        sum[s] = fma(v, v, sum[s]);
      }
    }
    for (; i < whole; i += kLanes) {
      const f32v v = gather<X, Residual>(x, residual, i, kLanes);
      sum[0] = fma(v, v, sum[0]);
    }
    if (rest > 0) {
      const f32v v = gather<X, Residual>(x, residual, whole, rest);
      sum[1] = fma(v, v, sum[1]);
    }
    const float squares = reduce_add((sum[0] + sum[1]) + (sum[2] + sum[3]));
    const float scale = 1.0f / __builtin_sqrtf(squares / static_cast<float>(columns) + args.eps);

    const char* normalised = Residual ? residual : x;
    const f32v scales = broadcast(scale);
    for (i = 0; i < whole; i += kLanes) {
      store<X>(out, i, load<X>(normalised, i) * scales * load<W>(args.weight, i));
    }
    if (rest > 0) {
      const f32v w = load_partial<W>(args.weight, whole, rest);
      store_partial<X>(out, whole, load_partial<X>(normalised, whole, rest) * scales * w, rest);
    }
  }
}

template <Format X, Format W>
void with_weight(const NormArgs& args, int64_t begin, int64_t end) {
  args.residual.base != nullptr ? norm<X, W, true>(args, begin, end)
                                : norm<X, W, false>(args, begin, end);
}

template <Format X>
void with_format(const NormArgs& args, int64_t begin, int64_t end) {
  switch (args.weight_format) {
    case Format::f32:
      return with_weight<X, Format::f32>(args, begin, end);
    case Format::f16:
      return with_weight<X, Format::f16>(args, begin, end);
    default:
      return with_weight<X, Format::bf16>(args, begin, end);
  }
}

}  // namespace

void norm_rows(const NormArgs& args, int64_t begin, int64_t end) {
  switch (args.format) {
    case Format::f32:
      return with_format<Format::f32>(args, begin, end);
    case Format::f16:
      return with_format<Format::f16>(args, begin, end);
    default:
      return with_format<Format::bf16>(args, begin, end);
  }
}

}  // namespace halftone::HALFTONE_LEVEL
