// Histograms on GPUs.
#pragma once
#include "formats/gpu/rows.h"

namespace halftone {

class Stream;

struct HistogramGpuArgs {
  NumberRows x;
  int64_t elements = 0;          // of x
  const float* edges = nullptr;  // [bins + 1], or null: value v counts in bin floor(v)
  int64_t bins = 0;
  uint64_t* counts = nullptr;  // 0 before
};
// A value without a bin and edges that descend are reported as faults of the stream.
using HistogramGpuFunction = void (*)(const HistogramGpuArgs&, Stream&);
void histogram_gpu(const HistogramGpuArgs&, Stream&);

}  // namespace halftone
