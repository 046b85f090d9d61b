// Tensor memory of sm_100a: 128 lanes by 512 columns of 32 bits; where accumulators lie in it, and
// which cell a register of tcgen05.ld and tcgen05.st moves.
#pragma once
#include "hw/target.h"

namespace halftone::tile {

inline constexpr int kTensorMemoryLanes = 128, kTensorMemoryColumns = 512;

struct Cell {
  int lane, col;
  bool operator==(const Cell&) const = default;
};

// A tensor-memory address is lane << 16 | column.
HT_HOST_DEVICE uint32_t tensor_memory_address(Cell c) {
  return static_cast<uint32_t>(c.lane) << 16 | static_cast<uint32_t>(c.col);
}
HT_HOST_DEVICE Cell tensor_memory_cell(uint32_t address) {
  return {static_cast<int>(address >> 16), static_cast<int>(address & 0xFFFF)};
}
// Columns can be allocated in powers of two from 32 to 512.
HT_HOST_DEVICE bool valid_allocation(int columns) {
  return columns >= 32 && columns <= 512 && (columns & (columns - 1)) == 0;
}

// How D of tcgen05.mma lies in the tensor memory of one CTA. With two CTAs each holds half of M.
enum class Accumulator : uint8_t {
  rows128,  // M 128 of one CTA, M 256 of two: a lane per row, a column per n
  rows64,   // M 64 of one CTA: 16 rows in the first half of each warp's window
  split2,   // M 128 of two CTAs (64 rows each), M 64 of .ws: n in two halves, side by side
  split4,   // M 32 of .ws: n in four quarters
};

// The layout of an MMA with this M over `ctas` CTAs; `weight_stationary` is the .ws form.
HT_HOST_DEVICE Accumulator accumulator_of(int m, int ctas, bool weight_stationary = false) {
  if (weight_stationary && m == 64) return Accumulator::split2;
  if (weight_stationary && m == 32) return Accumulator::split4;
  if (ctas == 2 && m == 128) return Accumulator::split2;
  return m / ctas == 64 ? Accumulator::rows64 : Accumulator::rows128;
}
HT_HOST_DEVICE int accumulator_rows(Accumulator a) {
  return a == Accumulator::rows128 ? 128 : a == Accumulator::split4 ? 32 : 64;
}
HT_HOST_DEVICE int accumulator_columns(Accumulator a, int n) {
  return a == Accumulator::split2 ? n / 2 : a == Accumulator::split4 ? n / 4 : n;
}

// Cell of D(m, n), m counted in this CTA, relative to the accumulator's address. FP32 and S32 fill
// it; FP16 has its low half. rows64 may also start at lane 16.
HT_HOST_DEVICE Cell accumulator_cell(Accumulator a, int m, int n, int n_extent) {
  switch (a) {
    case Accumulator::rows128:
      return {m, n};
    case Accumulator::rows64:
      return {m % 16 + 32 * (m / 16), n};
    case Accumulator::split2:
      return {m + 64 * (n / (n_extent / 2)), n % (n_extent / 2)};
    case Accumulator::split4:
      return {m + 32 * (n / (n_extent / 4)), n % (n_extent / 4)};
  }
  return {0, 0};
}
// The element of D at a cell: {row, column} as Cell's lane and col. Cells of rows64 with
// lane % 32 >= 16 hold none: row -1.
HT_HOST_DEVICE Cell accumulator_element(Accumulator a, Cell c, int n_extent) {
  switch (a) {
    case Accumulator::rows128:
      return c;
    case Accumulator::rows64:
      return {c.lane % 32 < 16 ? c.lane % 32 + c.lane / 32 * 16 : -1, c.col};
    case Accumulator::split2:
      return {c.lane % 64, c.col + c.lane / 64 * (n_extent / 2)};
    case Accumulator::split4:
      return {c.lane % 32, c.col + c.lane / 32 * (n_extent / 4)};
  }
  return {-1, -1};
}

// A of tcgen05.mma in tensor memory: 32 / element_bits consecutive k in each cell, lowest bits
// first. FP4 and FP6 of kind::f8f6f4 take a byte each.
struct PackedCell {
  Cell cell;
  int element;  // of the 32-bit cell
  bool operator==(const PackedCell&) const = default;
};
HT_HOST_DEVICE PackedCell operand_cell(int m, int k, int element_bits) {
  const int n = 32 / element_bits;
  return {{m, k / n}, k % n};
}

// Shapes of tcgen05.ld and tcgen05.st. A warp reaches the 32 lanes 32 * (warp % 4) and up; shapes
// of 16 lanes start at lane 0 or 16 of that window.
enum class TensorShape : uint8_t { s32x32b, s16x64b, s16x128b, s16x256b, s16x32bx2 };

HT_HOST_DEVICE int tensor_shape_registers(TensorShape s, int num) {
  return s == TensorShape::s16x128b ? 2 * num : s == TensorShape::s16x256b ? 4 * num : num;
}
HT_HOST_DEVICE int tensor_shape_lanes(TensorShape s) { return s == TensorShape::s32x32b ? 32 : 16; }
// 32-bit columns that .num spans; of one half for 16x32bx2.
HT_HOST_DEVICE int tensor_shape_columns(TensorShape s, int num) {
  switch (s) {
    case TensorShape::s16x64b:
      return 2 * num;
    case TensorShape::s16x128b:
      return 4 * num;
    case TensorShape::s16x256b:
      return 8 * num;
    default:
      return num;
  }
}
// .num is a power of two that needs at most 128 registers.
HT_HOST_DEVICE bool valid_num(TensorShape s, int num) {
  return num >= 1 && (num & (num - 1)) == 0 && tensor_shape_registers(s, num) <= 128;
}

// The cell, relative to the address of the instruction, that register `reg` of lane `thread` moves.
// `split` is the second immediate of 16x32bx2: how far right lanes 16 to 31 read.
HT_HOST_DEVICE Cell tensor_shape_cell(TensorShape s, int thread, int reg, int split = 0) {
  switch (s) {
    case TensorShape::s32x32b:
      return {thread, reg};
    case TensorShape::s16x64b:
      return {thread / 4 + 8 * (thread & 1), 2 * reg + (thread >> 1 & 1)};
    case TensorShape::s16x128b:
      return {thread / 4 + 8 * (reg & 1), 4 * (reg >> 1) + thread % 4};
    case TensorShape::s16x256b:  // the C fragment of mma.sync, eight columns after another
      return {thread / 4 + 8 * (reg >> 1 & 1), 8 * (reg >> 2) + 2 * (thread % 4) + (reg & 1)};
    case TensorShape::s16x32bx2:
      return {thread % 16, reg + (thread < 16 ? 0 : split)};
  }
  return {0, 0};
}

}  // namespace halftone::tile
