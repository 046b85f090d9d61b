// Embedding lookup for every GPU: a row of the table for each token, dequantised where it is
// quantised. The row of an index outside the table is zeros, and the index is reported.
#pragma once
#include "formats/gpu/expand.cuh"
#include "formats/gpu/rows.cuh"
#include "hw/griddep.h"
#include "ops/embedding/kernels.h"
#include "pipe/fault.h"
#include "pipe/row_threads.h"

namespace halftone {

// The ids of tokens, each a row of the table.
struct TokenIds {
  const void* ids;
  int64_t stride;
  bool wide;
  int64_t vocabulary;
  FaultReporter faults;

  // -1: outside the table, which is reported.
  HT_DEVICE int64_t row_of(int64_t token, bool reports) const {
    const int64_t id = pipe::load_index(ids, wide, token * stride);
    if (id >= 0 && id < vocabulary) return id;
    if (reports) pipe::report_fault(faults, Fault::embedding_id, token, id, vocabulary);
    return -1;
  }
};

struct EmbeddingParams {
  EmbeddingArgs args;
  ScaledCodes codes;  // of the table, where it is quantised
  TokenIds ids;
  int64_t tokens;
  uint32_t row_threads;
};

struct EmbeddingGpu {
  using Params = EmbeddingParams;
  static constexpr uint32_t kThreads = pipe::kMostRowThreads, kMinBlocks = 1;

  HT_DEVICE static void run(const Params& p) {
    hw::launch_dependents_and_wait();
    const EmbeddingArgs& args = p.args;
    const pipe::RowThreads threads(p.row_threads);
    const int64_t token = threads.row();
    if (token >= p.tokens) return;
    const int64_t id = p.ids.row_of(token, threads.rank() == 0);
    const char* row = args.table + id * args.table_stride;
    char* out = args.out + token * args.out_stride;
    const bool plain = is_plain(args.format), inside = id >= 0;
    const Format widest = args.format == Format::f32 ? Format::f32 : args.out_format;
    CodeRow codes(p.codes, row, inside ? id : 0);
    for (uint32_t step = 0;; ++step) {
      // Quantised values are read eight neighbours at a time.
      const pipe::Quads at =
          pipe::quads_of(plain ? widest : Format::bf16, threads.rank(), threads.threads(), step);
      if (at.first >= args.columns) return;
      float x[8] = {};
      if (inside && plain) pipe::load_eight(args.format, row, at, args.columns, x);
      if (inside && !plain) codes.load(at.first, x);
      pipe::store_eight(args.out_format, out, at, args.columns, x);
    }
  }
};

// Rows of eights of quantised values that share a scale, dequantised as the dequantisation kernel
// does, but rounded to FP32 and then to the result, as on the CPU.
template <pipe::Access kAccess, bool kConvert>
struct EmbeddingExpandGpu {
  using Expand = ExpandGpu<kAccess, kConvert>;
  struct Params {
    ExpandParams expand;
    TokenIds ids;
  };
  static constexpr uint32_t kThreads = Expand::kThreads, kMinBlocks = Expand::kMinBlocks;

  HT_DEVICE static void run(const Params& p) {
    hw::launch_dependents_and_wait();
    Expand::template run<Products::through_f32>(
        p.expand, [&](uint32_t token) { return p.ids.row_of(token, true); });
  }
};

// Rows of whole 16-byte pieces that are copied as they are, four pieces a thread in flight.
struct EmbeddingCopyGpu {
  using Params = EmbeddingParams;
  static constexpr uint32_t kThreads = 256, kMinBlocks = 4, kPieces = 4;

  HT_DEVICE static void run(const Params& p) {
    hw::launch_dependents_and_wait();
    const pipe::RowThreads threads(p.row_threads);
    const int64_t token = threads.row();
    if (token >= p.tokens) return;
    const int64_t id = p.ids.row_of(token, threads.rank() == 0);
    const auto* from = reinterpret_cast<const hw::Words4*>(p.args.table + id * p.args.table_stride);
    auto* to = reinterpret_cast<hw::Words4*>(p.args.out + token * p.args.out_stride);
    const auto count =
        static_cast<uint32_t>(p.args.columns * pipe::bytes_of(p.args.format) / sizeof(hw::Words4));
    for (uint32_t first = threads.rank(); first < count; first += kPieces * threads.threads()) {
      hw::Words4 piece[kPieces] = {};
      HT_UNROLL
      for (uint32_t i = 0; i < kPieces; ++i) {
        const uint32_t n = first + i * threads.threads();
        if (n < count && id >= 0) piece[i] = hw::load_global(from + n);
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
