// Softmax of rows, once per instruction level: maximum, exponentials and their sum, division.
#include "ops/softmax/kernels.h"
#include "simd/vec.h"

namespace halftone::HALFTONE_LEVEL {

namespace {

// Exponentials of the first columns are kept between the last two passes; 16 KiB leave room for the
// row itself in a first-level cache of 32 KiB. The rest is computed again, to the same bits.
constexpr int64_t kKept = 4096;
constexpr int kChains = 4;  // independent maxima and sums hide the latency

template <Format X>
HALFTONE_INLINE f32v load_some(const char* x, int64_t i, int count, f32v fill) {
  if (count == kLanes) return load<X>(x, i);
  float lane[kLanes];
  store_raw(lane, load_partial<X>(x, i, count));
  float filled[kLanes];
  store_raw(filled, fill);
  for (int k = 0; k < count; ++k) filled[k] = lane[k];
  return load_raw<f32v>(filled);
}

HALFTONE_INLINE int count_at(int64_t i, int64_t columns) {
  return columns - i < kLanes ? static_cast<int>(columns - i) : kLanes;
}

template <Format X>
float row_maximum(const char* x, int64_t columns) {
  const f32v lowest = broadcast(-__builtin_inff());
  f32v most[kChains] = {lowest, lowest, lowest, lowest};
  int64_t i = 0;
  for (; i + kChains * kLanes <= columns; i += kChains * kLanes) {
    for (int c = 0; c < kChains; ++c) most[c] = max(load<X>(x, i + c * kLanes), most[c]);
  }
  for (; i < columns; i += kLanes) {
    most[0] = max(load_some<X>(x, i, count_at(i, columns), lowest), most[0]);
  }
  return reduce_max(max(max(most[0], most[1]), max(most[2], most[3])));
}

template <Format X>
bool has_nan(const char* x, int64_t columns) {
  for (int64_t i = 0; i < columns; i += kLanes) {
    const f32v v = load_some<X>(x, i, count_at(i, columns), f32v{});
    if (reduce_max(select(v != v, broadcast(1.0f), f32v{})) != 0) return true;
  }
  return false;
}

template <Format O>
void fill_row(char* out, int64_t columns, float value) {
  for (int64_t i = 0; i < columns; i += kLanes) {
    store_partial<O>(out, i, broadcast(value), count_at(i, columns));
  }
}

template <Format X, Format O>
void rows(const SoftmaxArgs& args, int64_t begin, int64_t end) {
  alignas(64) float kept[kKept];
  const int64_t columns = args.columns;
  const f32v lowest = broadcast(-__builtin_inff());
  for (int64_t r = begin; r < end; ++r) {
    const char* x = args.x[r];
    char* out = args.out[r];
    const float maximum = row_maximum<X>(x, columns);
    if (maximum == -__builtin_inff()) {
      fill_row<O>(out, columns, has_nan<X>(x, columns) ? __builtin_nanf("") : 0.0f);
      continue;
    }
    const f32v top = broadcast(maximum);
    f32v sum[kChains] = {};
    int64_t i = 0;
    for (; i + kChains * kLanes <= columns; i += kChains * kLanes) {
      for (int c = 0; c < kChains; ++c) {
        const f32v e = exp(load<X>(x, i + c * kLanes) - top);
        if (i < kKept) store_raw(kept + i + c * kLanes, e);
        sum[c] += e;
      }
    }
    for (; i < columns; i += kLanes) {
      const f32v e = exp(load_some<X>(x, i, count_at(i, columns), lowest) - top);
      if (i < kKept) store_raw(kept + i, e);
      sum[0] += e;
    }
    const f32v scale = broadcast(1.0f / reduce_add((sum[0] + sum[1]) + (sum[2] + sum[3])));

    const int64_t whole = columns / kLanes * kLanes;
    const int64_t remembered = whole < kKept ? whole : kKept;
    for (i = 0; i < remembered; i += kLanes) {
      store<O>(out, i, load_raw<f32v>(kept + i) * scale);
    }
    for (; i < whole; i += kLanes) store<O>(out, i, exp(load<X>(x, i) - top) * scale);
    if (i < columns) {
      const int count = count_at(i, columns);
      store_partial<O>(out, i, exp(load_some<X>(x, i, count, lowest) - top) * scale, count);
    }
  }
}

template <Format X>
void to_format(const SoftmaxArgs& args, int64_t begin, int64_t end) {
  switch (args.out_format) {
    case Format::f32:
      return rows<X, Format::f32>(args, begin, end);
    case Format::f16:
      return rows<X, Format::f16>(args, begin, end);
    default:
      return rows<X, Format::bf16>(args, begin, end);
  }
}

}  // namespace

void softmax_rows(const SoftmaxArgs& args, int64_t begin, int64_t end) {
  switch (args.format) {
    case Format::f32:
      return to_format<Format::f32>(args, begin, end);
    case Format::f16:
      return to_format<Format::f16>(args, begin, end);
    default:
      return to_format<Format::bf16>(args, begin, end);
  }
}

}  // namespace halftone::HALFTONE_LEVEL
