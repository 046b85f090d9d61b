#include "tile/tcgen05_instruction.h"

#include <gtest/gtest.h>

#include <string>

namespace halftone::tile {
namespace {

using Kind = Tcgen05Kind;
using Type = Tcgen05Type;

// Values of an independent implementation.
static_assert(Tcgen05Instruction{.n = 256}.encode() == 0x08400490);
static_assert(Tcgen05Instruction{.kind = Kind::f8f6f4, .a = Type::e4m3, .b = Type::e4m3}.encode() ==
              0x08200010);
static_assert(Tcgen05Instruction{.kind = Kind::mxf4nvf4,
                                 .a = Type::e2m1,
                                 .b = Type::e2m1,
                                 .scale = Tcgen05Scale::ue4m3}
                  .encode() == 0x08200480);
static_assert(Tcgen05Instruction{.kind = Kind::mxf8f6f4, .a = Type::e4m3, .b = Type::e4m3}
                  .encode() == 0x08a00000);
static_assert(Tcgen05Instruction{.b_major = Major::mn, .m = 64}.encode() == 0x04210490);
// And by hand: two CTAs, M 256; negated A; scale ids 2 of both operands.
static_assert(Tcgen05Instruction{.m = 256, .n = 128, .ctas = 2}.encode() == 0x10200490);
static_assert(Tcgen05Instruction{.negate_a = true}.encode() == 0x08202490);
static_assert(
    Tcgen05Instruction{
        .kind = Kind::mxf4, .a = Type::e2m1, .b = Type::e2m1, .a_scale_id = 2, .b_scale_id = 2}
        .encode() == 0x48a004a0);
static_assert(
    Tcgen05Instruction{
        .kind = Kind::i8, .a = Type::u8, .b = Type::s8, .d = Tcgen05Result::s32, .saturate = true}
        .encode() == 0x08200428);

TEST(Tcgen05Instruction, DecodesEveryValidOne) {
  int count = 0;
  for (int kind = 0; kind <= static_cast<int>(Kind::mxf4nvf4); ++kind) {
    for (int a = 0; a <= static_cast<int>(Type::s8); ++a) {
      for (int b = 0; b <= static_cast<int>(Type::s8); ++b) {
        for (int d = 0; d < 3; ++d) {
          for (int bits = 0; bits < 64; ++bits) {
            Tcgen05Instruction i;
            i.kind = static_cast<Kind>(kind);
            i.a = static_cast<Type>(a), i.b = static_cast<Type>(b);
            i.d = static_cast<Tcgen05Result>(d);
            i.n = 16 * (1 + bits % 16);
            i.a_major = bits & 1 ? Major::mn : Major::k;
            i.b_major = bits & 2 ? Major::mn : Major::k;
            i.negate_a = bits & 4, i.negate_b = bits & 8;
            if (is_block_scaled(i.kind)) {
              i.a_scale_id = bits & 2, i.b_scale_id = bits >> 4 & 2;
              if (i.kind == Kind::mxf4nvf4 && bits & 1) i.scale = Tcgen05Scale::ue4m3;
              if (is_packed_fp4(i.kind)) i.a_major = i.b_major = Major::k;
            }
            if (!i.valid()) continue;
            ++count;
            ASSERT_EQ(Tcgen05Instruction::decode(i.encode(), i.kind), i);
          }
        }
      }
    }
  }
  EXPECT_GT(count, 3000);
}

TEST(Tcgen05Instruction, Shapes) {
  const auto valid = [](Tcgen05Instruction i) { return i.valid(); };
  EXPECT_TRUE(valid({.m = 64, .n = 8}));
  EXPECT_FALSE(valid({.m = 32, .n = 64}));
  EXPECT_TRUE(valid({.m = 32, .n = 64, .weight_stationary = true}));
  EXPECT_FALSE(valid({.m = 32, .n = 96, .weight_stationary = true}));
  EXPECT_FALSE(valid({.m = 128, .n = 264}));
  EXPECT_FALSE(valid({.m = 256, .n = 128}));
  EXPECT_TRUE(valid({.m = 256, .n = 128, .ctas = 2}));
  EXPECT_FALSE(valid({.m = 256, .n = 136, .ctas = 2}));
  EXPECT_FALSE(valid({.m = 64, .n = 128, .ctas = 2}));
  Tcgen05Instruction integer{.kind = Kind::i8, .a = Type::s8, .b = Type::s8};
  integer.d = Tcgen05Result::s32;
  for (const int n : {8, 16, 24, 32, 48, 256}) {
    integer.n = n;
    EXPECT_TRUE(integer.valid()) << n;
  }
  integer.n = 40;
  EXPECT_FALSE(integer.valid());
  Tcgen05Instruction scaled{.kind = Kind::mxf8f6f4, .a = Type::e4m3, .b = Type::e2m1};
  EXPECT_TRUE(scaled.valid());
  scaled.m = 64;
  EXPECT_FALSE(scaled.valid());
}

TEST(Tcgen05Instruction, NamesTheBrokenRule) {
  const auto rule = [](Tcgen05Instruction i) {
    const char* broken = i.broken_rule();
    return std::string(broken == nullptr ? "" : broken);
  };
  EXPECT_EQ(rule({}), "");
  EXPECT_NE(rule({.a = Type::e4m3}).find("type"), std::string::npos);
  EXPECT_NE(rule({.a = Type::f16, .b = Type::bf16}).find("one type"), std::string::npos);
  EXPECT_NE(rule({.d = Tcgen05Result::s32}).find("i8"), std::string::npos);
  EXPECT_NE(rule({.kind = Kind::tf32, .a = Type::tf32, .b = Type::tf32, .d = Tcgen05Result::f16})
                .find("FP16"),
            std::string::npos);
  EXPECT_NE(
      rule({.kind = Kind::mxf4, .a = Type::e2m1, .b = Type::e2m1, .a_major = Major::mn}).find("K-"),
      std::string::npos);
  EXPECT_NE(rule({.kind = Kind::mxf4, .a = Type::e2m1, .b = Type::e2m1, .a_scale_id = 1})
                .find("scale id"),
            std::string::npos);
  EXPECT_NE(rule({.saturate = true}).find("saturation"), std::string::npos);
}

TEST(Tcgen05Instruction, KIs32Bytes) {
  EXPECT_EQ(tcgen05_k(Kind::f16), 16);
  EXPECT_EQ(tcgen05_k(Kind::tf32), 8);
  EXPECT_EQ(tcgen05_k(Kind::f8f6f4), 32);
  EXPECT_EQ(tcgen05_k(Kind::i8), 32);
  EXPECT_EQ(tcgen05_k(Kind::mxf8f6f4), 32);
  EXPECT_EQ(tcgen05_k(Kind::mxf4nvf4), 64);
}

}  // namespace
}  // namespace halftone::tile
