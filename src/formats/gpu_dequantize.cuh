// Dequantisation on GPUs.
#pragma once
#include "formats/gpu_kernels.h"
#include "formats/scale_layout.h"
#include "pipe/codes.h"
#include "pipe/row_threads.h"

namespace halftone {

// Codes times their scales, exactly, rounded once.
struct DequantizeGpu {
  struct Params {
    DequantizeArgs args;
    uint32_t row_threads;
  };
  static constexpr uint32_t kThreads = pipe::kMostRowThreads, kMinBlocks = 1;

  // a b as f32, for a second rounding to 16 bits: rounded to odd, so that the two round as one.
  HT_DEVICE static float product(float a, float b, bool to_odd) {
    const float p = a * b, error = hw::fma(a, b, -p);
    const uint32_t bits = std::bit_cast<uint32_t>(p);
    if (!to_odd || error == 0 || error != error || (bits & 1) != 0) return p;
    return std::bit_cast<float>((error > 0) == (p > 0) ? bits | 1 : bits - 1);
  }

  HT_DEVICE static void run(const Params& p) {
    const DequantizeArgs& args = p.args;
    const pipe::RowThreads threads(p.row_threads);
    const int64_t row = threads.row();
    if (row >= args.matrices * args.rows) return;
    const int64_t matrix = row / args.rows, r = row - matrix * args.rows;
    const int64_t band = args.block_rows > 0 ? r / args.block_rows : 0;
    const int64_t wide = args.block_columns > 0 ? args.block_columns : args.columns;
    const int64_t groups = (args.columns + wide - 1) / wide;
    const char* codes_row = args.codes[row];
    char* out = args.out + row * args.columns * pipe::bytes_of(args.out_format);
    const float factor = args.tensor_scale != nullptr ? hw::load_global(args.tensor_scale) : 1;
    const bool to_odd = args.out_format != Format::f32;
    const bool plain =
        args.format == Format::f32 || args.format == Format::f16 || args.format == Format::bf16;
    float scale = 1, zero = 8;
    int64_t group = -1;
    for (int64_t first = int64_t{8} * threads.rank(); first < args.columns;
         first += int64_t{8} * threads.threads()) {
      float x[8] = {};
      if (plain) {
        pipe::load_eight(args.format, codes_row, {first, first + 4}, args.columns, x);
        pipe::store_eight(args.out_format, out, {first, first + 4}, args.columns, x);
        continue;
      }
      const auto codes = pipe::load_codes(args.format, codes_row, first, args.columns);
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) {
        if (first + i >= args.columns) continue;
        const int64_t g = (first + i) / wide;
        if (g != group) {
          group = g;
          if (args.scales != nullptr && args.layout != ScaleLayout::linear) {
            scale = pipe::load_scale(args.scale_format, args.scales + matrix * args.scale_matrix,
                                     scale_offset(args.layout, args.rows, groups, r, g));
          } else if (args.scales != nullptr) {
            scale = pipe::load_scale(
                args.scale_format, args.scales,
                matrix * args.scale_matrix + band * args.scale_row + g * args.scale_column);
          }
          if (args.zeros != nullptr) {
            zero = hw::load_global(args.zeros + matrix * args.zero_matrix + band * args.zero_row +
                                   g * args.zero_column);
          }
        }
        const float value =
            pipe::decode_code(args.format, codes[i / 4] >> 8 * (i % 4) & 0xff, zero);
        // With a tensor scale the element times its scale has few bits and is exact.
        x[i] = args.tensor_scale != nullptr ? product(value * scale, factor, to_odd)
                                            : product(value, scale, to_odd);
      }
      pipe::store_eight(args.out_format, out, {first, first + 4}, args.columns, x);
    }
  }
};

}  // namespace halftone
