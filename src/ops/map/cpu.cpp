// Elementwise operations on the CPU, compiled for every ISA level. Operands of one format are read
// as they are; strided ones are gathered into dense rows first, and other mixtures of formats
// become FP32.
#include "ops/map/kernels.h"
#include "simd/activate.h"
#include "simd/blocks.h"
#include "simd/two.h"

namespace halftone::HALFTONE_LEVEL {

namespace {

// Dense operands of one format.
struct Run {
  Format format;
  const char* in[3];
  char* out;
  int64_t n;
  bool streamed;
};

// kExact: f only chooses among its operands, their negatives and 0.
template <Format F, int Operands, bool kExact, class Function>
HALFTONE_INLINE void loop(const Run& r, const Function& f) {
  constexpr int64_t kBytes = kTwoBytes<F> / kTwo;
  for (int64_t i = 0; i < r.n; i += kTwo) {
    Two v[3] = {};
    const bool whole = i + kTwo <= r.n;
    for (int k = 0; k < Operands; ++k) {
      const char* from = r.in[k] + i * kBytes;
      ask_ahead<kTwoBytes<F>>(from);
      v[k] = whole ? load_two<F>(from) : load_two_partial<F>(from, r.n - i);
    }
    // 16-bit results take the short polynomials.
    constexpr bool kHalf = F != Format::f32;
    const Two y = {f.template operator()<kHalf>(v[0].a, v[1].a, v[2].a),
                   f.template operator()<kHalf>(v[0].b, v[1].b, v[2].b)};
    char* to = r.out + i * kBytes;
    whole ? store_two<F, true, kExact>(to, y, r.streamed) : store_two_partial<F>(to, y, r.n - i);
  }
}

// out = f(a, b, c) of vectors; operands that f ignores are not read.
template <int Operands, bool kExact = false, class Function>
HALFTONE_INLINE void each(const Run& r, const Function& f) {
  switch (r.format) {
    case Format::f32:
      return loop<Format::f32, Operands, kExact>(r, f);
    case Format::f16:
      return loop<Format::f16, Operands, kExact>(r, f);
    default:
      return loop<Format::bf16, Operands, kExact>(r, f);
  }
}

void activations(const MapArgs& args, const Run& r) {
  const GatedActivation g = args.function;
  with_activation(
      g.function.kind, [&]<Activation Kind>() __attribute__((always_inline)) {
        if (args.operation == MapOperation::activation) {
          constexpr bool kExact = Kind == Activation::identity || Kind == Activation::relu ||
                                  Kind == Activation::hardshrink;
          each<1, kExact>(
              r, [&]<bool Half>(f32v a, f32v, f32v) __attribute__((always_inline)) {
                return activate<Kind, Half>(a, g.function);
              });
        } else {
          each<2>(
              r, [&]<bool Half>(f32v a, f32v b, f32v) __attribute__((always_inline)) {
                return activate<Kind, Half>(clamp_gate(a, g), g.function) * gated_factor(b, g);
              });
        }
      });
}

// NaN in either operand gives NaN, as numpy's minimum and maximum do.
HALFTONE_INLINE f32v or_nan(f32v a, f32v b, f32v y) {
  return select(a != a, a, select(b != b, b, y));
}

#define HALFTONE_EACH(operation, operands, expression, ...)                        \
  case MapOperation::operation:                                                    \
    return each<operands __VA_OPT__(, ) __VA_ARGS__>(                              \
        r, [&]<bool Half>(f32v a, f32v b, f32v c) __attribute__((always_inline)) { \
          (void)b, (void)c;                                                        \
          return expression;                                                       \
        });

void arithmetic(const MapArgs& args, const Run& r) {
  const f32v alpha = broadcast(args.alpha), beta = broadcast(args.beta);
  switch (args.operation) {
    HALFTONE_EACH(copy, 1, a, true)
    HALFTONE_EACH(add, 2, fma(alpha, b, a))
    HALFTONE_EACH(subtract, 2, fma(-alpha, b, a))
    HALFTONE_EACH(multiply, 2, a * b)
    HALFTONE_EACH(divide, 2, a / b)
    HALFTONE_EACH(minimum, 2, or_nan(a, b, min(a, b)), true)
    HALFTONE_EACH(maximum, 2, or_nan(a, b, max(a, b)), true)
    HALFTONE_EACH(multiply_add, 3, fma(a, b, c))
    HALFTONE_EACH(affine, 1, fma(alpha, a, beta))
    HALFTONE_EACH(negate, 1, -a, true)
    HALFTONE_EACH(absolute, 1, abs(a), true)
    HALFTONE_EACH(square, 1, a * a)
    HALFTONE_EACH(sqrt, 1, root(a))
    HALFTONE_EACH(rsqrt, 1, 1.0f / root(a))
    HALFTONE_EACH(reciprocal, 1, 1.0f / a)
    HALFTONE_EACH(exp, 1, exponential<Half>(a))
    HALFTONE_EACH(log, 1, log(a))
    default:
      return;
  }
}
#undef HALFTONE_EACH

void compute(const MapArgs& args, const Run& r) {
  args.operation > MapOperation::gated ? arithmetic(args, r) : activations(args, r);
}

HALFTONE_INLINE int bytes_of(Format f) { return f == Format::f32 ? 4 : 2; }

template <class T>
HALFTONE_INLINE void move_elements(const char* from, int64_t from_stride, char* to,
                                   int64_t to_stride, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    T element;
    std::memcpy(&element, from + i * from_stride, sizeof element);
    std::memcpy(to + i * to_stride, &element, sizeof element);
  }
}
void move_run(int bytes, const char* from, int64_t from_stride, char* to, int64_t to_stride,
              int64_t n) {
  if (bytes == 2) {
    if (from_stride == 4 && to_stride == 2) return move_elements<uint16_t>(from, 4, to, 2, n);
    return move_elements<uint16_t>(from, from_stride, to, to_stride, n);
  }
  if (from_stride == 8 && to_stride == 4) return move_elements<uint32_t>(from, 8, to, 4, n);
  move_elements<uint32_t>(from, from_stride, to, to_stride, n);
}

// A segment of a row; operands begin at in[k] and out.
void map_stretch(const MapArgs& args, const char* const* in, char* out, int64_t n) {
  const int last = args.rank - 1;
  const Format format = args.out.format;
  const int bytes = bytes_of(format);
  bool one_format = true, dense = args.out.stride[last] == bytes;
  for (int k = 0; k < args.operands; ++k) {
    one_format = one_format && args.in[k].format == format;
    dense = dense && args.in[k].stride[last] == bytes;
  }
  const bool streamed = args.streamed && reinterpret_cast<uintptr_t>(out) % 64 == 0;
  if (one_format && dense) {
    return compute(args, {format, {in[0], in[1], in[2]}, out, n, streamed});
  }
  alignas(64) char buffer[4][kRun * 4];
  for (int64_t i = 0; i < n; i += kRun) {
    const int count = n - i < kRun ? static_cast<int>(n - i) : kRun;
    Run run{one_format ? format : Format::f32, {}, buffer[3], count, false};
    for (int k = 0; k < args.operands; ++k) {
      const int64_t stride = args.in[k].stride[last];
      const char* from = in[k] + i * stride;
      if (!one_format) {
        auto* to = static_cast<float*>(static_cast<void*>(buffer[k]));
        from = static_cast<const char*>(
            static_cast<const void*>(read_run(args.in[k].format, from, stride, count, to)));
      } else if (stride != bytes) {
        move_run(bytes, from, stride, buffer[k], bytes, count);
        from = buffer[k];
      }
      run.in[k] = from;
    }
    char* to = out + i * args.out.stride[last];
    if (one_format && args.out.stride[last] == bytes) run.out = to;
    compute(args, run);
    if (!one_format) {
      const auto* from = static_cast<const float*>(static_cast<const void*>(buffer[3]));
      write_run(format, to, args.out.stride[last], count, from, args.streamed);
    } else if (run.out != to) {
      move_run(bytes, buffer[3], bytes, to, args.out.stride[last], count);
    }
  }
}

}  // namespace

void map_pieces(const MapArgs& args, int64_t begin, int64_t end) {
  const int last = args.rank - 1;
  for (int64_t piece = begin; piece < end; ++piece) {
    int64_t row = piece / args.pieces;
    const int64_t first = piece % args.pieces * kMapPiece;
    const int64_t stop =
        first + kMapPiece < args.extent[last] ? first + kMapPiece : args.extent[last];
    const char* in[3] = {args.in[0].base, args.in[1].base, args.in[2].base};
    char* out = args.out.base;
    for (int d = last - 1; d >= 0; --d) {
      const int64_t index = row % args.extent[d];
      row /= args.extent[d];
      for (int k = 0; k < args.operands; ++k) in[k] += index * args.in[k].stride[d];
      out += index * args.out.stride[d];
    }
    for (int k = 0; k < args.operands; ++k) in[k] += first * args.in[k].stride[last];
    map_stretch(args, in, out + first * args.out.stride[last], stop - first);
  }
  if (args.streamed) fence_streams();
}

}  // namespace halftone::HALFTONE_LEVEL
