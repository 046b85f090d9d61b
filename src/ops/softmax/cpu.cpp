// Softmax of rows, once per instruction level. Rows pass as f32 runs, so there is one loop of each
// kind for all formats; results of 16 bits take the shorter exponential.
#include "ops/softmax/kernels.h"
#include "simd/blocks.h"
#include "simd/math.h"

namespace halftone::HALFTONE_LEVEL {

namespace {

constexpr float kLowest = -__builtin_inff();
constexpr int kChains = 4;  // independent maxima and sums hide the latency

HALFTONE_INLINE int bytes_of(Format f) { return f == Format::f32 ? 4 : 2; }

// Elements beyond `count` read as -inf, which adds nothing.
HALFTONE_INLINE f32v load_some(const float* x, int i, int count) {
  if (count == kLanes) return load_raw<f32v>(x + i);
  float lane[kLanes];
  store_raw(lane, broadcast(kLowest));
  std::memcpy(lane, x + i, static_cast<size_t>(count) * sizeof(float));
  return load_raw<f32v>(lane);
}

// NaN is left out: it shows in the sum.
float run_maximum(const float* x, int n) {
  f32v most[kChains];
  for (f32v& m : most) m = broadcast(kLowest);
  int i = 0;
  for (; i + kChains * kLanes <= n; i += kChains * kLanes) {
    for (int c = 0; c < kChains; ++c) most[c] = max(load_raw<f32v>(x + i + c * kLanes), most[c]);
  }
  for (; i < n; i += kLanes) {
    most[0] = max(load_some(x, i, n - i < kLanes ? n - i : kLanes), most[0]);
  }
  return reduce_max(max(max(most[0], most[1]), max(most[2], most[3])));
}

// out = exp((x - top) * scale) * factor; returns the sum. out may be null, or x.
template <bool Half, bool Store>
float run_exponentials(const float* x, int n, float top, float scale, float factor, float* out) {
  const f32v most = broadcast(top), by = broadcast(scale), f = broadcast(factor);
  f32v sum[kChains] = {};
  int i = 0;
  for (; i + kChains * kLanes <= n; i += kChains * kLanes) {
    f32v e[kChains];
    for (int c = 0; c < kChains; ++c) {
      e[c] = exponential<Half>((load_raw<f32v>(x + i + c * kLanes) - most) * by);
    }
    for (int c = 0; c < kChains; ++c) {
      if constexpr (Store) store_raw(out + i + c * kLanes, e[c] * f);
      sum[c] += e[c];
    }
  }
  for (; i < n; i += kLanes) {
    const int count = n - i < kLanes ? n - i : kLanes;
    const f32v e = exponential<Half>((load_some(x, i, count) - most) * by);
    if constexpr (Store) store_partial<Format::f32>(out, i, e * f, count);
    sum[0] += e;
  }
  return reduce_add((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

void scale_run(float* x, int n, float factor) {
  const f32v f = broadcast(factor);
  for (int i = 0; i < n; i += kLanes) {  // the buffer is as long as whole vectors
    store_raw(x + i, load_raw<f32v>(x + i) * f);
  }
}

bool has_nan(const SoftmaxArgs& args, const char* x, float* buffer) {
  for (int64_t i = 0; i < args.columns; i += kRun) {
    const int n = args.columns - i < kRun ? static_cast<int>(args.columns - i) : kRun;
    const int bytes = bytes_of(args.format);
    const float* v = read_run(args.format, x + i * bytes, bytes, n, buffer);
    for (int k = 0; k < n; ++k) {
      if (v[k] != v[k]) return true;
    }
  }
  return false;
}

template <bool Half>
void softmax(const SoftmaxArgs& args, int64_t begin, int64_t end) {
  alignas(64) float kept[kSoftmaxKept], buffer[kRun];
  const int64_t columns = args.columns;
  const int in_bytes = bytes_of(args.format), out_bytes = bytes_of(args.out_format);
  for (int64_t r = begin; r < end; ++r) {
    const char* x = args.x[r];
    char* out = args.out[r];
    const char* next = r + 1 < end ? args.x[r + 1] : nullptr;
    const auto length = [&](int64_t i) __attribute__((always_inline)) {
      return columns - i < kRun ? static_cast<int>(columns - i) : kRun;
    };
    float top = kLowest, sum = 0;
    if (args.online) {
      for (int64_t i = 0; i < columns; i += kRun) {
        const float* v = read_run(args.format, x + i * in_bytes, in_bytes, length(i), buffer);
        const float most = run_maximum(v, length(i));
        if (most > top) {
          // Whatever was added up before is in units of the old maximum.
          const f32v shrink = exp(broadcast((top - most) * args.scale));
          sum *= shrink[0];
          top = most;
        }
        if (top == kLowest) continue;
        sum += run_exponentials<Half, false>(v, length(i), top, args.scale, 1, nullptr);
      }
    } else {
      for (int64_t i = 0; i < columns; i += kRun) {
        const float* v = read_run(args.format, x + i * in_bytes, in_bytes, length(i), kept + i);
        const float most = run_maximum(v, length(i));
        top = most > top ? most : top;
      }
      for (int64_t i = 0; top != kLowest && i < columns; i += kRun) {
        const float* v = args.format == Format::f32
                             ? read_run(Format::f32, x + i * 4, 4, length(i), nullptr)
                             : kept + i;
        sum += run_exponentials<Half, true>(v, length(i), top, args.scale, 1, kept + i);
      }
    }
    // A row of -inf alone gives zeros; a NaN in it shows.
    const bool empty = top == kLowest;
    const float fill = empty && has_nan(args, x, buffer) ? __builtin_nanf("") : 0.0f;
    const float factor = 1.0f / sum;
    for (int64_t i = 0; i < columns; i += kRun) {
      const int n = length(i);
      // The memory would idle while this row is written.
      for (int64_t line = i * in_bytes; next != nullptr && line < (i + n) * in_bytes; line += 64) {
        __builtin_prefetch(next + line, 0, 2);
      }
      float* y = args.online ? buffer : kept + i;
      if (empty) {
        for (int k = 0; k < n; ++k) y[k] = fill;
      } else if (args.online) {
        const float* v = read_run(args.format, x + i * in_bytes, in_bytes, n, buffer);
        run_exponentials<Half, true>(v, n, top, args.scale, factor, y);
      } else {
        scale_run(y, n, factor);
      }
      write_run(args.out_format, out + i * out_bytes, out_bytes, n, y, args.streamed);
    }
  }
  if (args.streamed) fence_streams();
}

}  // namespace

void softmax_rows(const SoftmaxArgs& args, int64_t begin, int64_t end) {
  args.out_format == Format::f32 ? softmax<false>(args, begin, end)
                                 : softmax<true>(args, begin, end);
}

}  // namespace halftone::HALFTONE_LEVEL
