// Arithmetic, approximations and conversions on the simulator. The conversions themselves are
// tested exhaustively in tests/sim; here: which half goes where, roundings, signs, and refusals.
#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <limits>

#include "formats/codec.h"
#include "hw/convert/convert_fp8_upper.h"
#include "hw/convert/convert_integer.h"
#include "hw/kernels.h"
#include "hw/mufu.h"
#include "hw/pair.h"

namespace halftone::test {
namespace {

using hw::Rounding;
using hw::Type;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }

template <class Body>
void on(Arch arch, const Body& body) {
  Stream stream = simulated(arch);
  run(stream, {.block = {1}}, [&](sim::Thread&) { body(); });
}

// Floats of all kinds: near each other, far apart, tiny, huge.
float random_float(std::mt19937& rng) {
  const uint32_t kind = rng() % 8, exponent = kind == 0   ? 0
                                              : kind == 1 ? rng() % 255
                                                          : 120 + rng() % 16;
  return std::bit_cast<float>(static_cast<uint32_t>(rng() & 0x807fffff) | exponent << 23);
}

// The host's result in its own rounding mode, computed by volatile operations.
template <class Operation>
float rounded(int mode, Operation operation) {
  std::fesetround(mode);
  volatile float result = operation();
  std::fesetround(FE_TONEAREST);
  return result;
}
template <Rounding kRounding>
void check_roundings(int mode) {
  std::mt19937 rng(static_cast<uint32_t>(mode) + 5);
  for (int i = 0; i < 3000; ++i) {
    volatile float a = random_float(rng), b = random_float(rng), c = random_float(rng);
    if (i % 5 == 0) c = -(a * b);  // what is left is what the product lost
    const float x = a, y = b, z = c;
    ASSERT_EQ(bits(hw::add<kRounding>(x, y)), bits(rounded(mode, [&] { return a + b; })));
    ASSERT_EQ(bits(hw::mul<kRounding>(x, y)), bits(rounded(mode, [&] { return a * b; })));
    ASSERT_EQ(bits(hw::fma<kRounding>(x, y, z)),
              bits(rounded(mode, [&] { return std::fma(float{a}, float{b}, float{c}); })))
        << x << ' ' << y << ' ' << z;
  }
}
TEST(Arithmetic, Roundings) {
  check_roundings<Rounding::rn>(FE_TONEAREST);
  check_roundings<Rounding::rz>(FE_TOWARDZERO);
  check_roundings<Rounding::rm>(FE_DOWNWARD);
  check_roundings<Rounding::rp>(FE_UPWARD);
  EXPECT_EQ(bits(hw::add(kInfinity, -kInfinity)), 0x7fffffffu);
  EXPECT_EQ(bits(hw::add<Rounding::rm>(1.0f, -1.0f)), 0x80000000u);
  EXPECT_EQ(hw::mul<Rounding::rz>(0x1p127f, 4.0f), std::numeric_limits<float>::max());
}

TEST(Arithmetic, MinAndMax) {
  const float nan = std::nanf("");
  EXPECT_EQ(hw::min(2.0f, -3.0f), -3.0f);
  EXPECT_EQ(hw::max(2.0f, -3.0f), 2.0f);
  EXPECT_EQ(bits(hw::min(0.0f, -0.0f)), 0x80000000u);
  EXPECT_EQ(bits(hw::max(-0.0f, 0.0f)), 0u);
  EXPECT_EQ(hw::min(nan, 5.0f), 5.0f);
  EXPECT_EQ(hw::max(5.0f, nan), 5.0f);
  EXPECT_EQ(bits(hw::max(nan, nan)), 0x7fffffffu);
  EXPECT_EQ(bits(hw::min_nan(nan, 5.0f)), 0x7fffffffu);
  EXPECT_EQ(bits(hw::max_nan(5.0f, nan)), 0x7fffffffu);
}

// Sums and products of halves in FP64, which holds them exactly or nearly, rounded once.
template <Type kType>
void check_pairs(Arch arch) {
  constexpr bool kBf16 = kType == Type::bf16x2;
  const auto decode = [](uint32_t code) {
    return kBf16 ? std::bit_cast<float>(code << 16) : decode_f16(static_cast<uint16_t>(code));
  };
  on(arch, [&] {
    std::mt19937 rng(9);
    for (int i = 0; i < 3000; ++i) {
      // Exponents near each other, so that FP64 holds every sum exactly.
      const auto half = [&] {
        const auto r = static_cast<uint32_t>(rng());
        return kBf16 ? (r & 0x807f) | (120 + r % 16) << 7 : (r & 0x83ff) | (10 + r % 12) << 10;
      };
      const uint32_t a0 = half(), a1 = half(), b0 = half(), b1 = half(), c0 = half(), c1 = half();
      const uint32_t a = a0 | a1 << 16, b = b0 | b1 << 16, c = c0 | c1 << 16;
      const auto expect = [&](uint32_t pair, auto function, const char* what) {
        const double low = function(decode(a0), decode(b0), decode(c0));
        const double high = function(decode(a1), decode(b1), decode(c1));
        // To the nearest of the two neighbours, by distance in FP64.
        for (const auto& [code, exact] : {std::pair{pair & 0xffff, low}, {pair >> 16, high}}) {
          const double error = std::abs(decode(code) - exact);
          for (const uint32_t other : {code - 1, code + 1}) {
            const double distance = std::abs(decode(other & 0xffff) - exact);
            ASSERT_TRUE(error < distance || (error == distance && code % 2 == 0) ||
                        std::isnan(decode(other & 0xffff)))
                << what << ' ' << exact << " gives " << decode(code);
          }
        }
      };
      expect(
          hw::fma_pair<kType>(a, b, c), [](double x, double y, double z) { return x * y + z; },
          "fma");
      expect(
          hw::add_pair<kType>(a, b), [](double x, double y, double) { return x + y; }, "add");
      expect(
          hw::sub_pair<kType>(a, b), [](double x, double y, double) { return x - y; }, "sub");
      expect(
          hw::mul_pair<kType>(a, b), [](double x, double y, double) { return x * y; }, "mul");
      expect(
          hw::min_pair<kType>(a, b), [](double x, double y, double) { return std::min(x, y); },
          "min");
      expect(
          hw::max_pair<kType>(a, b), [](double x, double y, double) { return std::max(x, y); },
          "max");
      expect(
          hw::max_nan_pair<kType>(a, b), [](double x, double y, double) { return std::max(x, y); },
          "max.NaN");
    }
  });
}
TEST(Arithmetic, Pairs) {
  check_pairs<Type::f16x2>(Arch::sm_90a);
  check_pairs<Type::bf16x2>(Arch::sm_90a);
  EXPECT_TRUE(refused(Arch::sm_80, [] { hw::add_pair<Type::bf16x2>(1, 2); }));
  EXPECT_FALSE(refused(Arch::sm_80, [] { hw::fma_pair<Type::bf16x2>(1, 2, 3); }));
  // -2 in the low half, 3 in the high one.
  EXPECT_EQ(hw::fma_relu_pair<Type::f16x2>(0x4200c000, 0x3c003c00, 0), 0x42000000u);
  EXPECT_EQ(hw::fma_pair<Type::f16x2>(0x7c000000, 0, 0), 0x7fff0000u);  // infinity times 0
  EXPECT_EQ(hw::max_pair<Type::bf16x2>(0x7fc03f80, 0x40007fc0), 0x40003f80u);
  EXPECT_EQ(hw::max_nan_pair<Type::bf16x2>(0x7fc03f80, 0x40007fc0), 0x7fff7fffu);
}

TEST(Arithmetic, Approximations) {
  for (const Arch arch : kArchs) {
    Stream stream = simulated(arch);
    run(stream, {.block = {1}}, [&](sim::Thread&) {
      EXPECT_EQ(hw::ex2_approx(-3.0f), 0.125f);
      EXPECT_EQ(hw::lg2_approx(8.0f), 3.0f);
      EXPECT_EQ(hw::rcp_approx(-4.0f), -0.25f);
      EXPECT_EQ(hw::rsqrt_approx(16.0f), 0.25f);
      EXPECT_EQ(hw::sqrt_approx(16.0f), 4.0f);
      EXPECT_EQ(hw::sin_approx(0.0f), 0.0f);
      EXPECT_EQ(hw::cos_approx(0.0f), 1.0f);
      EXPECT_NEAR(hw::tanh_approx(0.5f), std::tanh(0.5), 1e-6);
      EXPECT_EQ(hw::ex2_approx(-140.0f), 0x1p-140f);
      EXPECT_EQ(hw::ex2_approx_ftz(-140.0f), 0.0f);
      EXPECT_EQ(hw::rcp_approx_ftz(0x1p-140f), kInfinity);
      EXPECT_EQ(hw::ex2_approx_f16x2(0x4000bc00), 0x44003800u);  // 2, -1 -> 4, 0.5
    });
    EXPECT_EQ(simulator_report(stream).counters.mufu, 13u);
  }
  on(Arch::sm_90a, [] {
    EXPECT_EQ(hw::ex2_approx_ftz_bf16x2(0x4000bf80), 0x40803f00u);
    EXPECT_EQ(hw::tanh_approx_bf16x2(0x00008000), 0x00008000u);
    EXPECT_EQ(hw::tanh_approx_f16x2(0x7c00fc00), 0x3c00bc00u);
  });
  EXPECT_TRUE(refused(Arch::sm_89, [] { hw::ex2_approx_ftz_bf16x2(0); }));
}

TEST(Arithmetic, ConversionsOfPairs) {
  on(Arch::sm_90a, [] {
    EXPECT_EQ(hw::cvt_bf16x2(1.0f, -2.0f), 0xc0003f80u);
    EXPECT_EQ(hw::cvt_f16x2(1.0f, -2.0f), 0xc0003c00u);
    EXPECT_EQ((hw::cvt_bf16x2<Rounding::rn, true>(1.0f, -2.0f)), 0x00003f80u);
    const float between = 1.0f + 0x1.8p-8f, f16_between = 1.0f + 0x1.8p-11f;
    EXPECT_EQ(hw::cvt_bf16(between), 0x3f81);
    EXPECT_EQ(hw::cvt_bf16<Rounding::rz>(between), 0x3f80);
    EXPECT_EQ(hw::cvt_f16(f16_between), 0x3c01);
    EXPECT_EQ(hw::cvt_f16<Rounding::rz>(f16_between), 0x3c00);
    EXPECT_EQ(hw::cvt_f32_f16(0xc200), -3.0f);
    EXPECT_EQ(hw::cvt_f32_bf16(0xc040), -3.0f);
    EXPECT_EQ(hw::cvt_rna_tf32(1.0f + 0x1p-11f), bits(1.0f + 0x1p-10f));  // a tie
    EXPECT_EQ(hw::cvt_tf32(1.0f + 0x1p-11f), bits(1.0f));
    EXPECT_EQ(hw::cvt_tf32<Rounding::rz>(1.0f + 0x1.8p-11f), bits(1.0f));
    EXPECT_EQ(hw::cvt_fp8x2<Type::e4m3>(1.0f, -448.0f), 0xfe38);
    EXPECT_EQ(hw::cvt_fp8x2<Type::e5m2>(1.0f, 1e9f), 0x7b3c);
    EXPECT_EQ((hw::cvt_fp8x2<Type::e4m3, true>(-1.0f, 2.0f)), 0x4000);
    EXPECT_EQ(hw::cvt_fp8x2_f16x2<Type::e4m3>(0xc0003c00), 0xc038);
    EXPECT_EQ(hw::cvt_f16x2_fp8x2<Type::e4m3>(0xc038), 0xc0003c00u);
    EXPECT_EQ(hw::cvt_f16x2_fp8x2<Type::e5m2>(0xc03c), 0xc0003c00u);
    EXPECT_EQ(hw::cvt_f16x2_fp8x2_upper<Type::e4m3>(0xc0380000), 0xc0003c00u);
  });
  EXPECT_TRUE(refused(Arch::sm_80, [] { hw::cvt_fp8x2<Type::e4m3>(0, 0); }));
  EXPECT_FALSE(refused(Arch::sm_89, [] { hw::cvt_fp8x2<Type::e4m3>(0, 0); }));
  EXPECT_TRUE(refused(Arch::sm_89, [] { hw::cvt_tf32(0); }));
}

TEST(Arithmetic, ConversionsOfIntegers) {
  using hw::IntegerRounding;
  EXPECT_EQ(hw::cvt_s32(2.5f), 2);
  EXPECT_EQ(hw::cvt_s32(-3.5f), -4);
  EXPECT_EQ(hw::cvt_s32<IntegerRounding::rzi>(-3.9f), -3);
  EXPECT_EQ(hw::cvt_s32<IntegerRounding::rmi>(-3.1f), -4);
  EXPECT_EQ(hw::cvt_s32<IntegerRounding::rpi>(3.1f), 4);
  EXPECT_EQ(hw::cvt_s32(1e20f), INT32_MAX);
  EXPECT_EQ(hw::cvt_s32(std::nanf("")), 0);
  EXPECT_EQ(hw::cvt_u32(-5.0f), 0u);
  EXPECT_EQ(hw::cvt_u32(4e9f), 4000000000u);
  EXPECT_EQ(hw::cvt_s8(-200.0f), -128);
  EXPECT_EQ(hw::cvt_u8(300.0f), 255);
  EXPECT_EQ(hw::cvt_f32(-16777217), -16777216.0f);
  EXPECT_EQ(hw::cvt_f32(0xffffffffu), 0x1p32f);
  EXPECT_EQ(hw::cvt_pack_s8(1, -1, hw::cvt_pack_s8(300, -300)), 0x807fff01u);
}

}  // namespace
}  // namespace halftone::test
