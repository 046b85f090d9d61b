// Products of many rows on Hopper, host side: which the kernel takes, and how it runs them.
#pragma once
#include <string>

#include "ops/product/gpu.h"

namespace halftone::product {

struct Sm90Problem {
  int64_t m = 0, n = 0, k = 0;
  bool gate = false;
  Format weight = Format::bf16;
  bool scaled = false;
  Scaling scaling;
};

// Empty, or the rule that a problem breaks which other kernels take.
std::string refuse_sm90(const Sm90Problem&, const GpuWeight&, const GpuX&);
// What a block works on, of `multiprocessors`.
std::string describe_sm90(const Sm90Problem&, const GpuWeight&, const GpuX&, int multiprocessors);
// Whether the copy engine takes W and `x`, if it enters as given, as they lie: from 16 bytes to 16
// bytes.
bool fits_sm90(const Sm90Problem&, const GpuWeight&, const GpuX&, const GpuProduct&,
               const Tensor& x);
// Whether x is to enter as E4M3 codes.
bool takes_codes_sm90(const Sm90Problem&, const GpuWeight&, const GpuX&);
void launch_sm90(const Sm90Problem&, const GpuWeight&, const GpuX&, const GpuProduct&, Stream&);

}  // namespace halftone::product
