// The steps of the ladder behind one call.
#pragma once
#include <span>

#include "halftone/device.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone::ladder {

struct Step {
  int number;
  const char* name;
  const char* idea;
  Arch arch;  // the first architecture that has its instructions
};
std::span<const Step> steps();

struct Options {
  int multiprocessors = 0;  // that step 9 spreads over; 0: all of the device
};

// c = a b^T: a [m, k], b [n, k], c [m, n], contiguous bf16 on the stream's device, m >= 1, n and k
// multiples of 8. Asynchronous on a GPU. Error names the argument, its value and the rule.
void multiply(int step, const Tensor& a, const Tensor& b, const Tensor& c, Stream&,
              const Options& = {});

}  // namespace halftone::ladder
