// Element by element, once per instruction level: operands to f32 a run at a time, one loop, back.
#include "ops/map/kernels.h"
#include "simd/activate.h"
#include "simd/blocks.h"

namespace halftone::HALFTONE_LEVEL {

namespace {

struct Run {
  const float* in[3];
  float* out;
  int n;
};

HALFTONE_INLINE f32v load_some(const float* x, int i, int count) {
  return count == kLanes ? load_raw<f32v>(x + i) : load_partial<Format::f32>(x, i, count);
}

// out = f(a, b, c) of vectors; operands that f does not look at are not read.
template <int Operands, class F>
HALFTONE_INLINE void each(const Run& r, const F& f) {
  const auto one = [&](int i, int count) __attribute__((always_inline)) {
    const f32v a = load_some(r.in[0], i, count);
    const f32v b = Operands > 1 ? load_some(r.in[1], i, count) : f32v{};
    const f32v c = Operands > 2 ? load_some(r.in[2], i, count) : f32v{};
    return f(a, b, c);
  };
  int i = 0;
  for (; i + 2 * kLanes <= r.n; i += 2 * kLanes) {  // two chains hide latency
    const f32v x = one(i, kLanes), y = one(i + kLanes, kLanes);
    store_raw(r.out + i, x);
    store_raw(r.out + i + kLanes, y);
  }
  for (; i < r.n; i += kLanes) {
    const int count = r.n - i < kLanes ? r.n - i : kLanes;
    const f32v x = one(i, count);
    if (count == kLanes) {
      store_raw(r.out + i, x);
    } else {
      store_partial<Format::f32>(r.out, i, x, count);
    }
  }
}

template <bool Half>
void activations(const MapArgs& args, const Run& r) {
  const GatedActivation g = args.function;
  with_activation(
      g.function.kind, [&]<Activation Kind>() __attribute__((always_inline)) {
        if (args.operation == MapOperation::activation) {
          each<1>(
              r, [&](f32v a, f32v, f32v) __attribute__((always_inline)) {
                return activate<Kind, Half>(a, g.function);
              });
        } else {
          each<2>(
              r, [&](f32v a, f32v b, f32v) __attribute__((always_inline)) {
                return activate<Kind, Half>(clamp_gate(a, g), g.function) * gated_factor(b, g);
              });
        }
      });
}

// NaN in either operand gives NaN, as numpy's minimum and maximum do.
HALFTONE_INLINE f32v or_nan(f32v a, f32v b, f32v y) {
  return select(a != a, a, select(b != b, b, y));
}

#define HALFTONE_EACH(operation, operands, expression)                  \
  case MapOperation::operation:                                         \
    return each<operands>(                                              \
        r, [&](f32v a, f32v b, f32v c) __attribute__((always_inline)) { \
          (void)b, (void)c;                                             \
          return expression;                                            \
        });

void arithmetic(const MapArgs& args, const Run& r, bool half) {
  const f32v alpha = broadcast(args.alpha), beta = broadcast(args.beta);
  switch (args.operation) {
    HALFTONE_EACH(add, 2, fma(alpha, b, a))
    HALFTONE_EACH(subtract, 2, fma(-alpha, b, a))
    HALFTONE_EACH(multiply, 2, a * b)
    HALFTONE_EACH(divide, 2, a / b)
    HALFTONE_EACH(minimum, 2, or_nan(a, b, min(a, b)))
    HALFTONE_EACH(maximum, 2, or_nan(a, b, max(a, b)))
    HALFTONE_EACH(multiply_add, 3, fma(a, b, c))
    HALFTONE_EACH(affine, 1, fma(alpha, a, beta))
    HALFTONE_EACH(negate, 1, -a)
    HALFTONE_EACH(absolute, 1, abs(a))
    HALFTONE_EACH(square, 1, a * a)
    HALFTONE_EACH(sqrt, 1, root(a))
    HALFTONE_EACH(rsqrt, 1, 1.0f / root(a))
    HALFTONE_EACH(reciprocal, 1, 1.0f / a)
    HALFTONE_EACH(log, 1, log(a))
    case MapOperation::exp:
      if (half) {
        return each<1>(
            r,
            [](f32v a, f32v, f32v) __attribute__((always_inline)) { return exponential<true>(a); });
      }
      return each<1>(
          r, [](f32v a, f32v, f32v) __attribute__((always_inline)) { return exp(a); });
    default:
      return;
  }
}
#undef HALFTONE_EACH

HALFTONE_INLINE bool is_half(Format f) { return f == Format::f16 || f == Format::bf16; }

}  // namespace

void map_pieces(const MapArgs& args, int64_t begin, int64_t end) {
  alignas(64) float buffer[4][kRun];
  bool half = is_half(args.out.format);
  for (int k = 0; k < args.operands; ++k) half = half && is_half(args.in[k].format);
  const int last = args.rank - 1;
  const bool direct =
      args.out.format == Format::f32 && args.out.stride[last] == 4 && !args.streamed;
  for (int64_t piece = begin; piece < end; ++piece) {
    int64_t row = piece / args.pieces;
    const int64_t first = piece % args.pieces * kMapPiece;
    const int64_t stop =
        first + kMapPiece < args.extent[last] ? first + kMapPiece : args.extent[last];
    char *in[3] = {args.in[0].base, args.in[1].base, args.in[2].base}, *out = args.out.base;
    for (int d = last - 1; d >= 0; --d) {
      const int64_t index = row % args.extent[d];
      row /= args.extent[d];
      for (int k = 0; k < args.operands; ++k) in[k] += index * args.in[k].stride[d];
      out += index * args.out.stride[d];
    }
    for (int64_t i = first; i < stop; i += kRun) {
      Run run{};
      run.n = stop - i < kRun ? static_cast<int>(stop - i) : kRun;
      for (int k = 0; k < args.operands; ++k) {
        const int64_t stride = args.in[k].stride[last];
        run.in[k] = read_run(args.in[k].format, in[k] + i * stride, stride, run.n, buffer[k]);
      }
      char* to = out + i * args.out.stride[last];
      run.out = direct ? static_cast<float*>(static_cast<void*>(to)) : buffer[3];
      if (args.operation == MapOperation::copy) {
        write_run(args.out.format, to, args.out.stride[last], run.n, run.in[0], args.streamed);
        continue;
      }
      if (args.operation > MapOperation::gated) {
        arithmetic(args, run, half);
      } else if (half) {
        activations<true>(args, run);
      } else {
        activations<false>(args, run);
      }
      if (!direct) {
        write_run(args.out.format, to, args.out.stride[last], run.n, run.out, args.streamed);
      }
    }
  }
  if (args.streamed) fence_streams();
}

}  // namespace halftone::HALFTONE_LEVEL
