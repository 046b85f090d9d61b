// From tensors to the plain view of a weight that the kernels read.
#pragma once
#include <string>

#include "halftone/tensor.h"
#include "ops/gemm/cpu/kernels.h"

namespace halftone::gemm {

// How the kernels read a weight of this format and scaling.
Code code_of(Format, bool scaled, const Scaling&);
// Empty, or why no kernel takes a weight [n, k] of this format and scaling.
std::string refuse_weight(Format, bool scaled, const Scaling&, int64_t n, int64_t k);
// The weight must have been accepted; `name` is for errors about strides. Of a tensor [matrices, N,
// K], one matrix. Tiled scales are not read: `tiled`, then a linear copy of them, takes their
// place.
Weights view_of(const Tensor& weight, const char* name, int64_t matrix = 0,
                const uint8_t* tiled = nullptr);
// Rows first, first + step, ... of a weight, `n` of them; step is 1 or 2. Where a block of scales
// holds several rows, `first` must be a multiple of it (step 1) or the block even (step 2).
bool can_take_rows(const Weights&, int64_t first, int64_t step);
Weights take_rows(Weights, int64_t first, int64_t step, int64_t n);
// Element [n, k] in double precision, and row n: for references.
void weight_row(const Weights&, int64_t n, double* out);
// Scale of a whole row (scales per row or per tensor), times the tensor scale.
float row_scale(const Weights&, int64_t n);

}  // namespace halftone::gemm
