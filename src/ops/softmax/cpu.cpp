// Softmax of rows on the CPU, compiled for every ISA level. Exponentials are kept in FP32, in
// whatever order two vectors of the source come; 16-bit results take the shorter exponential.
#include "ops/softmax/kernels.h"
#include "simd/blocks.h"
#include "simd/math.h"
#include "simd/two.h"

namespace halftone::HALFTONE_LEVEL {

namespace {

constexpr float kLowest = -__builtin_inff();

HALFTONE_INLINE Two both(float x) { return {broadcast(x), broadcast(x)}; }

// Calls body(elements i .. i + kTwo, i) over a row of n; past its end they are -inf, which adds
// nothing. kSplit: in the order of the format, else as stored.
template <Format F, bool kSplit, class Body>
HALFTONE_INLINE void over(const char* x, int64_t n, const Body& body) {
  constexpr int64_t kBytes = kTwoBytes<F> / kTwo;
  int64_t i = 0;
  for (; i + kTwo <= n; i += kTwo) body(load_two<F, kSplit>(x + i * kBytes), i);
  if (i == n) return;
  char last[kTwoBytes<F>];
  store_two<F>(last, both(kLowest));
  std::memcpy(last, x + i * kBytes, static_cast<size_t>((n - i) * kBytes));
  body(load_two<F, kSplit>(last), i);
}

// NaN is ignored here: it shows in the sum.
template <Format F>
float maximum(const char* x, int64_t n) {
  Two most[2] = {both(kLowest), both(kLowest)};  // chains that hide the latency
  over<F, true>(
      x, n, [&](Two v, int64_t i) __attribute__((always_inline)) {
        Two& m = most[i / kTwo % 2];
        m = {max(v.a, m.a), max(v.b, m.b)};
      });
  return reduce_max(max(max(most[0].a, most[1].a), max(most[0].b, most[1].b)));
}

// The sum of exp((x - row_max) scale), which go to `out` unless it is null: whole vectors.
// Prefetches as many elements at `next`, unless that is null: nothing else would keep the memory
// busy meanwhile.
template <Format F, bool kSplit, bool Half>
float exponentials(const char* x, int64_t n, float top, float scale, float* out, const char* next) {
  const f32v most = broadcast(top), by = broadcast(scale);
  Two sum[2] = {both(0), both(0)};
  over<F, kSplit>(
      x, n, [&](Two v, int64_t i) __attribute__((always_inline)) {
        if (next != nullptr) {
          for (int line = 0; line < kTwoBytes<F>; line += 64) {
            __builtin_prefetch(next + i * (kTwoBytes<F> / kTwo) + line, 0, 2);
          }
        }
        const Two e = {exponential<Half>(v.a - most, by), exponential<Half>(v.b - most, by)};
        if (out != nullptr) store_two<Format::f32>(out + i, e);
        Two& s = sum[i / kTwo % 2];
        s = {s.a + e.a, s.b + e.b};
      });
  return reduce_add((sum[0].a + sum[1].a) + (sum[0].b + sum[1].b));
}

// out = x * factor, both in the order of `over`.
template <Format F, bool kSplit>
void write_scaled(const float* x, int64_t n, float factor, char* out, bool streamed) {
  const f32v by = broadcast(factor);
  constexpr int64_t kBytes = kTwoBytes<F> / kTwo;
  const bool lines = streamed && reinterpret_cast<uintptr_t>(out) % 64 == 0;
  for (int64_t i = 0; i < n; i += kTwo) {
    const Two e = load_two<Format::f32>(x + i), y = {e.a * by, e.b * by};
    char* to = out + i * kBytes;
    n - i < kTwo ? store_two_partial<F, kSplit>(to, y, n - i) : store_two<F, kSplit>(to, y, lines);
  }
}

template <Format F>
bool has_nan(const char* x, int64_t n) {
  i32v found{};
  over<F, true>(
      x, n, [&](Two v, int64_t) __attribute__((always_inline)) {
        found |= (v.a != v.a) | (v.b != v.b);
      });
  return any(found);
}

template <Format F, Format O>
void softmax(const SoftmaxArgs& args, int64_t begin, int64_t end) {
  // Where both are the same, elements need not be permuted.
  constexpr bool kSplit = F == O, kHalf = O != Format::f32;
  constexpr int64_t kIn = kTwoBytes<F> / kTwo, kOut = kTwoBytes<O> / kTwo;
  alignas(64) float kept[kSoftmaxKept];
  const int64_t columns = args.columns;
  // Long rows a segment at a time, so that what is read twice is read from L1.
  const int64_t stretch = args.online ? int64_t{kRun} : columns;
  for (int64_t r = begin; r < end; ++r) {
    const char* x = args.x[r];
    char* out = args.out[r];
    const char* next = r + 1 < end ? args.x[r + 1] : nullptr;
    const auto length = [&](int64_t i) __attribute__((always_inline)) {
      return columns - i < stretch ? columns - i : stretch;
    };
    float top = kLowest, sum = 0;
    for (int64_t i = 0; i < columns; i += stretch) {
      const float most = maximum<F>(x + i * kIn, length(i));
      if (most > top) {
        // The sum so far is relative to the old maximum.
        const f32v shrink = exp(broadcast((top - most) * args.scale));
        sum *= shrink[0];
        top = most;
      }
      if (top == kLowest) {  // -inf alone gives zeros; a NaN among them shows
        if (has_nan<F>(x + i * kIn, length(i))) sum = __builtin_nanf("");
        continue;
      }
      const char* ahead = args.online ? x + i * kIn + kAhead : next;
      sum += exponentials<F, kSplit, kHalf>(x + i * kIn, length(i), top, args.scale,
                                            args.online ? nullptr : kept, ahead);
    }
    if (top == kLowest) {
      for (int64_t i = 0; i < columns; i += kRun) {
        const int n = columns - i < kRun ? static_cast<int>(columns - i) : kRun;
        for (int k = 0; k < n; ++k) kept[k] = sum;
        write_run(O, out + i * kOut, kOut, n, kept);
      }
      continue;
    }
    const float factor = 1.0f / sum;
    for (int64_t i = 0; i < columns; i += stretch) {
      if (args.online) {
        const char* ahead = next != nullptr ? next + i * kIn : nullptr;
        exponentials<F, kSplit, kHalf>(x + i * kIn, length(i), top, args.scale, kept, ahead);
      }
      write_scaled<O, kSplit>(kept, length(i), factor, out + i * kOut, args.streamed);
    }
  }
  if (args.streamed) fence_streams();
}

template <Format F>
void softmax_to(const SoftmaxArgs& args, int64_t begin, int64_t end) {
  switch (args.out_format) {
    case Format::f32:
      return softmax<F, Format::f32>(args, begin, end);
    case Format::f16:
      return softmax<F, Format::f16>(args, begin, end);
    default:
      return softmax<F, Format::bf16>(args, begin, end);
  }
}

}  // namespace

void softmax_rows(const SoftmaxArgs& args, int64_t begin, int64_t end) {
  switch (args.format) {
    case Format::f32:
      return softmax_to<Format::f32>(args, begin, end);
    case Format::f16:
      return softmax_to<Format::f16>(args, begin, end);
    default:
      return softmax_to<Format::bf16>(args, begin, end);
  }
}

}  // namespace halftone::HALFTONE_LEVEL
