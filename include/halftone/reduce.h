// Reductions along one dimension, of tensors in any format, with sums in f32.
#pragma once
#include "halftone/error.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

enum class Reduction : uint8_t {
  sum,
  mean,
  sum_of_squares,
  max,     // NaN when an element is
  min,     // likewise
  argmax,  // the first of equals; a NaN counts as the largest
  argmin,  // the first of equals; a NaN counts as the smallest
  dot,     // sum of x y
};
inline constexpr int kReductionCount = 8;
const char* name(Reduction);

struct ReduceProblem {
  Reduction operation = Reduction::sum;
  Shape shape;    // of x and y, rank at least 1
  int axis = -1;  // the dimension that goes; negative counts from the last
  Format x = Format::bf16, y = Format::bf16;  // any that holds numbers
  bool x_scaled = false, y_scaled = false;    // quantised formats: whether they have scales
  Format out = Format::f32;                   // f32, f16, bf16; i64 of argmax and argmin
};
struct ReduceTensors {
  Tensor x, y;  // any strides (packed formats: contiguous rows); y only of dot
  Tensor out;   // the shape of x without `axis`; row-major
};
struct ReduceKernel;
struct ReducePlan {
  ReduceProblem problem;
  Device device;
  const ReduceKernel* kernel = nullptr;
  Tensor workspace;  // partial results; a plan serves one run at a time
};
std::string describe(const ReducePlan&);
Support can_run(const ReduceProblem&, const Device&);
ReducePlan plan(const ReduceProblem&, const Device&);
// Elements are decoded exactly and rounded once to f32. Sums follow a tree that depends on the
// extent of `axis` alone: the same bits for any number of threads and any other extents. With
// u = 2^-24 the error is at most (40 + log2(n)) u sum|x| along the last dimension and
// (160 + n / 128) u sum|x| along others, before the rounding to `out`; on GPUs at most 8 u sum|x|.
// The sum of nothing is 0, its
// mean NaN; the others refuse it.
void run(const ReducePlan&, const ReduceTensors&, Stream&);

Tensor reduce(Reduction, const Tensor& x, int axis = -1, Stream& = Stream::default_stream());
// [..., n] and [..., n] -> [...].
Tensor dot(const Tensor& x, const Tensor& y, Stream& = Stream::default_stream());
// FP64 of the elements as decoded -> f32; of argmax and argmin i64. y only of dot.
Tensor reduce_reference(Reduction, const Tensor& x, int axis = -1, const Tensor& y = {});

}  // namespace halftone
