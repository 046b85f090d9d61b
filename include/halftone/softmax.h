// Softmax over the last dimension.
#pragma once
#include "halftone/error.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

// How often a row is read: `safe` three times (maximum, exponentials and their sum, division),
// `online` twice, the sum being rescaled whenever the maximum grows.
enum class SoftmaxAlgorithm : uint8_t {
  automatic,  // safe up to 4096 columns, whose exponentials stay in L1
  safe,       // up to 4096 columns
  online,
};

struct SoftmaxProblem {
  int64_t rows = 0, columns = 0;
  Format x = Format::f32, out = Format::f32;  // f32, f16, bf16
  float scale = 1;                            // of x; positive
  SoftmaxAlgorithm algorithm = SoftmaxAlgorithm::automatic;
};
struct SoftmaxTensors {
  Tensor x, out;  // [rows, columns]; out may be x
};
struct SoftmaxKernel;
struct SoftmaxPlan {
  SoftmaxProblem problem;
  Device device;
  const SoftmaxKernel* kernel = nullptr;
};
std::string describe(const SoftmaxPlan&);
Support can_run(const SoftmaxProblem&, const Device&);
SoftmaxPlan plan(const SoftmaxProblem&, const Device&);
// exp(scale x_i) / sum_j exp(scale x_j) with the row's maximum subtracted first, in f32. A row of
// -inf alone gives zeros, one with a NaN or +inf NaN. Before an out of 16 bits is rounded the
// result is within 2^-14 of itself; the same row gives the same bits in any batch and on any
// threads.
void run(const SoftmaxPlan&, const SoftmaxTensors&, Stream&);
Tensor softmax(const Tensor& x, Stream& = Stream::default_stream());
Tensor softmax_reference(const Tensor& x, float scale = 1);  // FP64 -> f32

}  // namespace halftone
