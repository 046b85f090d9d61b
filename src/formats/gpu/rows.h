// Rows of tensors as kernels of GPUs read them: codes and their scales, and numbers of any format
// with any strides.
#pragma once
#include <cstdint>

#include "halftone/tensor.h"

namespace halftone {

// Matrices of rows x columns of codes, and where their scales and zero points lie.
struct ScaledCodes {
  Format format = Format::fp8_e4m3, scale_format = Format::f32;
  int64_t matrices = 1, rows = 0, columns = 0;
  int64_t block_rows = 1, block_columns = 0;  // 0: all
  const char* scales = nullptr;               // null: 1
  const uint8_t* zeros = nullptr;             // strides in elements, 0 to repeat
  int64_t scale_matrix = 0, scale_row = 0, scale_column = 0;
  int64_t zero_matrix = 0, zero_row = 0, zero_column = 0;
  ScaleLayout layout = ScaleLayout::linear;  // of tiled ones scale_matrix is in bytes
  const float* tensor_scale = nullptr;
};
ScaledCodes scaled_codes(const Tensor& x);

// Numbers: floats, integers, and codes with or without scales. A row is counted over all dimensions
// but the last.
struct NumberRows {
  ScaledCodes codes;
  const char* base = nullptr;
  int64_t step = 0;  // bytes from element to element; 0: two a byte
  // Of the rows, outermost first, in bytes; dimensions that step evenly are one.
  int dimensions = 0;
  int64_t extent[Dims::kMaxRank] = {}, stride[Dims::kMaxRank] = {};
};
NumberRows number_rows(const Tensor& x);

}  // namespace halftone
