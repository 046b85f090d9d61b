// Where the scale of (row, group) lies in each layout; docs/add-a-format.md draws them.
#pragma once
#include <cstdint>

#include "halftone/dtype.h"
#include "halftone/tensor.h"

namespace halftone {

// Byte offset of a one-byte scale, in numbers that hold the bytes of all.
template <class Index>
constexpr Index scale_offset_in(ScaleLayout layout, Index rows, Index groups, Index row,
                                Index group) {
  const Index tiles_across = (groups + 3) / 4;
  switch (layout) {
    case ScaleLayout::tiled_128x4:
      return (row / 128 * tiles_across + group / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 +
             group % 4;
    case ScaleLayout::tiled_8x4:
      return (row / 8 * tiles_across + group / 4) * 32 + row % 8 * 4 + group % 4;
    case ScaleLayout::packed:
      return (group / 4 * ((rows + 3) / 4 * 4) + row) * 4 + group % 4;
    case ScaleLayout::linear:
      break;
  }
  return row * groups + group;
}
constexpr int64_t scale_offset(ScaleLayout layout, int64_t rows, int64_t groups, int64_t row,
                               int64_t group) {
  return scale_offset_in<int64_t>(layout, rows, groups, row, group);
}

// Rows [begin, end) of one-byte scales in some layout as linear ones: out is that of row 0.
void linear_scales(const uint8_t* in, ScaleLayout from, int64_t rows, int64_t groups, int64_t begin,
                   int64_t end, uint8_t* out);

}  // namespace halftone
