// Histograms on GPUs.
#pragma once
#include <cstdint>

#include "halftone/dtype.h"

namespace halftone {

class Stream;

struct HistogramGpuArgs {
  const char* x = nullptr;  // `elements` of f32, f16, bf16 or i32, without gaps
  Format format = Format::i32;
  int64_t elements = 0;
  const float* edges = nullptr;  // [bins + 1], or null: value v counts in bin floor(v)
  int64_t bins = 0;
  uint64_t* counts = nullptr;  // 0 before
};
// A value without a place and edges that descend are reported as faults of the stream.
using HistogramGpuFunction = void (*)(const HistogramGpuArgs&, Stream&);
void histogram_gpu(const HistogramGpuArgs&, Stream&);

}  // namespace halftone
