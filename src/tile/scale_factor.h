// Scales of block formats on their way to tcgen05.mma: the 128x4 atom in global and shared memory,
// and its place in tensor memory.
//
// An atom is the scales of 128 rows (of A, or columns of B) and 4 blocks along K, one byte each, in
// 512 bytes. Rows 32 apart are neighbours, so that 32 lines of 16 bytes are the 32 lanes that
// tcgen05.cp.32x128b.warpx4 writes.
#pragma once
#include "tile/tensor_memory.h"

namespace halftone::tile {

inline constexpr int kScaleAtomRows = 128, kScaleAtomBlocks = 4, kScaleAtomBytes = 512;

struct Scale {
  int row, block;
  bool operator==(const Scale&) const = default;
};

// Byte offset of a scale inside its atom, and back.
HT_HOST_DEVICE int scale_atom_offset(Scale s) { return s.row % 32 * 16 + s.row / 32 * 4 + s.block; }
HT_HOST_DEVICE Scale scale_atom_element(int offset) {
  return {offset / 16 + offset / 4 % 4 * 32, offset % 4};
}

// Byte offset of a scale in a matrix of `blocks` blocks per row: atoms along K, then down the rows.
HT_HOST_DEVICE int64_t scale_offset_128x4(int64_t row, int64_t block, int64_t blocks) {
  const int64_t across = (blocks + kScaleAtomBlocks - 1) / kScaleAtomBlocks;
  return (row / kScaleAtomRows * across + block / kScaleAtomBlocks) * kScaleAtomBytes +
         scale_atom_offset(
             {static_cast<int>(row % kScaleAtomRows), static_cast<int>(block % kScaleAtomBlocks)});
}

// An atom takes 4 columns of tensor memory; every warp's window of 32 lanes holds a copy of it.
inline constexpr int kScaleAtomColumns = 4;
struct ScaleCell {
  Cell cell;  // in the first window; also at lanes + 32, + 64, + 96
  int byte;
  bool operator==(const ScaleCell&) const = default;
};
// Relative to the first atom's address; atoms of further rows follow, four columns each.
HT_HOST_DEVICE ScaleCell scale_cell(Scale s) { return {{s.row % 32, s.row / 32}, s.block}; }
HT_HOST_DEVICE Scale scale_of_cell(ScaleCell c) {
  return {c.cell.lane % 32 + c.cell.col * 32, c.byte};
}
// The byte that scales element k: `vectors` scales over an instruction's K, from byte `id` on (the
// id of the instruction descriptor: 0..3 for one scale, 0 or 2 for two, 0 for four).
HT_HOST_DEVICE int scale_byte(int k, int k_extent, int vectors, int id) {
  return id + k / (k_extent / vectors);
}

// Shapes of tcgen05.cp: lines of shared memory (16 or 32 bytes, as a K-major operand without a
// swizzle describes them) to lanes.
enum class TensorCopy : uint8_t {
  s128x256b,        // a lane per line, 8 columns
  s128x128b,        // a lane per line, 4 columns
  s64x128b_02_13,   // lines 0..31 to windows 0 and 2, lines 32..63 to windows 1 and 3
  s64x128b_01_23,   // lines 0..31 to windows 0 and 1, lines 32..63 to windows 2 and 3
  s32x128b_warpx4,  // lines 0..31 to every window: scales
  s4x256b,          // four lines to lanes 0, 32, 64 and 96 from the address on, 8 columns
};
HT_HOST_DEVICE int tensor_copy_lines(TensorCopy s) {
  switch (s) {
    case TensorCopy::s128x256b:
    case TensorCopy::s128x128b:
      return 128;
    case TensorCopy::s32x128b_warpx4:
      return 32;
    case TensorCopy::s4x256b:
      return 4;
    default:
      return 64;
  }
}
HT_HOST_DEVICE int tensor_copy_line_bytes(TensorCopy s) {
  return s == TensorCopy::s128x256b || s == TensorCopy::s4x256b ? 32 : 16;
}
// The line whose bytes lane `lane` receives, counted from the address; -1 where nothing is written.
HT_HOST_DEVICE int tensor_copy_line(TensorCopy s, int lane) {
  switch (s) {
    case TensorCopy::s128x256b:
    case TensorCopy::s128x128b:
      return lane;
    case TensorCopy::s64x128b_02_13:
      return lane % 64;
    case TensorCopy::s64x128b_01_23:
      return lane % 32 + lane / 64 * 32;
    case TensorCopy::s32x128b_warpx4:
      return lane % 32;
    case TensorCopy::s4x256b:
      return lane % 32 == 0 ? lane / 32 : -1;
  }
  return 0;
}

}  // namespace halftone::tile
