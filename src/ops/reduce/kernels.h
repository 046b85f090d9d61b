// Steps of reductions over contiguous FP32 rows, one per CPU ISA level.
#pragma once
#include <cstdint>

#include "base/levels.h"
#include "halftone/dtype.h"

namespace halftone {

enum class ReduceStep : uint8_t { sum, squares, products, max, min };

struct ReduceRun {
  ReduceStep step = ReduceStep::sum;
  const void* x = nullptr;      // n elements of `format`
  Format format = Format::f32;  // f32, f16, bf16; f32 of products
  const float* y = nullptr;     // of products
  int64_t n = 0;
  float* out = nullptr;
  // True: out[i] = out[i] (step) x[i]. False: out[0] = the result over the elements, whose order of
  // sums is the same at every ISA level: 64 chains, then halving.
  bool columns = false;
};
using ReduceFunction = void (*)(const ReduceRun&);
HALFTONE_DECLARE_LEVELS(void reduce_run(const ReduceRun&))

}  // namespace halftone
