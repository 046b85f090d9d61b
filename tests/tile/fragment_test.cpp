#include "tile/fragment.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <set>
#include <vector>

#include "tile/ldmatrix.h"

namespace halftone::tile {
namespace {

// Golden elements of the PTX figures, by hand.
static_assert(mma_a_element({5, 2, 1}, 16) == Element{1, 11});   // lane 5: row 1, k 8 + 2 + 1
static_assert(mma_a_element({31, 3, 3}, 8) == Element{15, 31});  // the last of 16 x 32
static_assert(mma_a_element({1, 1, 7}, 4) == Element{8, 15});
static_assert(mma_b_element({5, 1, 0}, 16) == Element{10, 1});
static_assert(mma_c_element(6, 3) == Element{9, 5});
static_assert(wgmma_d_element(37, 6) == Element{25, 10});
static_assert(wgmma_a_element({127, 3, 1}, 16) == Element{63, 15});
static_assert(mma_scale_a_lane(9, 1) == 7 && mma_scale_b_lane(7, 3) == 31);

constexpr int kBits[] = {4, 8, 16, 32};

TEST(Fragment, MmaOperandsCoverTheirMatrixOnce) {
  for (const int bits : kBits) {
    const int k = mma_k(bits);
    std::set<int> a, b;
    for (int lane = 0; lane < 32; ++lane) {
      for (int e = 0; e < elements_per_register(bits); ++e) {
        for (int reg = 0; reg < 4; ++reg) {
          const Slot slot{lane, reg, e};
          const Element at = mma_a_element(slot, bits);
          ASSERT_TRUE(at.row >= 0 && at.row < 16 && at.col >= 0 && at.col < k);
          ASSERT_EQ(mma_a_slot(at, bits), slot);
          a.insert(at.row * k + at.col);
        }
        for (int reg = 0; reg < 2; ++reg) {
          const Slot slot{lane, reg, e};
          const Element at = mma_b_element(slot, bits);
          ASSERT_TRUE(at.row >= 0 && at.row < k && at.col >= 0 && at.col < 8);
          ASSERT_EQ(mma_b_slot(at, bits), slot);
          b.insert(at.row * 8 + at.col);
        }
      }
    }
    EXPECT_EQ(a.size(), 16u * k);
    EXPECT_EQ(b.size(), 8u * k);
  }
}

// Forms of half the K use the lower registers: A the first two, B the first.
TEST(Fragment, HalfKUsesTheLowerRegisters) {
  for (const int bits : {8, 16}) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int e = 0; e < elements_per_register(bits); ++e) {
        for (int reg = 0; reg < 2; ++reg)
          EXPECT_LT(mma_a_element({lane, reg, e}, bits).col, mma_k(bits) / 2);
        EXPECT_LT(mma_b_element({lane, 0, e}, bits).row, mma_k(bits) / 2);
      }
    }
  }
}

TEST(Fragment, AccumulatorsCoverTheirMatrixOnce) {
  std::set<int> c, d;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const Element at = mma_c_element(lane, i);
      ASSERT_EQ(mma_c_slot(at), (Slot{lane, i, 0}));
      c.insert(at.row * 8 + at.col);
    }
  }
  EXPECT_EQ(c.size(), 128u);
  constexpr int kN = 40;  // an N that is no power of two
  for (int t = 0; t < 128; ++t) {
    for (int i = 0; i < kN / 2; ++i) {
      const Element at = wgmma_d_element(t, i);
      ASSERT_TRUE(at.row < 64 && at.col < kN);
      ASSERT_EQ(wgmma_d_slot(at), (Slot{t, i, 0}));
      d.insert(at.row * kN + at.col);
    }
  }
  EXPECT_EQ(d.size(), 64u * kN);
}

TEST(Fragment, WgmmaAIsFourMmaAs) {
  for (const int bits : kBits) {
    std::set<int> seen;
    for (int t = 0; t < 128; ++t) {
      for (int reg = 0; reg < 4; ++reg) {
        for (int e = 0; e < elements_per_register(bits); ++e) {
          const Element at = wgmma_a_element({t, reg, e}, bits);
          ASSERT_EQ(at.row / 16, t / 32);
          ASSERT_EQ(wgmma_a_slot(at, bits), (Slot{t, reg, e}));
          seen.insert(at.row * 64 + at.col);
        }
      }
    }
    EXPECT_EQ(seen.size(), 64u * mma_k(bits));
  }
}

TEST(Fragment, EveryScaleHasALaneOfItsOwn) {
  std::set<int> a, b;
  for (int selector = 0; selector < 2; ++selector)
    for (int m = 0; m < 16; ++m) a.insert(mma_scale_a_lane(m, selector));
  for (int selector = 0; selector < 4; ++selector)
    for (int n = 0; n < 8; ++n) b.insert(mma_scale_b_lane(n, selector));
  EXPECT_EQ(a.size(), 32u);
  EXPECT_EQ(b.size(), 32u);
  // The scale of a row is in the quad that holds the row.
  for (int m = 0; m < 16; ++m)
    EXPECT_EQ(mma_scale_a_lane(m, 0) / 4, mma_a_slot({m, 0}, 8).thread / 4);
  EXPECT_EQ(mma_scale_byte(31, 32, 1, 3), 3);
  EXPECT_EQ(mma_scale_byte(32, 64, 2, 2), 3);
  EXPECT_EQ(mma_scale_byte(63, 64, 4, 0), 3);
}

TEST(Ldmatrix, FormsCoverTheirMatrixOnce) {
  for (const MatrixForm form :
       {MatrixForm::m8n8_b16, MatrixForm::m8n8_b16_trans, MatrixForm::m8n16_b4,
        MatrixForm::m8n16_b6, MatrixForm::m16n16_b8_trans}) {
    std::set<int> seen;
    for (int lane = 0; lane < 32; ++lane) {
      for (int reg = 0; reg < registers_per_matrix(form); ++reg) {
        for (int e = 0; e < 32 / matrix_element_bits(form); ++e) {
          const Element at = matrix_element(form, {lane, reg, e});
          ASSERT_TRUE(at.row < matrix_rows(form) && at.col < matrix_columns(form));
          seen.insert(at.row * 16 + at.col);
        }
      }
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>(matrix_rows(form) * matrix_columns(form)));
  }
}

// Runs an x4 load of 16-bit elements: what lane `lane` gets in register `reg`, element `e`, as
// (row, column) of the stored matrix, when lane l names the row and chunk that `where` gives.
template <class Where>
Element loaded(Where where, MatrixForm form, Slot s) {
  const Element in = matrix_element(form, {s.thread, 0, s.element});
  const RowChunk from = where(matrix_address_lane(form, s.reg, in.row));
  return {from.row, from.chunk * 8 + in.col};
}

TEST(Ldmatrix, AddressesGiveTheFragmentsOfMma) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int reg = 0; reg < 4; ++reg) {
      for (int e = 0; e < 2; ++e) {
        const Slot slot{lane, reg, e};
        const Element a = mma_a_element(slot, 16);
        EXPECT_EQ(loaded(ldmatrix_a, MatrixForm::m8n8_b16, slot), a);
        // Stored by columns: row k, column m.
        EXPECT_EQ(loaded(ldmatrix_a_trans, MatrixForm::m8n8_b16_trans, slot),
                  (Element{a.col, a.row}));
        // Registers 0, 1 are B of the first eight columns, 2, 3 of the next.
        const Element b = mma_b_element({lane, reg % 2, e}, 16);
        const int n = b.col + reg / 2 * 8;
        EXPECT_EQ(loaded(ldmatrix_b, MatrixForm::m8n8_b16, slot), (Element{n, b.row}));
        EXPECT_EQ(loaded(ldmatrix_b_trans, MatrixForm::m8n8_b16_trans, slot), (Element{b.row, n}));
      }
    }
  }
}

// stmatrix.x4 with the addresses of A stores 16 columns of an accumulator, two packed per register.
TEST(Ldmatrix, StoresAccumulators) {
  for (int t = 0; t < 128; ++t) {
    for (int reg = 0; reg < 4; ++reg) {
      for (int e = 0; e < 2; ++e) {
        const Element d = wgmma_d_element(t, 2 * reg + e);
        const Element at = loaded(ldmatrix_a, MatrixForm::m8n8_b16, {t % 32, reg, e});
        EXPECT_EQ((Element{16 * (t / 32) + at.row, at.col}), d);
      }
    }
  }
}

}  // namespace
}  // namespace halftone::tile
