// How often values occur.
#pragma once
#include "halftone/error.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

struct HistogramProblem {
  Shape shape;             // of x
  Format x = Format::i32;  // any that holds numbers
  bool scaled = false;     // quantised formats: whether x has scales
  int64_t bins = 0;        // at most 2^24
  bool edges = false;      // bins between given edges, else value v counts in bin floor(v)
};
struct HistogramTensors {
  Tensor x;
  Tensor counts;      // i64 [bins], overwritten
  Tensor edges = {};  // f32 [bins + 1], ascending
};
struct HistogramKernel;
struct HistogramPlan {
  HistogramProblem problem;
  Device device;
  const HistogramKernel* kernel = nullptr;
};
std::string describe(const HistogramPlan&);
Support can_run(const HistogramProblem&, const Device&);
HistogramPlan plan(const HistogramProblem&, const Device&);
// Without edges a value that is negative, NaN or not below `bins` is an Error that names its index
// (of the first one) and the value; counts are then undefined. With edges, bin i holds edges[i] <=
// v < edges[i + 1], the last one v = edges[bins] too; other values are not counted, NaN is an
// Error. On a GPU the next Stream::synchronize throws it, of one of those values.
void run(const HistogramPlan&, const HistogramTensors&, Stream&);

Tensor histogram(const Tensor& x, int64_t bins, Stream& = Stream::default_stream());
Tensor histogram(const Tensor& x, const Tensor& edges, Stream& = Stream::default_stream());
// One value after another; edges may be undefined.
Tensor histogram_reference(const Tensor& x, int64_t bins, const Tensor& edges = {});

}  // namespace halftone
