// ldmatrix and stmatrix: which matrix element a register gets, and which shared-memory row each
// lane names so that the registers come out as the fragments of mma.sync and wgmma.
#pragma once
#include "tile/fragment.h"

namespace halftone::tile {

enum class MatrixForm : uint8_t {
  m8n8_b16,         // 8 rows of 16 bytes; .x1, .x2, .x4 matrices, one register each
  m8n8_b16_trans,   // the same, transposed on the way
  m8n16_b4,         // 16 FP4 of 8 bytes and 8 of padding, spread into bytes
  m8n16_b6,         // 16 FP6 of 12 bytes and 4 of padding, spread into bytes
  m16n16_b8_trans,  // 16 rows of 16 bytes, transposed; .x1, .x2 matrices, two registers each
};

HT_HOST_DEVICE int matrix_rows(MatrixForm f) { return f == MatrixForm::m16n16_b8_trans ? 16 : 8; }
HT_HOST_DEVICE int matrix_columns(MatrixForm f) { return f <= MatrixForm::m8n8_b16_trans ? 8 : 16; }
HT_HOST_DEVICE int registers_per_matrix(MatrixForm f) {
  return f == MatrixForm::m16n16_b8_trans ? 2 : 1;
}
HT_HOST_DEVICE int matrix_element_bits(MatrixForm f) {
  return f <= MatrixForm::m8n8_b16_trans ? 16 : 8;
}

// The element, as stored in shared memory, of matrix `reg / registers_per_matrix` that slot `s`
// holds. The byte order of m16n16_b8_trans is derived from public layouts, not yet from silicon.
HT_HOST_DEVICE Element matrix_element(MatrixForm form, Slot s) {
  const int quad = s.thread / 4, place = s.thread % 4;
  switch (form) {
    case MatrixForm::m8n8_b16:
      return {quad, 2 * place + s.element};
    case MatrixForm::m8n8_b16_trans:
      return {2 * place + s.element, quad};
    case MatrixForm::m8n16_b4:
    case MatrixForm::m8n16_b6:
      return {quad, 4 * place + s.element};
    case MatrixForm::m16n16_b8_trans:
      return {4 * place + (s.element & 1) + 2 * (s.reg % 2), quad + 8 * (s.element >> 1)};
  }
  return {0, 0};
}

// The lane whose address operand names row `row` of matrix `matrix`.
HT_HOST_DEVICE int matrix_address_lane(MatrixForm form, int matrix, int row) {
  return matrix * matrix_rows(form) + row;
}

// Where a lane points for an x4 (or x2: lanes below 16) access of 8x8 matrices, in rows and 16-byte
// chunks of the stored matrix, so that register r is register r of the named fragment.
struct RowChunk {
  int row, chunk;
  bool operator==(const RowChunk&) const = default;
};

// A of mma.sync and wgmma (16 rows x 32 bytes of K) from memory with K contiguous; also stmatrix of
// two neighbouring C fragments, packed to 16 bits, into memory with columns contiguous.
HT_HOST_DEVICE RowChunk ldmatrix_a(int lane) { return {lane % 16, lane / 16}; }

// B of two neighbouring mma.sync (16 columns n x 32 bytes of K) from memory with K contiguous, one
// row per n: registers 0, 1 are the first eight columns, 2, 3 the next.
HT_HOST_DEVICE RowChunk ldmatrix_b(int lane) { return {lane % 8 + lane / 16 * 8, lane / 8 % 2}; }

// The same B (16-bit elements) from memory with n contiguous, one row per k, with .trans: the V of
// attention. Rows are k, the chunk is eight n.
HT_HOST_DEVICE RowChunk ldmatrix_b_trans(int lane) { return {lane % 16, lane / 16}; }

// A (16-bit elements) from memory with m contiguous, one row per k, with .trans.
HT_HOST_DEVICE RowChunk ldmatrix_a_trans(int lane) {
  return {lane % 8 + lane / 16 * 8, lane / 8 % 2};
}

}  // namespace halftone::tile
