// Reductions of contiguous FP32 rows on the CPU, compiled for every ISA level.
#include "ops/reduce/kernels.h"
#include "simd/two.h"

namespace halftone::HALFTONE_LEVEL {

namespace {

constexpr int kChains = 64;  // of one row segment, at every ISA level
constexpr int kVectors = kChains / kLanes;

template <ReduceStep S>
HALFTONE_INLINE f32v combine(f32v acc, f32v x, f32v y) {
  if constexpr (S == ReduceStep::sum) return acc + x;
  if constexpr (S == ReduceStep::squares) return fma(x, x, acc);
  if constexpr (S == ReduceStep::products) return fma(x, y, acc);
  // A NaN stays: max and min give their second operand when either is NaN.
  if constexpr (S == ReduceStep::max) return select(acc != acc, acc, max(acc, x));
  return select(acc != acc, acc, min(acc, x));
}

template <ReduceStep S>
HALFTONE_INLINE float start() {
  if constexpr (S == ReduceStep::max) return -__builtin_inff();
  if constexpr (S == ReduceStep::min) return __builtin_inff();
  return 0;
}

// Lanes past `count` read as the neutral element.
template <ReduceStep S, Format F>
HALFTONE_INLINE f32v tail(const void* p, int64_t i, int count) {
  if (count == kLanes) return load<F>(p, i);
  float lane[kLanes], read[kLanes];
  store_raw(lane, broadcast(start<S>()));
  store_raw(read, load_partial<F>(p, i, count));
  std::memcpy(lane, read, static_cast<size_t>(count) * sizeof(float));
  return load_raw<f32v>(lane);
}

template <ReduceStep S>
HALFTONE_INLINE f32v join(f32v a, f32v b) {
  constexpr bool kExtreme = S == ReduceStep::max || S == ReduceStep::min;
  return combine < kExtreme ? S : ReduceStep::sum > (a, b, f32v{});
}

// Whether a NaN was among vectors. MAXPS and MINPS lose it, and testing each in passing would cost
// them two instructions more.
struct SeenNan {
#if defined(__AVX512F__)
  __mmask16 seen = 0;
  HALFTONE_INLINE void add(Two v) {
    seen |= _mm512_cmp_ps_mask(bits_as<__m512>(v.a), bits_as<__m512>(v.b), _CMP_UNORD_Q);
  }
  HALFTONE_INLINE explicit operator bool() const { return seen != 0; }
#else
  i32v seen{};
  HALFTONE_INLINE void add(Two v) { seen |= (v.a != v.a) | (v.b != v.b); }
  HALFTONE_INLINE explicit operator bool() const { return any(seen); }
#endif
};

template <ReduceStep S, Format F>
void row(const ReduceRun& r) {
  constexpr bool kPairs = S == ReduceStep::products;
  constexpr bool kExtreme = S == ReduceStep::max || S == ReduceStep::min;
  constexpr int64_t kBytes = kTwoBytes<F> / kTwo;
  constexpr int kTwos = kChains / kTwo;
  const auto* x = static_cast<const char*>(r.x);
  Two two[kTwos];
  for (Two& t : two) t = {broadcast(start<S>()), broadcast(start<S>())};
  SeenNan nan;
  int64_t i = 0;
  for (; i + kChains <= r.n; i += kChains) {
    for (int k = 0; k < kTwos; ++k) {
      const char* from = x + (i + k * kTwo) * kBytes;
      ask_ahead<kTwoBytes<F>>(from);
      const Two v = load_two<F>(from);
      if constexpr (kExtreme) {
        nan.add(v);
        constexpr bool kMax = S == ReduceStep::max;
        two[k] = {kMax ? max(v.a, two[k].a) : min(v.a, two[k].a),
                  kMax ? max(v.b, two[k].b) : min(v.b, two[k].b)};
      } else {
        const Two y = kPairs ? load_two<Format::f32>(r.y + i + k * kTwo) : Two{};
        two[k] = {combine<S>(two[k].a, v.a, y.a), combine<S>(two[k].b, v.b, y.b)};
      }
    }
  }
  if (nan) {
    r.out[0] = __builtin_nanf("");
    return;
  }
  f32v acc[kVectors];
  for (int k = 0; k < kTwos; ++k) {
    const Two t = in_order<F>(two[k]);
    acc[2 * k] = t.a;
    acc[2 * k + 1] = t.b;
  }
  for (int v = 0; i < r.n; i += kLanes, ++v) {
    const int count = r.n - i < kLanes ? static_cast<int>(r.n - i) : kLanes;
    acc[v] = combine<S>(acc[v], tail<S, F>(r.x, i, count),
                        kPairs ? tail<S, Format::f32>(r.y, i, count) : f32v{});
  }
  // Chain k is added to chain k + half: vectors first, then lanes.
  for (int half = kVectors / 2; half > 0; half /= 2) {
    for (int v = 0; v < half; ++v) acc[v] = join<S>(acc[v], acc[v + half]);
  }
  r.out[0] = fold_lanes(
      acc[0], [](f32v a, f32v b) __attribute__((always_inline)) { return join<S>(a, b); });
}

template <ReduceStep S, Format F>
void columns(const ReduceRun& r) {
  constexpr bool kPairs = S == ReduceStep::products;
  int64_t i = 0;
  constexpr int64_t kBytes = kTwoBytes<F> / kTwo;
  for (; i + kLanes <= r.n; i += kLanes) {
    ask_ahead<1>(static_cast<const char*>(r.x) + i * kBytes);
    store_raw(r.out + i, combine<S>(load_raw<f32v>(r.out + i), load<F>(r.x, i),
                                    kPairs ? load_raw<f32v>(r.y + i) : f32v{}));
  }
  if (i < r.n) {
    const int count = static_cast<int>(r.n - i);
    const f32v y = kPairs ? load_partial<Format::f32>(r.y, i, count) : f32v{};
    const f32v x = load_partial<F>(r.x, i, count);
    store_partial<Format::f32>(r.out, i,
                               combine<S>(load_partial<Format::f32>(r.out, i, count), x, y), count);
  }
}

template <ReduceStep S>
void step(const ReduceRun& r) {
  const auto of = [&]<Format F>() { r.columns ? columns<S, F>(r) : row<S, F>(r); };
  if constexpr (S != ReduceStep::products) {
    if (r.format == Format::bf16) return of.template operator()<Format::bf16>();
    if (r.format == Format::f16) return of.template operator()<Format::f16>();
  }
  of.template operator()<Format::f32>();
}

}  // namespace

void reduce_run(const ReduceRun& r) {
  switch (r.step) {
    case ReduceStep::sum:
      return step<ReduceStep::sum>(r);
    case ReduceStep::squares:
      return step<ReduceStep::squares>(r);
    case ReduceStep::products:
      return step<ReduceStep::products>(r);
    case ReduceStep::max:
      return step<ReduceStep::max>(r);
    case ReduceStep::min:
      return step<ReduceStep::min>(r);
  }
}

}  // namespace halftone::HALFTONE_LEVEL
