// ldmatrix and stmatrix: all counts, plain and transposed; the maps written out from the PTX text.
#include <gtest/gtest.h>

#include "hw/barrier.h"
#include "hw/kernels.h"
#include "hw/memory.h"
#include "hw/mma/ldmatrix.h"
#include "hw/mma/stmatrix.h"
#include "hw/warp.h"

namespace halftone::test {
namespace {

// Row r of matrix m lies 48 bytes apart from the next, in another order than by number.
uint32_t row_offset(uint32_t matrix, uint32_t row) { return ((matrix * 8 + row) * 5 % 32) * 48; }
uint16_t element(uint32_t matrix, uint32_t row, uint32_t column) {
  return static_cast<uint16_t>(matrix * 1000 + row * 10 + column + 1);
}
// The element in half `half` of register `matrix` of a lane.
uint16_t expected(bool trans, uint32_t matrix, uint32_t lane, uint32_t half) {
  const uint32_t a = lane / 4, b = 2 * (lane % 4) + half;
  return trans ? element(matrix, b, a) : element(matrix, a, b);
}

template <uint32_t kCount>
void check_load(Arch arch) {
  run_everywhere(arch, {.block = {32}, .shared_bytes = 2048}, [](sim::Thread& me) {
    const hw::SharedAddress base = hw::shared_memory_base();
    for (uint32_t column = 0; column < 8; ++column) {
      hw::store_shared(base + row_offset(me.lane / 8, me.lane % 8) + column * 2,
                       element(me.lane / 8, me.lane % 8, column));
    }
    hw::warp_sync();
    // Lanes beyond the last row may pass anything.
    const hw::SharedAddress row = me.lane < 8 * kCount ? base + row_offset(me.lane / 8, me.lane % 8)
                                                       : hw::SharedAddress{0xffffff};
    uint32_t plain[kCount], trans[kCount];
    hw::ldmatrix(plain, row);
    hw::ldmatrix_trans(trans, row);
    for (uint32_t m = 0; m < kCount; ++m) {
      for (uint32_t half = 0; half < 2; ++half) {
        EXPECT_EQ(plain[m] >> 16 * half & 0xffff, expected(false, m, me.lane, half))
            << "matrix " << m << " lane " << me.lane << " half " << half;
        EXPECT_EQ(trans[m] >> 16 * half & 0xffff, expected(true, m, me.lane, half))
            << "matrix " << m << " lane " << me.lane << " half " << half;
      }
    }
  });
}
TEST(MatrixAccess, Loads) {
  for (const Arch arch : kArchs) {
    check_load<1>(arch);
    check_load<2>(arch);
    check_load<4>(arch);
  }
}

template <uint32_t kCount>
void check_store(Arch arch, bool trans) {
  run_everywhere(arch, {.block = {32}, .shared_bytes = 2048}, [=](sim::Thread& me) {
    const hw::SharedAddress base = hw::shared_memory_base();
    const uint32_t matrix = me.lane / 8, row = me.lane % 8;
    uint32_t fragment[kCount];
    for (uint32_t m = 0; m < kCount; ++m) {
      fragment[m] = expected(trans, m, me.lane, 0) | uint32_t{expected(trans, m, me.lane, 1)} << 16;
    }
    if (trans) {
      hw::stmatrix_trans(base + row_offset(matrix, row), fragment);
    } else {
      hw::stmatrix(base + row_offset(matrix, row), fragment);
    }
    hw::warp_sync();
    for (uint32_t column = 0; matrix < kCount && column < 8; ++column) {
      EXPECT_EQ(hw::load_shared<uint16_t>(base + row_offset(matrix, row) + column * 2),
                element(matrix, row, column))
          << "matrix " << matrix << " row " << row << " column " << column;
    }
  });
}
TEST(MatrixAccess, Stores) {
  for (const Arch arch : {Arch::sm_90a, Arch::sm_100a, Arch::sm_120a}) {
    for (const bool trans : {false, true}) {
      check_store<1>(arch, trans);
      check_store<2>(arch, trans);
      check_store<4>(arch, trans);
    }
  }
  EXPECT_TRUE(refused(Arch::sm_89, [] {
    const uint32_t fragment[1] = {};
    hw::stmatrix(hw::shared_memory_base(), fragment);
  }));
}

TEST(MatrixAccess, RowsAreAlignedAndTheirConflictsCounted) {
  const auto load_rows = [](uint32_t pitch, uint32_t shift) {
    return violations({.block = {32}, .shared_bytes = 8192}, [=](sim::Thread& me) {
      const hw::SharedAddress base = hw::shared_memory_base();
      for (uint32_t i = me.lane; i < 2048; i += 32) hw::store_shared(base + i * 4, i);
      hw::warp_sync();
      uint32_t matrices[4];
      hw::ldmatrix(matrices, base + me.lane * pitch + shift);
    });
  };
  EXPECT_FALSE(load_rows(128, 8).clean()) << "rows are aligned to 16 bytes";
  const auto conflicts = [&](uint32_t pitch) {
    const SimulatorReport report = load_rows(pitch, 0);
    EXPECT_TRUE(report.clean());
    uint64_t wavefronts = 0;
    for (const auto& site : report.counters.shared_sites) {
      if (site.what.find("ldmatrix") != std::string::npos) wavefronts += site.wavefronts;
    }
    return wavefronts;
  };
  EXPECT_EQ(conflicts(16), 4u);
  EXPECT_EQ(conflicts(144), 4u);
  EXPECT_EQ(conflicts(128), 32u);
}

}  // namespace
}  // namespace halftone::test
