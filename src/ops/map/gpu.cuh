// Element by element on strided operands of any plain formats: eight elements a thread, by accesses
// of 16 bytes where an operand's run has no gaps.
#pragma once
#include <cmath>

#include "base/launch.h"
#include "hw/thread.h"
#include "ops/map/kernels.h"
#include "pipe/activate.h"
#include "pipe/elements.h"

namespace halftone {

struct MapGpu {
  struct Params {
    MapArgs args;
    int64_t rows;
    uint32_t row_threads;  // a power of two
    uint32_t pieces;       // of 8 * row_threads elements that a row is cut into
  };
  static constexpr uint32_t kThreads = 256, kMinBlocks = 1;

  static LaunchShape shape(const Params& p) {
    const int64_t rows_a_block = kThreads / p.row_threads;
    const int64_t groups = (p.rows + rows_a_block - 1) / rows_a_block;
    return {.grid = {static_cast<uint32_t>(groups * p.pieces), 1, 1}, .block = {kThreads, 1, 1}};
  }

  HT_DEVICE static bool has_no_gaps(const MapArgs& args, const MapOperand& x) {
    return x.stride[args.rank - 1] == pipe::bytes_of(x.format);
  }
  HT_DEVICE static bool is_half(Format f) { return f != Format::f32; }

  HT_DEVICE static void load(const MapArgs& args, const MapOperand& x, const char* row,
                             const pipe::Quads& at, float (&v)[8]) {
    const int64_t columns = args.extent[args.rank - 1], stride = x.stride[args.rank - 1];
    if (has_no_gaps(args, x)) return pipe::load_eight(x.format, row, at, columns, v);
    HT_UNROLL
    for (uint32_t i = 0; i < 8; ++i) {
      const int64_t column = at.column(i);
      v[i] = column < columns ? pipe::load_element(x.format, row + column * stride) : 0;
    }
  }
  HT_DEVICE static void store(const MapArgs& args, char* row, const pipe::Quads& at,
                              const float (&v)[8]) {
    const int64_t columns = args.extent[args.rank - 1], stride = args.out.stride[args.rank - 1];
    const Format f = args.out.format;
    if (has_no_gaps(args, args.out)) return pipe::store_eight(f, row, at, columns, v);
    HT_UNROLL
    for (uint32_t i = 0; i < 8; ++i) {
      const int64_t column = at.column(i);
      if (column < columns) pipe::store_element(f, row + column * stride, v[i]);
    }
  }

  HT_DEVICE static void run(const Params& p) {
    const MapArgs& args = p.args;
    const uint32_t thread = hw::thread_index().x, block = hw::block_index().x;
    const uint32_t rows_a_block = kThreads / p.row_threads;
    int64_t row = int64_t{block / p.pieces} * rows_a_block + thread / p.row_threads;
    if (row >= p.rows) return;
    const char* in[3] = {args.in[0].base, args.in[1].base, args.in[2].base};
    char* out = args.out.base;
    for (int d = args.rank - 2; d >= 0; --d) {
      const int64_t index = d == 0 ? row : row % args.extent[d];
      row = d == 0 ? 0 : row / args.extent[d];
      HT_UNROLL
      for (uint32_t k = 0; k < 3; ++k) in[k] += index * args.in[k].stride[d];
      out += index * args.out.stride[d];
    }
    bool half = is_half(args.out.format), wide = !half && has_no_gaps(args, args.out);
    HT_UNROLL
    for (int k = 0; k < 3; ++k) {
      if (k >= args.operands) continue;
      half = half && is_half(args.in[k].format);
      wide = wide || (!is_half(args.in[k].format) && has_no_gaps(args, args.in[k]));
    }
    const pipe::Quads at = pipe::quads_of(wide ? Format::f32 : Format::bf16, thread % p.row_threads,
                                          p.row_threads, block % p.pieces);
    if (at.first >= args.extent[args.rank - 1]) return;
    float a[8], b[8], c[8];
    load(args, args.in[0], in[0], at, a);
    if (args.operands > 1) load(args, args.in[1], in[1], at, b);
    if (args.operands > 2) load(args, args.in[2], in[2], at, c);
    if (args.operation > MapOperation::gated) {
      arithmetic(args, half, a, b, c);
    } else if (args.operation == MapOperation::gated) {
      half ? pipe::activate_gate<true>(args.function, a, b)
           : pipe::activate_gate<false>(args.function, a, b);
    } else {
      half ? pipe::activate<true>(args.function.function, a)
           : pipe::activate<false>(args.function.function, a);
    }
    store(args, out, at, a);
  }

  HT_DEVICE static void arithmetic(const MapArgs& args, bool half, float (&a)[8],
                                   const float (&b)[8], const float (&c)[8]) {
    const float alpha = args.alpha, beta = args.beta;
#define HT_EACH(operation, expression)                  \
  case MapOperation::operation:                         \
    HT_UNROLL                                           \
    for (uint32_t i = 0; i < 8; ++i) a[i] = expression; \
    return;
    switch (args.operation) {
      HT_EACH(add, hw::fma(alpha, b[i], a[i]))
      HT_EACH(subtract, hw::fma(-alpha, b[i], a[i]))
      HT_EACH(multiply, a[i] * b[i])
      HT_EACH(divide, a[i] / b[i])
      HT_EACH(minimum, hw::min_nan(a[i], b[i]))
      HT_EACH(maximum, hw::max_nan(a[i], b[i]))
      HT_EACH(multiply_add, hw::fma(a[i], b[i], c[i]))
      HT_EACH(affine, hw::fma(alpha, a[i], beta))
      HT_EACH(negate, -a[i])
      HT_EACH(absolute, std::bit_cast<float>(std::bit_cast<uint32_t>(a[i]) & 0x7fffffff))
      HT_EACH(square, a[i] * a[i])
      HT_EACH(sqrt, sqrtf(a[i]))
      HT_EACH(rsqrt, 1.0f / sqrtf(a[i]))
      HT_EACH(reciprocal, 1.0f / a[i])
      HT_EACH(log, pipe::log(a[i]))
      HT_EACH(exp, half ? pipe::exponential<true>(a[i]) : pipe::exp(a[i]))
      default:  // copy
        return;
    }
#undef HT_EACH
  }
};

}  // namespace halftone
