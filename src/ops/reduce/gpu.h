// Reductions on GPUs.
#pragma once
#include "halftone/reduce.h"

namespace halftone {

// x and y are [outer, n, inner], row-major; out is [outer, inner].
struct ReduceGpuArgs {
  Reduction operation = Reduction::sum;
  Format x_format = Format::f32, y_format = Format::f32, out_format = Format::f32;
  const char *x = nullptr, *y = nullptr;
  char* out = nullptr;
  int64_t outer = 1, n = 0, inner = 1;
};
using ReduceGpuFunction = void (*)(const ReduceGpuArgs&, Stream&);
void reduce_gpu(const ReduceGpuArgs&, Stream&);

}  // namespace halftone
