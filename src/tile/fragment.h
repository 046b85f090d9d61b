// Which element of a matrix each register of each thread holds: mma.sync, wgmma, ldmatrix.
//
// A register is 32 bits and holds 32 / bits elements, the lowest bits first. Functions go both
// ways:
// `*_element` from a thread's register to (row, col), `*_slot` back. `element_bits` is the width in
// the register: 8 for the FP4 and FP6 of kind::f8f6f4, which sit in bytes.
#pragma once
#include "hw/target.h"

namespace halftone::tile {

struct Element {
  int row, col;
  bool operator==(const Element&) const = default;
};

// A thread of the warp or warpgroup, one of its registers, one element of the register.
struct Slot {
  int thread, reg, element;
  bool operator==(const Slot&) const = default;
};

HT_HOST_DEVICE int elements_per_register(int element_bits) { return 32 / element_bits; }
// The K of one MMA: 32 bytes (mma.sync also has forms of 16 bytes, with the lower registers only).
HT_HOST_DEVICE int mma_k(int element_bits) { return 256 / element_bits; }

// mma.sync, A: 16 x K, row by row; 4 registers. Pairs of registers are rows r and r + 8, then the
// second half of K.
HT_HOST_DEVICE Element mma_a_element(Slot s, int element_bits) {
  const int n = elements_per_register(element_bits);
  return {s.thread / 4 + 8 * (s.reg & 1), s.thread % 4 * n + s.element + 4 * n * (s.reg >> 1)};
}
HT_HOST_DEVICE Slot mma_a_slot(Element e, int element_bits) {
  const int n = elements_per_register(element_bits);
  return {e.row % 8 * 4 + e.col / n % 4, e.row / 8 % 2 + 2 * (e.col / (4 * n)), e.col % n};
}

// mma.sync, B: K x 8 (row is k, col is n); 2 registers.
HT_HOST_DEVICE Element mma_b_element(Slot s, int element_bits) {
  const int n = elements_per_register(element_bits);
  return {s.thread % 4 * n + s.element + 4 * n * s.reg, s.thread / 4};
}
HT_HOST_DEVICE Slot mma_b_slot(Element e, int element_bits) {
  const int n = elements_per_register(element_bits);
  return {e.col * 4 + e.row / n % 4, e.row / (4 * n), e.row % n};
}

// mma.sync, C and D: 16 x 8. FP32 and S32: register i = 0..3 with element 0; FP16: two elements in
// each of two registers, so i = 2 * reg + element.
HT_HOST_DEVICE Element mma_c_element(int thread, int i) {
  return {thread / 4 + 8 * (i >> 1), thread % 4 * 2 + (i & 1)};
}
HT_HOST_DEVICE Slot mma_c_slot(Element e) {
  return {e.row % 8 * 4 + e.col / 2, 2 * (e.row / 8) + e.col % 2, 0};
}

// wgmma, A from registers: 64 x K over 128 threads; 4 registers. Warp w has rows 16w to 16w + 15.
HT_HOST_DEVICE Element wgmma_a_element(Slot s, int element_bits) {
  const Element e = mma_a_element({s.thread % 32, s.reg, s.element}, element_bits);
  return {16 * (s.thread / 32) + e.row, e.col};
}
HT_HOST_DEVICE Slot wgmma_a_slot(Element e, int element_bits) {
  const Slot s = mma_a_slot({e.row % 16, e.col}, element_bits);
  return {e.row / 16 * 32 + s.thread, s.reg, s.element};
}

// wgmma, D: 64 x N; i = 0 .. N/2 - 1, the register of FP32, and 2 * reg + element of FP16. Every
// four are the C fragment of mma.sync for eight more columns.
HT_HOST_DEVICE Element wgmma_d_element(int thread, int i) {
  const Element e = mma_c_element(thread % 32, i % 4);
  return {16 * (thread / 32) + e.row, 8 * (i / 4) + e.col};
}
HT_HOST_DEVICE Slot wgmma_d_slot(Element e) {
  const Slot s = mma_c_slot({e.row % 16, e.col % 8});
  return {e.row / 16 * 32 + s.thread, 4 * (e.col / 8) + s.reg, 0};
}

// The scale of A's row m and of B's column n in a block-scaled mma.sync: the lane that holds it.
// The selectors are the thread-id operands of the instruction: 0..1 for A, 0..3 for B.
HT_HOST_DEVICE int mma_scale_a_lane(int m, int selector) {
  return m % 8 * 4 + 2 * selector + m / 8;
}
HT_HOST_DEVICE int mma_scale_b_lane(int n, int selector) { return n * 4 + selector; }
// The byte of that lane's register which scales column k of A (row k of B): `vectors` scales over
// the instruction's K elements, from byte `byte_id` on (0..3 for 1, 0 or 2 for 2, 0 for 4).
HT_HOST_DEVICE int mma_scale_byte(int k, int k_extent, int vectors, int byte_id) {
  return byte_id + k / (k_extent / vectors);
}

}  // namespace halftone::tile
