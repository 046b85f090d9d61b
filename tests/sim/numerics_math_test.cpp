#include "sim/numerics/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "formats/codec.h"

namespace halftone::sim {
namespace {

uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }
constexpr float kSubnormal = 0x1p-130f;

TEST(Math, PowersOfTwoAreExact) {
  for (int e = -126; e < 128; ++e) {
    EXPECT_EQ(ex2_approx(static_cast<float>(e), true), std::ldexp(1.0f, e));
    EXPECT_EQ(lg2_approx(std::ldexp(1.0f, e), true), static_cast<float>(e));
  }
  EXPECT_EQ(rcp_approx(8, true), 0.125f);
  EXPECT_EQ(rsqrt_approx(16, true), 0.25f);
}

TEST(Math, SubnormalsAreFlushedWhereAsked) {
  EXPECT_EQ(bits(ex2_approx(-127.0f, true)), 0u);
  EXPECT_EQ(ex2_approx(-127.0f, false), 0x1p-127f);
  EXPECT_EQ(rcp_approx(kSubnormal, true), INFINITY);
  EXPECT_EQ(rcp_approx(-kSubnormal, true), -INFINITY);
  EXPECT_EQ(bits(rcp_approx(-0x1p127f, true)), 0x80000000u);
  EXPECT_EQ(rcp_approx(0x1p127f, false), 0x1p-127f);
  EXPECT_EQ(lg2_approx(kSubnormal, true), -INFINITY);
  EXPECT_EQ(lg2_approx(kSubnormal, false), -130.0f);
  EXPECT_EQ(tanh_approx(kSubnormal), kSubnormal);
}

TEST(Math, ArgumentsOutsideTheDomain) {
  EXPECT_EQ(bits(lg2_approx(-1, true)), 0x7fffffffu);
  EXPECT_EQ(bits(rsqrt_approx(-1, true)), 0x7fffffffu);
  EXPECT_EQ(bits(sin_approx(INFINITY, true)), 0x7fffffffu);
  EXPECT_EQ(bits(ex2_approx(std::nanf(""), true)), 0x7fffffffu);
  EXPECT_EQ(rsqrt_approx(-0.0f, true), -INFINITY);
  EXPECT_EQ(ex2_approx(INFINITY, true), INFINITY);
  EXPECT_EQ(ex2_approx(-INFINITY, true), 0.0f);
  EXPECT_EQ(tanh_approx(-INFINITY), -1.0f);
}

// The reduction to turns costs what it costs on the chip: 2^-20.5 within a turn, all for huge x.
TEST(Math, SineReducesAsTheChip) {
  for (int i = -1000; i <= 1000; ++i) {
    const float x = static_cast<float>(i) * 0.00314f;
    EXPECT_NEAR(sin_approx(x, true), std::sin(double{x}), 0x1p-20);
    EXPECT_NEAR(cos_approx(x, true), std::cos(double{x}), 0x1p-20);
  }
  EXPECT_EQ(sin_approx(0x1.fffe8p40f, true), 0.0f);
  EXPECT_EQ(cos_approx(0x1.fffe8p40f, true), 1.0f);
  // Measured: the chip gives -0.0007670, the sine is 0.0001757.
  EXPECT_NEAR(sin_approx(std::bit_cast<float>(0x45f7fd4eu), true), -0.000767, 1e-6);
}

// FP32 arithmetic alone, which a hasty model would use, is off by one unit somewhere.
TEST(Math, IsRoundedOnce) {
  int differs = 0;
  for (int i = 0; i < 10000; ++i) {
    const float x = 1 + static_cast<float>(i) * 0x1p-14f;
    const float exact = rsqrt_approx(x, true);
    EXPECT_LE(std::abs(double{exact} - 1 / std::sqrt(double{x})), 0x1p-25 * 1.0001);
    differs += exact != 1 / std::sqrt(x);
  }
  EXPECT_GT(differs, 100);
}

TEST(Math, HalvesRoundTheirOwnResult) {
  EXPECT_EQ(ex2_approx_f16(0x3c00), 0x4000);
  EXPECT_EQ(ex2_approx_ftz_bf16(encode_bf16(-1.0f)), encode_bf16(0.5f));
  EXPECT_EQ(tanh_approx_bf16(encode_bf16(100.0f)), encode_bf16(1.0f));
  EXPECT_EQ(tanh_approx_f16(0x7e00), 0x7fff);
}

}  // namespace
}  // namespace halftone::sim
