// `halftone check matmul`: the error of each weight format apart from that of the kernels.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "check/accuracy_row.h"
#include "halftone/stream.h"

namespace halftone {

struct MatmulCheck {
  int64_t m = 16, n = 512, k = 1024;
  std::vector<std::string> formats;  // of the weights; empty: all
  uint64_t seed = 1;
  int64_t runs = 1;  // of each kernel
};

// Two rows a format: normal data, and data with outliers in activations and weights. The
// activations are bf16, the result f32.
std::vector<AccuracyRow> check_matmul(const MatmulCheck&, Stream&);

}  // namespace halftone
