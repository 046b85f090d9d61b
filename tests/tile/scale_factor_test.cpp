#include "tile/scale_factor.h"

#include <gtest/gtest.h>

#include <set>

#include "formats/scale_layout.h"

namespace halftone::tile {
namespace {

static_assert(scale_atom_offset({0, 1}) == 1 && scale_atom_offset({32, 0}) == 4);
static_assert(scale_atom_offset({1, 0}) == 16 && scale_atom_offset({127, 3}) == 511);
static_assert(scale_offset_128x4(128, 0, 12) == 3 * 512 && scale_offset_128x4(0, 4, 12) == 512);
static_assert(scale_cell({97, 2}) == ScaleCell{{1, 3}, 2});
static_assert(scale_byte(16, 64, 4, 0) == 1 && scale_byte(32, 64, 2, 2) == 3);

TEST(ScaleFactor, AtomIsABijection) {
  for (int offset = 0; offset < kScaleAtomBytes; ++offset) {
    const Scale s = scale_atom_element(offset);
    ASSERT_TRUE(s.row < 128 && s.block < 4);
    ASSERT_EQ(scale_atom_offset(s), offset);
  }
}

// The scales that quantisation lays out are the atoms that kernels copy.
TEST(ScaleFactor, IsTheLayoutOfQuantizedTensors) {
  for (const int64_t blocks : {1, 4, 6, 32}) {
    for (int64_t row = 0; row < 300; ++row) {
      for (int64_t block = 0; block < blocks; ++block) {
        ASSERT_EQ(scale_offset_128x4(row, block, blocks),
                  scale_offset(ScaleLayout::tiled_128x4, 300, blocks, row, block));
      }
    }
  }
}

// tcgen05.cp.32x128b.warpx4 of an atom puts every scale where tcgen05.mma looks for it.
TEST(ScaleFactor, CopiesIntoTensorMemory) {
  const TensorCopy copy = TensorCopy::s32x128b_warpx4;
  for (int lane = 0; lane < 128; ++lane) {
    const int line = tensor_copy_line(copy, lane);
    for (int byte = 0; byte < tensor_copy_line_bytes(copy); ++byte) {
      const Scale s = scale_atom_element(line * 16 + byte);
      const ScaleCell c = scale_cell(s);
      ASSERT_EQ(c.cell.lane, lane % 32);
      ASSERT_EQ(c.cell.col * 4 + c.byte, byte);
      ASSERT_EQ(scale_of_cell({{lane, byte / 4}, byte % 4}), s);
    }
  }
}

TEST(ScaleFactor, CopyShapesReadEveryLine) {
  for (const TensorCopy copy :
       {TensorCopy::s128x256b, TensorCopy::s128x128b, TensorCopy::s64x128b_02_13,
        TensorCopy::s64x128b_01_23, TensorCopy::s32x128b_warpx4, TensorCopy::s4x256b}) {
    std::multiset<int> lines;
    for (int lane = 0; lane < 128; ++lane) {
      const int line = tensor_copy_line(copy, lane);
      ASSERT_LT(line, tensor_copy_lines(copy));
      if (line >= 0) lines.insert(line);
    }
    const size_t copies = copy == TensorCopy::s4x256b ? 1 : 128 / tensor_copy_lines(copy);
    for (int line = 0; line < tensor_copy_lines(copy); ++line) EXPECT_EQ(lines.count(line), copies);
  }
  EXPECT_EQ(tensor_copy_line(TensorCopy::s64x128b_02_13, 64), 0);
  EXPECT_EQ(tensor_copy_line(TensorCopy::s64x128b_01_23, 32), 0);
  EXPECT_EQ(tensor_copy_line(TensorCopy::s64x128b_01_23, 64), 32);
}

}  // namespace
}  // namespace halftone::tile
