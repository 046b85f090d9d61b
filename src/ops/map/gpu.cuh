// Element by element on strided operands of any plain formats. Where all have one format and rows
// of whole pieces of 16 bytes, a thread takes sixteen elements and has all of their loads under way
// before it computes; else eight, of each operand as its format, strides and alignment allow.
#pragma once
#include <cmath>

#include "base/launch.h"
#include "hw/thread.h"
#include "ops/map/kernels.h"
#include "pipe/access.h"
#include "pipe/activate.h"

namespace halftone {

struct MapGpuParams {
  MapArgs args;
  int64_t rows;
  uint32_t row_shift;  // a row has 2^row_shift threads
  uint32_t pieces;     // that a row is cut into, of a thread's elements for each row thread
};

template <pipe::Access kAccess>
struct MapGpu {
  using Params = MapGpuParams;
  static constexpr uint32_t kThreads = 256;
  static constexpr uint32_t kMinBlocks = kAccess == pipe::Access::f32 ? 3 : 4;
  static constexpr uint32_t kEights = kAccess == pipe::Access::any ? 1 : 2;  // of a thread

  static LaunchShape shape(const Params& p) {
    const int64_t rows_a_block = kThreads >> p.row_shift;
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
    const uint32_t rank = thread & ((1u << p.row_shift) - 1);
    uint32_t piece = block;
    int64_t row = 0;
    if (p.rows > 1) {
      piece = block % p.pieces;
      row = (int64_t{block / p.pieces} * kThreads + thread) >> p.row_shift;
      if (row >= p.rows) return;
    } else if (thread >> p.row_shift != 0) {
      return;
    }
    const char* in[3] = {args.in[0].base, args.in[1].base, args.in[2].base};
    char* out = args.out.base;
    for (int d = args.rank - 2; d >= 0 && p.rows > 1; --d) {
      const int64_t index = d == 0 ? row : row % args.extent[d];
      row = d == 0 ? 0 : row / args.extent[d];
      HT_UNROLL
      for (uint32_t k = 0; k < 3; ++k) in[k] += index * args.in[k].stride[d];
      out += index * args.out.stride[d];
    }
    const int64_t columns = args.extent[args.rank - 1];
    const auto place = [&](Format f, uint32_t eight) {
      return pipe::quads_of(f, rank, 1u << p.row_shift, piece * kEights + eight);
    };
    if constexpr (kAccess == pipe::Access::any) {
      mixed(args, in, out, columns, place);
    } else {
      uniform(args, in, out, columns, place);
    }
  }

  // Operands of one format.
  template <class Place>
  HT_DEVICE static void uniform(const MapArgs& args, const char* const (&in)[3], char* out,
                                int64_t columns, const Place& place) {
    constexpr Format f = pipe::format_of(kAccess, Format::f32);
    pipe::Eight<kAccess> read[3][kEights];
    HT_UNROLL
    for (int k = 0; k < 3; ++k) {
      if (k >= args.operands) continue;
      HT_UNROLL
      for (uint32_t i = 0; i < kEights; ++i) read[k][i].load(f, in[k], place(f, i), columns);
    }
    float x[3][kEights * 8];
    HT_UNROLL
    for (uint32_t n = 0; n < 3 * kEights; ++n) {
      float eight[8];
      read[n / kEights][n % kEights].widen(f, eight);
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) x[n / kEights][n % kEights * 8 + i] = eight[i];
    }
    compute<f != Format::f32>(args, x[0], x[1], x[2]);
    HT_UNROLL
    for (uint32_t n = 0; n < kEights; ++n) {
      float eight[8];
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) eight[i] = x[0][n * 8 + i];
      pipe::Eight<kAccess> result;
      result.narrow(f, eight);
      result.store(f, out, place(f, n), columns);
    }
  }

  template <class Place>
  HT_DEVICE static void mixed(const MapArgs& args, const char* const (&in)[3], char* out,
                              int64_t columns, const Place& place) {
    bool half = is_half(args.out.format), wide = !half && has_no_gaps(args, args.out);
    HT_UNROLL
    for (int k = 0; k < 3; ++k) {
      if (k >= args.operands) continue;
      half = half && is_half(args.in[k].format);
      wide = wide || (!is_half(args.in[k].format) && has_no_gaps(args, args.in[k]));
    }
    const pipe::Quads at = place(wide ? Format::f32 : Format::bf16, 0);
    if (at.first >= columns) return;
    float a[8], b[8], c[8];
    load(args, args.in[0], in[0], at, a);
    if (args.operands > 1) load(args, args.in[1], in[1], at, b);
    if (args.operands > 2) load(args, args.in[2], in[2], at, c);
    half ? compute<true>(args, a, b, c) : compute<false>(args, a, b, c);
    store(args, out, at, a);
  }

  template <bool kHalf, uint32_t kCount>
  HT_DEVICE static void compute(const MapArgs& args, float (&a)[kCount], const float (&b)[kCount],
                                const float (&c)[kCount]) {
    if (args.operation > MapOperation::gated) {
      arithmetic<kHalf>(args, a, b, c);
    } else if (args.operation == MapOperation::gated) {
      pipe::activate_gate<kHalf>(args.function, a, b);
    } else {
      pipe::activate<kHalf>(args.function.function, a);
    }
  }

  template <bool kHalf, uint32_t kCount>
  HT_DEVICE static void arithmetic(const MapArgs& args, float (&a)[kCount],
                                   const float (&b)[kCount], const float (&c)[kCount]) {
    const float alpha = args.alpha, beta = args.beta;
#define HT_EACH(operation, expression)                       \
  case MapOperation::operation:                              \
    HT_UNROLL                                                \
    for (uint32_t i = 0; i < kCount; ++i) a[i] = expression; \
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
      HT_EACH(exp, pipe::exponential<kHalf>(a[i]))
      default:  // copy
        return;
    }
#undef HT_EACH
  }
};

}  // namespace halftone
