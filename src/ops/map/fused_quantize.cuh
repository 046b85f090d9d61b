// Fused activation or gate and quantisation for every GPU, FP16 and BF16. A row with a scale of its
// own is a CTA's, two 16-byte pieces a thread at a time; where groups have scales the tensor is one
// long row, divided into segments of which every thread has two pieces.
#pragma once
#include "formats/gpu/row_codes.cuh"
#include "ops/map/gpu.cuh"

namespace halftone {

struct MapQuantizeParams {
  MapArgs args;         // the operation; operands are row-major
  bool interleaved;     // the one operand has pairs of gate and up
  int64_t count, runs;  // elements of the result, and its rows or segments
  int64_t run;          // elements of a segment
  uint32_t row_threads;
  uint32_t steps;  // of two pieces, that a thread has of a segment
  RowCodesArgs codes;
};

template <pipe::Access kAccess, uint32_t kOperands, bool kConvert>
struct MapQuantizeGpu {
  using Params = MapQuantizeParams;
  using Piece = pipe::Piece<kAccess>;
  static constexpr uint32_t kThreads = 256, kMinBlocks = 3;
  static constexpr uint32_t kPieces = 2;

  HT_DEVICE static void run(const Params& p) {
    hw::launch_dependents_and_wait();
    pipe::RowThreads threads(p.row_threads);
    const int64_t run = threads.row(), first = run * p.run;
    const bool live = run < p.runs;
    const int64_t left = p.count - first;
    const pipe::PiecePlaces at(
        threads, live ? static_cast<uint32_t>(left < p.run ? left : p.run) * Piece::kBytes : 0);
    RowCodes<kAccess, kConvert> codes(p.codes);
    Read read;
    read.load(p, first * Piece::kBytes, at, 0);
    for (uint32_t step = 0; step < p.steps; ++step) {
      const uint32_t k = step * kPieces;
      float x[kOperands][kPieces * 8];
      read.widen(p, x);
      read.load(p, first * Piece::kBytes, at, k + kPieces);  // prefetch while these are computed
      MapGpuBlock::compute<true, kOperands>(p.args, x[0], x[kOperands - 1], x[0]);
      HT_UNROLL
      for (uint32_t n = 0; n < kPieces; ++n) {
        if (!at.has(k + n)) continue;
        float made[8];
        HT_UNROLL
        for (uint32_t i = 0; i < 8; ++i) made[i] = x[0][n * 8 + i];
        Piece piece;
        piece.narrow(made);
        codes.keep(k + n, piece);
      }
    }
    codes.store(threads, run, first, at, p.steps * kPieces);
  }

  // kPieces pieces of every operand.
  struct Read {
    Piece pieces[kOperands][kPieces];

    HT_DEVICE static bool pairs(const Params& p) { return kOperands == 2 && p.interleaved; }
    // From piece k on, of a segment whose elements begin `begin` bytes into the operands.
    HT_DEVICE void load(const Params& p, int64_t begin, const pipe::PiecePlaces& at, uint32_t k) {
      HT_UNROLL
      for (uint32_t o = 0; o < kOperands; ++o) {
        const char* base =
            pairs(p) ? p.args.in[0].base + 2 * begin + 16 * o : p.args.in[o].base + begin;
        HT_UNROLL
        for (uint32_t n = 0; n < kPieces; ++n) {
          if (at.has(k + n)) pieces[o][n].load(base + (pairs(p) ? 2 : 1) * at[k + n]);
        }
      }
    }
    HT_DEVICE void widen(const Params& p, float (&x)[kOperands][kPieces * 8]) const {
      HT_UNROLL
      for (uint32_t n = 0; n < kPieces; ++n) {
        float v[kOperands][8];
        HT_UNROLL
        for (uint32_t o = 0; o < kOperands; ++o) pieces[o][n].widen(v[o]);
        if (pairs(p)) {
          HT_UNROLL
          for (uint32_t i = 0; i < 8 * kOperands; ++i) {
            x[i % kOperands][n * 8 + i / kOperands] = v[i / 8][i % 8];
          }
        } else {
          HT_UNROLL
          for (uint32_t i = 0; i < 8 * kOperands; ++i) x[i / 8][n * 8 + i % 8] = v[i / 8][i % 8];
        }
      }
    }
  };
};

}  // namespace halftone
