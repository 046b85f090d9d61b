// Embedding lookup: a row of the table for each token, expanded where it is quantised. The row of
// an index outside the table is zeros, and the index is reported.
#pragma once
#include "formats/gpu_rows.cuh"
#include "ops/embedding/kernels.h"
#include "pipe/fault.h"
#include "pipe/row_threads.h"

namespace halftone {

struct EmbeddingParams {
  EmbeddingArgs args;
  ScaledCodes codes;  // of the table, where it is quantised
  EmbeddingRange range;
  FaultReporter faults;
  uint32_t row_threads;
};

// The row of a token's id; null: outside the table, which is reported.
HT_DEVICE const char* row_of_token(const EmbeddingParams& p, int64_t token, bool reports,
                                   int64_t& id) {
  const EmbeddingArgs& args = p.args;
  id = pipe::load_index(args.ids, args.wide_ids, token * args.id_stride);
  if (id >= 0 && id < p.range.vocabulary) return args.table + id * args.table_stride;
  if (reports) {
    pipe::report_fault(p.faults, Fault::embedding_id, token, id, p.range.vocabulary);
  }
  return nullptr;
}

struct EmbeddingGpu {
  using Params = EmbeddingParams;
  static constexpr uint32_t kThreads = pipe::kMostRowThreads, kMinBlocks = 1;

  HT_DEVICE static void run(const Params& p) {
    const EmbeddingArgs& args = p.args;
    const pipe::RowThreads threads(p.row_threads);
    const int64_t token = threads.row();
    if (token >= p.range.tokens) return;
    int64_t id = 0;
    const char* row = row_of_token(p, token, threads.rank() == 0, id);
    char* out = args.out + token * args.out_stride;
    const bool plain = is_plain(args.format);
    const Format widest = args.format == Format::f32 ? Format::f32 : args.out_format;
    CodeRow codes(p.codes, row, row != nullptr ? id : 0);
    for (uint32_t step = 0;; ++step) {
      // Codes are read eight neighbours at a time.
      const pipe::Quads at =
          pipe::quads_of(plain ? widest : Format::bf16, threads.rank(), threads.threads(), step);
      if (at.first >= args.columns) return;
      float x[8] = {};
      if (row != nullptr && plain) pipe::load_eight(args.format, row, at, args.columns, x);
      if (row != nullptr && !plain) codes.load(at.first, x);
      pipe::store_eight(args.out_format, out, at, args.columns, x);
    }
  }
};

// Rows of whole pieces of 16 bytes that are copied as they are, four pieces a thread under way.
struct EmbeddingCopyGpu {
  using Params = EmbeddingParams;
  static constexpr uint32_t kThreads = 256, kMinBlocks = 4, kPieces = 4;

  HT_DEVICE static void run(const Params& p) {
    const pipe::RowThreads threads(p.row_threads);
    const int64_t token = threads.row();
    if (token >= p.range.tokens) return;
    int64_t id = 0;
    const auto* from =
        reinterpret_cast<const hw::Words4*>(row_of_token(p, token, threads.rank() == 0, id));
    auto* to = reinterpret_cast<hw::Words4*>(p.args.out + token * p.args.out_stride);
    const auto count =
        static_cast<uint32_t>(p.args.columns * pipe::bytes_of(p.args.format) / sizeof(hw::Words4));
    for (uint32_t first = threads.rank(); first < count; first += kPieces * threads.threads()) {
      hw::Words4 piece[kPieces] = {};
      HT_UNROLL
      for (uint32_t i = 0; i < kPieces; ++i) {
        const uint32_t n = first + i * threads.threads();
        if (n < count && from != nullptr) piece[i] = hw::load_global(from + n);
      }
      HT_UNROLL
      for (uint32_t i = 0; i < kPieces; ++i) {
        const uint32_t n = first + i * threads.threads();
        if (n < count) hw::store_global(to + n, piece[i]);
      }
    }
  }
};

}  // namespace halftone
