#include "tile/tensor_memory.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <set>

#include "tile/fragment.h"

namespace halftone::tile {
namespace {

static_assert(tensor_memory_address({96, 17}) == 0x00600011);
static_assert(accumulator_of(128, 1) == Accumulator::rows128);
static_assert(accumulator_of(256, 2) == Accumulator::rows128);
static_assert(accumulator_of(64, 1) == Accumulator::rows64);
static_assert(accumulator_of(128, 2) == Accumulator::split2);
static_assert(accumulator_of(64, 1, true) == Accumulator::split2);
static_assert(accumulator_of(32, 1, true) == Accumulator::split4);
static_assert(accumulator_cell(Accumulator::rows64, 63, 5, 64) == Cell{111, 5});
static_assert(accumulator_cell(Accumulator::split2, 3, 70, 128) == Cell{67, 6});
static_assert(accumulator_cell(Accumulator::split4, 3, 70, 128) == Cell{67, 6});
static_assert(tensor_shape_cell(TensorShape::s16x64b, 31, 3) == Cell{15, 7});
static_assert(tensor_shape_cell(TensorShape::s16x128b, 5, 3) == Cell{9, 5});
static_assert(operand_cell(7, 13, 8) == PackedCell{{7, 3}, 1});

TEST(TensorMemory, AddressesAndAllocations) {
  for (int lane = 0; lane < kTensorMemoryLanes; ++lane) {
    for (int col = 0; col < kTensorMemoryColumns; col += 7)
      EXPECT_EQ(tensor_memory_cell(tensor_memory_address({lane, col})), (Cell{lane, col}));
  }
  for (int columns = 0; columns <= 1024; ++columns) {
    const bool valid =
        columns == 32 || columns == 64 || columns == 128 || columns == 256 || columns == 512;
    EXPECT_EQ(valid_allocation(columns), valid) << columns;
  }
}

TEST(TensorMemory, AccumulatorsUseACellOnce) {
  for (const Accumulator a :
       {Accumulator::rows128, Accumulator::rows64, Accumulator::split2, Accumulator::split4}) {
    for (const int n : {64, 128, 256}) {
      std::set<int> cells;
      for (int row = 0; row < accumulator_rows(a); ++row) {
        for (int col = 0; col < n; ++col) {
          const Cell c = accumulator_cell(a, row, col, n);
          ASSERT_TRUE(c.lane < 128 && c.col < accumulator_columns(a, n));
          ASSERT_EQ(accumulator_element(a, c, n), (Cell{row, col}));
          cells.insert(c.lane * 512 + c.col);
        }
      }
      EXPECT_EQ(cells.size(), static_cast<size_t>(accumulator_rows(a)) * n);
    }
  }
  EXPECT_EQ(accumulator_element(Accumulator::rows64, {16, 0}, 64).lane, -1);
}

TEST(TensorMemory, ShapesMoveEveryCellOnce) {
  for (const TensorShape s : {TensorShape::s32x32b, TensorShape::s16x64b, TensorShape::s16x128b,
                              TensorShape::s16x256b, TensorShape::s16x32bx2}) {
    for (int num = 1; valid_num(s, num); num *= 2) {
      const int split = num, halves = s == TensorShape::s16x32bx2 ? 2 : 1;
      std::set<int> cells;
      for (int lane = 0; lane < 32; ++lane) {
        for (int reg = 0; reg < tensor_shape_registers(s, num); ++reg) {
          const Cell c = tensor_shape_cell(s, lane, reg, split);
          ASSERT_TRUE(c.lane < tensor_shape_lanes(s) &&
                      c.col < halves * tensor_shape_columns(s, num));
          cells.insert(c.lane * 512 + c.col);
        }
      }
      EXPECT_EQ(cells.size(), static_cast<size_t>(32 * tensor_shape_registers(s, num)));
      EXPECT_EQ(cells.size(),
                static_cast<size_t>(tensor_shape_lanes(s) * halves * tensor_shape_columns(s, num)));
    }
  }
  EXPECT_TRUE(valid_num(TensorShape::s32x32b, 128));
  EXPECT_FALSE(valid_num(TensorShape::s16x128b, 128));
  EXPECT_FALSE(valid_num(TensorShape::s16x256b, 64));
  EXPECT_FALSE(valid_num(TensorShape::s32x32b, 3));
}

// An epilogue written for the registers of wgmma takes those of 16x256b as they are.
TEST(TensorMemory, LoadsOf256BitsAreMmaFragments) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int reg = 0; reg < 64; ++reg) {
      const Cell c = tensor_shape_cell(TensorShape::s16x256b, lane, reg);
      EXPECT_EQ((Element{c.lane, c.col}), wgmma_d_element(lane, reg));
    }
  }
}

TEST(TensorMemory, OperandsArePacked) {
  for (const int bits : {4, 8, 16, 32}) {
    std::set<int> seen;
    for (int k = 0; k < 256 / bits; ++k) {
      const PackedCell p = operand_cell(5, k, bits);
      EXPECT_EQ(p.cell.lane, 5);
      EXPECT_LT(p.cell.col, 8);  // 32 bytes of K
      seen.insert(p.cell.col * 8 + p.element);
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>(256 / bits));
  }
}

}  // namespace
}  // namespace halftone::tile
