// Reductions on GPUs.
#pragma once
#include "formats/gpu/rows.h"
#include "halftone/reduce.h"

namespace halftone {

// The rows of x and y are [outer, n, inner] with `width` elements each; where the last dimension is
// reduced, [outer] rows of n. out is row-major.
struct ReduceGpuArgs {
  Reduction operation = Reduction::sum;
  Format out_format = Format::f32;
  bool along_rows = true;
  NumberRows x, y;  // y of dot
  char* out = nullptr;
  bool pieces = false;  // extremes are of 16 bytes at a time; set by reduce_gpu
  int64_t outer = 1, n = 0, inner = 1, width = 1;
  // `chunk` elements of the reduced dimension are a CTA's. Several chunks are combined through
  // `partial`: sums as bits of FP64, extremes as keys of pipe/order_key.h.
  int64_t chunk = 0, chunks = 1;
  uint64_t* partial = nullptr;  // [chunks, results_of()]
};
using ReduceGpuFunction = void (*)(const ReduceGpuArgs&, Stream&);
void reduce_gpu(const ReduceGpuArgs&, Stream&);

// The chunks are a function of n alone, and so is the order of all sums: long enough that results
// of chunks are few bytes beside what they are made of, and at most 1024, which one CTA combines.
constexpr int64_t reduce_gpu_chunk(bool along_rows, int64_t n) {
  const int64_t least = along_rows ? 16384 : 256;
  return n <= 1024 * least ? least : (n + 1024 * least - 1) / (1024 * least) * least;
}
constexpr int64_t results_of(const ReduceGpuArgs& args) {
  return args.outer * args.inner * args.width;
}

}  // namespace halftone
