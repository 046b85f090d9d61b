// Rows of strided tensors.
#pragma once
#include "base/token_scales.h"

namespace halftone {

// Elements of one piece of work: long against handing it out, about 10 us, short against the whole.
// Where a piece starts the memory's stream starts anew, and what was asked for behind its end was
// in vain, so that large work is cut into a few dozen pieces a thread.
inline constexpr int64_t kLeastPiece = 32768;
inline int64_t piece_of(int64_t elements, int threads) {
  const int64_t part = elements / (32 * int64_t{threads});
  return part > kLeastPiece ? part : kLeastPiece;
}

// Offset, in elements, of row `row` counted over all dimensions but the last.
inline int64_t row_offset(const Tensor& t, int64_t row) {
  int64_t offset = 0;
  for (int dim = t.rank() - 2; dim >= 0; --dim) {
    offset += row % t.size(dim) * t.stride(dim);
    row /= t.size(dim);
  }
  return offset;
}
inline int64_t row_count(const Tensor& t) {
  return t.rank() > 0 && t.size(-1) > 0 ? t.numel() / t.size(-1) : 0;
}
// Of the scales (or zero points) of row `row` of a tensor of `shape`, in the linear layout.
inline int64_t scale_row_offset(const Tensor& scales, const Shape& shape, int64_t row,
                                int64_t block_rows) {
  int64_t offset = 0;
  for (int dim = shape.rank() - 2; dim >= 0; --dim) {
    int64_t index = row % shape[dim];
    row /= shape[dim];
    if (dim == shape.rank() - 2) index = block_rows > 0 ? index / block_rows : 0;
    if (dim == shape.rank() - 3) index /= tokens_of_scale(shape[dim], scales.size(dim));
    if (scales.size(dim) != 1) offset += index * scales.stride(dim);
  }
  return offset;
}
inline const char* address(const Tensor& t, int64_t element) {
  return t.data<char>() + element * bits(t.format()) / 8;
}

}  // namespace halftone
