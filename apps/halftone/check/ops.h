// `halftone check ops`: norms, activations, softmax, arithmetic, reductions and convolution in each
// plain format, the error of storing operands and result in it apart from that of the kernels.
#pragma once
#include <string>
#include <vector>

#include "check/accuracy_row.h"
#include "halftone/stream.h"

namespace halftone {

// formats: of f32, f16, bf16; empty: all. `runs` of each kernel.
std::vector<AccuracyRow> check_ops(const std::vector<std::string>& formats, uint64_t seed, Stream&,
                                   int64_t runs = 1);

}  // namespace halftone
