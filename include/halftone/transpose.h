// Permuted copies and transposition in memory.
#pragma once
#include "halftone/error.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

struct PermuteProblem {
  Shape shape;                   // of x
  Dims order;                    // dimension i of out is dimension order[i] of x
  Format format = Format::bf16;  // any of 8 bits or more; scales do not move with the elements
};
struct PermuteTensors {
  Tensor x;    // any strides
  Tensor out;  // row-major, shares no memory with x
};
struct PermuteKernel;
struct PermutePlan {
  PermuteProblem problem;
  Device device;
  const PermuteKernel* kernel = nullptr;
};
std::string describe(const PermutePlan&);
Support can_run(const PermuteProblem&, const Device&);
PermutePlan plan(const PermuteProblem&, const Device&);
void run(const PermutePlan&, const PermuteTensors&, Stream&);

Tensor permute(const Tensor& x, const Dims& order, Stream& = Stream::default_stream());
// The last two dimensions exchanged; the ones before are a batch.
Tensor transpose(const Tensor& x, Stream& = Stream::default_stream());
Tensor permute_reference(const Tensor& x, const Dims& order);  // element by element

}  // namespace halftone
