// The families of `halftone bench --device cuda:N`.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "bench_row.h"
#include "gpu_timing.h"
#include "halftone/attention.h"

namespace halftone {

struct GpuBenchFamily {
  const char* name;
  const char* suite;  // the part of the family that it measures
  const char* title;
  std::vector<BenchRow> (*run)(Stream&, bool quick);
};
std::span<const GpuBenchFamily> gpu_bench_families();

// One problem of the prefill suite.
struct PrefillShape {
  int64_t batch, length, heads, kv_heads, head_dim;
  bool causal;
};
// A row of it; in TFLOP/s of a burst, causal counted as half. Random data, two sets of it in turn.
BenchRow bench_prefill(const PrefillShape&, const AttentionMode&, Stream&, const GpuTimingOptions&);
// 16,384 tokens as 32 x 512 to 1 x 16,384 in heads of 64, 128 and 256, full and causal, every mode
// that the device takes; and grouped heads.
std::vector<BenchRow> bench_prefill_suite(Stream&, bool quick);

}  // namespace halftone
