// Integer instructions against their definitions, bit by bit.
#include "hw/bits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace halftone::test {
namespace {

uint32_t bit(uint64_t value, uint64_t i) { return i < 64 ? value >> i & 1 : 0; }

TEST(Bits, Prmt) {
  const uint32_t low = 0x83c2e1f0, high = 0x07162534;
  EXPECT_EQ(hw::prmt(low, high, 0x3210), low);
  EXPECT_EQ(hw::prmt(low, high, 0x7654), high);
  EXPECT_EQ(hw::prmt(low, high, 0x0617), 0xf016e107u);
  EXPECT_EQ(hw::prmt(low, high, 0x8c9f), 0xff00ff00u);  // signs: of f0, 34, e1, 07
  EXPECT_EQ(hw::prmt(low, high, 0xffff3210), low);      // the upper half is not read
}

template <uint8_t kTable>
void check_lop3(uint32_t a, uint32_t b, uint32_t c) {
  const uint32_t got = hw::lop3<kTable>(a, b, c);
  for (uint32_t i = 0; i < 32; ++i) {
    const uint32_t index = bit(a, i) * 4 + bit(b, i) * 2 + bit(c, i);
    ASSERT_EQ(bit(got, i), bit(kTable, index)) << "table " << int{kTable} << " bit " << i;
  }
}
TEST(Bits, Lop3) {
  std::mt19937 rng(1);
  for (int i = 0; i < 20; ++i) {
    const uint32_t a = rng(), b = rng(), c = rng();
    check_lop3<0x00>(a, b, c);
    check_lop3<0x96>(a, b, c);
    check_lop3<0xca>(a, b, c);
    check_lop3<0xea>(a, b, c);
    check_lop3<0x1b>(a, b, c);
    check_lop3<0x40>(a, b, c);
    EXPECT_EQ((hw::lop3<(hw::kLop3A & hw::kLop3B) ^ hw::kLop3C>(a, b, c)), (a & b) ^ c);
  }
}

TEST(Bits, FunnelShifts) {
  std::mt19937 rng(2);
  for (uint32_t distance = 0; distance < 70; ++distance) {
    const uint32_t low = rng(), high = rng();
    const uint64_t both = uint64_t{high} << 32 | low;
    const uint32_t wrapped = distance % 32, clamped = distance < 32 ? distance : 32;
    for (uint64_t i = 0; i < 32; ++i) {
      ASSERT_EQ(bit(hw::shf_right_wrap(low, high, distance), i), bit(both, i + wrapped));
      ASSERT_EQ(bit(hw::shf_right_clamp(low, high, distance), i), bit(both, i + clamped));
      ASSERT_EQ(bit(hw::shf_left_wrap(low, high, distance), i), bit(both, i + 32 - wrapped));
      ASSERT_EQ(bit(hw::shf_left_clamp(low, high, distance), i), bit(both, i + 32 - clamped));
    }
  }
}

TEST(Bits, Fields) {
  std::mt19937 rng(3);
  for (const uint32_t start : {0u, 1u, 7u, 16u, 31u, 32u, 40u, 255u, 256u, 259u}) {
    for (const uint32_t length : {0u, 1u, 5u, 16u, 31u, 32u, 33u, 255u, 256u}) {
      const uint32_t value = rng() | 0x80000000u, into = rng(), from = start & 255;
      const uint32_t count = length & 255;
      const uint32_t field = hw::bfe(value, start, length),
                     put = hw::bfi(value, into, start, length);
      const auto sign_bit = count == 0 ? 64 : std::min<uint64_t>(from + count - 1, 31);
      const auto with_sign =
          static_cast<uint32_t>(hw::bfe(static_cast<int32_t>(value), start, length));
      for (uint32_t i = 0; i < 32; ++i) {
        const bool inside = i < count;
        const uint32_t plain = from + i < 32 ? bit(value, from + i) : 0;
        ASSERT_EQ(bit(field, i), inside ? plain : 0) << start << ' ' << length;
        const uint32_t sign = count == 0 ? 0 : bit(value, sign_bit);
        ASSERT_EQ(bit(with_sign, i), inside && from + i < 32 ? plain : sign)
            << start << ' ' << length << " bit " << i;
        const bool replaced = i >= from && i - from < count;
        ASSERT_EQ(bit(put, i), replaced ? bit(value, i - from) : bit(into, i));
      }
    }
  }
}

TEST(Bits, Counts) {
  EXPECT_EQ(hw::popc(0xf0f00001u), 9u);
  EXPECT_EQ(hw::clz(0), 32u);
  EXPECT_EQ(hw::clz(0x00012345), 15u);
  EXPECT_EQ(hw::brev(0x80000002u), 0x40000001u);
  EXPECT_EQ(hw::bfind(0), 0xffffffffu);
  EXPECT_EQ(hw::bfind(0x00012345), 16u);
}

TEST(Bits, DotProducts) {
  std::mt19937 rng(4);
  for (int i = 0; i < 100; ++i) {
    const uint32_t a = rng(), b = rng();
    const auto c = static_cast<int32_t>(rng());
    int64_t both = c, mixed = c;
    for (int j = 0; j < 32; j += 8) {
      const int b_signed = static_cast<int8_t>(b >> j & 255);
      both += static_cast<int8_t>(a >> j & 255) * b_signed;
      mixed += static_cast<int>(a >> j & 255) * b_signed;
    }
    EXPECT_EQ(hw::dp4a(a, b, c), static_cast<int32_t>(both));
    EXPECT_EQ(hw::dp4a_u8_s8(a, b, c), static_cast<int32_t>(mixed));
  }
}

}  // namespace
}  // namespace halftone::test
