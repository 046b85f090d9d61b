// Embedding lookup: a row of the table for each token, expanded where it is quantised. The row of
// an index outside the table is zeros, and the index is reported.
#pragma once
#include "ops/embedding/kernels.h"
#include "pipe/codes.h"
#include "pipe/fault.h"
#include "pipe/row_threads.h"

namespace halftone {

struct EmbeddingGpu {
  struct Params {
    EmbeddingArgs args;
    EmbeddingRange range;
    FaultReporter faults;
    uint32_t row_threads;
  };
  static constexpr uint32_t kThreads = pipe::kMostRowThreads, kMinBlocks = 1;

  HT_DEVICE static void run(const Params& p) {
    const EmbeddingArgs& args = p.args;
    const pipe::RowThreads threads(p.row_threads);
    const int64_t token = threads.row();
    if (token >= p.range.tokens) return;
    const int64_t id = pipe::load_index(args.ids, args.wide_ids, token * args.id_stride);
    const bool inside = id >= 0 && id < p.range.vocabulary;
    if (!inside && threads.rank() == 0) {
      pipe::report_fault(p.faults, Fault::embedding_id, token, id, p.range.vocabulary);
    }
    const char* row = args.table + (inside ? id : 0) * args.table_stride;
    char* out = args.out + token * args.out_stride;
    const bool plain =
        args.format == Format::f32 || args.format == Format::f16 || args.format == Format::bf16;
    const Format widest = args.format == Format::f32 ? Format::f32 : args.out_format;
    for (uint32_t step = 0;; ++step) {
      // Codes are read eight neighbours at a time.
      const pipe::Quads at =
          pipe::quads_of(plain ? widest : Format::bf16, threads.rank(), threads.threads(), step);
      if (at.first >= args.columns) return;
      float x[8] = {};
      if (inside && plain) pipe::load_eight(args.format, row, at, args.columns, x);
      if (inside && !plain) expand(args, row, id, at.first, x);
      pipe::store_eight(args.out_format, out, at, args.columns, x);
    }
  }

  HT_DEVICE static void expand(const EmbeddingArgs& args, const char* row, int64_t id,
                               int64_t first, float (&x)[8]) {
    const auto codes = pipe::load_codes(args.format, row, first, args.columns);
    const int64_t scale_row = args.block_rows == 0 ? 0 : id / args.block_rows;
    const float tensor_scale =
        args.tensor_scale_at != nullptr ? hw::load_global(args.tensor_scale_at) : args.tensor_scale;
    float scale = 1, zero = 8;
    int64_t block = -1;
    HT_UNROLL
    for (uint32_t i = 0; i < 8; ++i) {
      if (first + i >= args.columns) break;
      const int64_t b = args.block_columns == 0 ? 0 : (first + i) / args.block_columns;
      if (b != block) {
        block = b;
        if (args.scales != nullptr) {
          scale =
              pipe::load_scale(args.scale_format, args.scales,
                               scale_row * args.scale_row_stride + b * args.scale_column_stride);
        }
        if (args.zero_points != nullptr) {
          zero = hw::load_global(args.zero_points + scale_row * args.zero_row_stride +
                                 b * args.zero_column_stride);
        }
      }
      const uint32_t code = codes[i / 4] >> 8 * (i % 4) & 0xff;
      x[i] = pipe::decode_code(args.format, code, zero) * scale * tensor_scale;
    }
  }
};

}  // namespace halftone
