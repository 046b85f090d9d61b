// Dequantisation on GPUs.
#pragma once
#include "formats/gpu/kernels.h"
#include "formats/gpu/rows.cuh"
#include "hw/griddep.h"
#include "pipe/row_threads.h"

namespace halftone {

// Codes times their scales, exactly, rounded once.
struct DequantizeGpu {
  struct Params {
    DequantizeArgs args;
    uint32_t row_threads;
  };
  static constexpr uint32_t kThreads = pipe::kMostRowThreads, kMinBlocks = 1;

  HT_DEVICE static void run(const Params& p) {
    hw::launch_dependents_and_wait();
    const DequantizeArgs& args = p.args;
    const pipe::RowThreads threads(p.row_threads);
    const int64_t row = threads.row();
    if (row >= args.matrices * args.rows) return;
    char* out = args.out + row * args.columns * pipe::bytes_of(args.out_format);
    CodeRow codes(args, args.codes[row], row, args.out_format != Format::f32);
    const bool plain = is_plain(args.format);
    for (int64_t first = int64_t{8} * threads.rank(); first < args.columns;
         first += int64_t{8} * threads.threads()) {
      float x[8];
      if (plain) {
        pipe::load_eight(args.format, args.codes[row], {first, first + 4}, args.columns, x);
      } else {
        codes.load(first, x);
      }
      pipe::store_eight(args.out_format, out, {first, first + 4}, args.columns, x);
    }
  }
};

}  // namespace halftone
