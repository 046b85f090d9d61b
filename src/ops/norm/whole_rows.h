// Which rows the whole-row norm kernels take, and by how many threads.
#pragma once
#include "ops/norm/kernels.h"
#include "pipe/row_pieces.h"

namespace halftone {

struct WholeRows {
  bool whole, kept;          // rows are whole 16-byte pieces; and stay in a thread's registers
  bool two;                  // each thread in place of two
  uint32_t threads, pieces;  // of a row, and of a thread
};

inline WholeRows whole_rows(const NormArgs& args, int64_t rows) {
  WholeRows w{true, true, false, pipe::threads_of_row(args.columns), 0};
  for (const Rows* x : {&args.x, &args.out, &args.residual, &args.sum}) {
    w.whole = w.whole && pipe::are_whole(*x, args.columns);
  }
  w.pieces = pipe::pieces_of_row(args.columns * pipe::bytes_of(args.format), w.threads);
  w.kept = w.whole && w.pieces <= 8;
  for (const void* vector : {args.weight, args.bias}) {
    w.kept = w.kept && reinterpret_cast<uintptr_t>(vector) % 16 == 0;
  }
  w.two = w.kept && w.pieces <= 2 && pipe::takes_two(args.format, rows, w.threads);
  if (w.two) w.threads /= 2;
  return w;
}

}  // namespace halftone
