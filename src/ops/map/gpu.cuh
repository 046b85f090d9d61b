// Elementwise operations (activations, gates, arithmetic) for every GPU on strided operands of any
// float format. Eight elements a thread, of each operand as its format, strides and alignment
// allow. Where all operands have one format and rows of whole 16-byte pieces, an instance for each
// number of operands takes sixteen elements a thread and has all of its loads in flight before it
// computes.
#pragma once
#include <cmath>

#include "base/launch.h"
#include "hw/griddep.h"
#include "hw/thread.h"
#include "ops/map/kernels.h"
#include "pipe/activate.h"
#include "pipe/row_pieces.h"

namespace halftone {

struct MapGpuParams {
  MapArgs args;
  int64_t rows;
  uint32_t row_shift;  // a row has 2^row_shift threads
  uint32_t pieces;     // segments of a row, of a thread's elements for each row thread
};

// What both kernels share: the rows of a CTA, and the operation itself.
struct MapGpuBlock {
  using Params = MapGpuParams;
  static constexpr uint32_t kThreads = 256;

  static LaunchShape shape(const Params& p) {
    const int64_t rows_a_block = kThreads >> p.row_shift;
    const int64_t groups = (p.rows + rows_a_block - 1) / rows_a_block;
    return {.grid = {static_cast<uint32_t>(groups * p.pieces), 1, 1}, .block = {kThreads, 1, 1}};
  }

  uint32_t rank, piece = 0;  // of the row's threads, and of its segments
  bool live = true;
  const char* in[3];
  char* out;

  HT_DEVICE explicit MapGpuBlock(const Params& p) {
    const MapArgs& args = p.args;
    const uint32_t thread = hw::thread_index().x, block = hw::block_index().x;
    rank = thread & ((1u << p.row_shift) - 1);
    piece = block;
    HT_UNROLL
    for (uint32_t k = 0; k < 3; ++k) in[k] = args.in[k].base;
    out = args.out.base;
    if (p.rows == 1) {
      live = thread >> p.row_shift == 0;
      return;
    }
    piece = block % p.pieces;
    int64_t row = (int64_t{block / p.pieces} * kThreads + thread) >> p.row_shift;
    live = row < p.rows;
    for (int d = args.rank - 2; d >= 0 && live; --d) {
      const int64_t index = d == 0 ? row : row % args.extent[d];
      row = d == 0 ? 0 : row / args.extent[d];
      HT_UNROLL
      for (uint32_t k = 0; k < 3; ++k) in[k] += index * args.in[k].stride[d];
      out += index * args.out.stride[d];
    }
  }

  // a = operation of a, or of a and b, or of the three.
  template <bool kHalf, uint32_t kOperands, uint32_t kCount>
  HT_DEVICE static void compute(const MapArgs& args, float (&a)[kCount], const float (&b)[kCount],
                                const float (&c)[kCount]) {
    const float alpha = args.alpha, beta = args.beta;
#define HT_EACH(operation, expression)                       \
  case MapOperation::operation:                              \
    HT_UNROLL                                                \
    for (uint32_t i = 0; i < kCount; ++i) a[i] = expression; \
    return;
    if constexpr (kOperands == 1) {
      switch (args.operation) {
        case MapOperation::activation:
          return pipe::activate<kHalf>(args.function.function, a);
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
    } else if constexpr (kOperands == 2) {
      switch (args.operation) {
        case MapOperation::gated:
          return pipe::activate_gate<kHalf>(args.function, a, b);
          HT_EACH(add, hw::fma(alpha, b[i], a[i]))
          HT_EACH(subtract, hw::fma(-alpha, b[i], a[i]))
          HT_EACH(multiply, a[i] * b[i])
          HT_EACH(divide, a[i] / b[i])
          HT_EACH(minimum, hw::min_nan(a[i], b[i]))
          HT_EACH(maximum, hw::max_nan(a[i], b[i]))
        default:
          return;
      }
    } else {
      HT_UNROLL
      for (uint32_t i = 0; i < kCount; ++i) a[i] = hw::fma(a[i], b[i], c[i]);
    }
#undef HT_EACH
  }
};

struct MapGpu {
  using Params = MapGpuParams;
  static constexpr uint32_t kThreads = MapGpuBlock::kThreads, kMinBlocks = 4;

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
    hw::launch_dependents_and_wait();
    const MapArgs& args = p.args;
    const MapGpuBlock block(p);
    bool half = is_half(args.out.format), wide = !half && has_no_gaps(args, args.out);
    HT_UNROLL
    for (int k = 0; k < 3; ++k) {
      if (k >= args.operands) continue;
      half = half && is_half(args.in[k].format);
      wide = wide || (!is_half(args.in[k].format) && has_no_gaps(args, args.in[k]));
    }
    const pipe::Quads at = pipe::quads_of(wide ? Format::f32 : Format::bf16, block.rank,
                                          1u << p.row_shift, block.piece);
    if (!block.live || at.first >= args.extent[args.rank - 1]) return;
    float a[8], b[8], c[8];
    load(args, args.in[0], block.in[0], at, a);
    if (args.operands > 1) load(args, args.in[1], block.in[1], at, b);
    if (args.operands > 2) load(args, args.in[2], block.in[2], at, c);
    half ? compute<true>(args, a, b, c) : compute<false>(args, a, b, c);
    store(args, block.out, at, a);
  }

  template <bool kHalf>
  HT_DEVICE static void compute(const MapArgs& args, float (&a)[8], const float (&b)[8],
                                const float (&c)[8]) {
    if (args.operands == 1) return MapGpuBlock::compute<kHalf, 1>(args, a, b, c);
    if (args.operands == 2) return MapGpuBlock::compute<kHalf, 2>(args, a, b, c);
    MapGpuBlock::compute<kHalf, 3>(args, a, b, c);
  }
};

template <pipe::Access kAccess, uint32_t kOperands>
struct MapWholeGpu {
  using Params = MapGpuParams;
  using Piece = pipe::Piece<kAccess>;
  static constexpr uint32_t kThreads = MapGpuBlock::kThreads;
  static constexpr uint32_t kMinBlocks = kAccess == pipe::Access::f32 ? 3 : 4;
  static constexpr uint32_t kCount = 16, kPieces = kCount / Piece::kElements;  // of a thread

  HT_DEVICE static void run(const Params& p) {
    hw::launch_dependents_and_wait();
    const MapArgs& args = p.args;
    const MapGpuBlock block(p);
    // The CTA's segment of the row: one address an operand, 32-bit offsets.
    const int64_t columns = args.extent[args.rank - 1];
    const int64_t begin = int64_t{block.piece} * (kCount << p.row_shift);
    const uint32_t most = kCount << p.row_shift, apart = 16u << p.row_shift;
    const uint32_t end =
        (columns - begin < most ? static_cast<uint32_t>(columns - begin) : most) * Piece::kBytes;
    if (!block.live) return;
    const auto for_pieces = [&](const auto& each) {
      HT_UNROLL
      for (uint32_t n = 0; n < kPieces; ++n) {
        const uint32_t at = block.rank * 16 + n * apart;
        if (at < end) each(n, at);
      }
    };
    Piece read[kOperands][kPieces];
    HT_UNROLL
    for (uint32_t k = 0; k < kOperands; ++k) {
      const char* in = block.in[k] + begin * Piece::kBytes;
      for_pieces([&](uint32_t n, uint32_t at) { read[k][n].load(in + at); });
    }
    float x[kOperands][kCount];
    HT_UNROLL
    for (uint32_t k = 0; k < kOperands * kPieces; ++k) {
      float piece[Piece::kElements];
      read[k / kPieces][k % kPieces].widen(piece);
      HT_UNROLL
      for (uint32_t i = 0; i < Piece::kElements; ++i) {
        x[k / kPieces][k % kPieces * Piece::kElements + i] = piece[i];
      }
    }
    MapGpuBlock::compute<kAccess != pipe::Access::f32, kOperands>(
        args, x[0], x[kOperands > 1 ? 1 : 0], x[kOperands > 2 ? 2 : 0]);
    char* out = block.out + begin * Piece::kBytes;
    for_pieces([&](uint32_t n, uint32_t at) {
      float piece[Piece::kElements];
      HT_UNROLL
      for (uint32_t i = 0; i < Piece::kElements; ++i) piece[i] = x[0][n * Piece::kElements + i];
      Piece result;
      result.narrow(piece);
      result.store(out + at);
    });
  }
};

}  // namespace halftone
