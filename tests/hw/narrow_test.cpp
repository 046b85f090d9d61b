// The smaller instructions of sm_100a and sm_120a: conversions to and from FP4, FP6 and UE8M0,
// packed FP32 arithmetic, FP32 reductions over a warp, ldmatrix and stmatrix of narrow elements.
#include <cfenv>
#include <cmath>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "hw/convert/convert_narrow.h"
#include "hw/f32x2.h"
#include "hw/memory.h"
#include "hw/mma/ldmatrix_narrow.h"
#include "hw/redux_f32.h"
#include "hw/thread.h"
#include "sim/kernels.h"

namespace halftone::test {
namespace {

using hw::Relu;
using hw::Type;

template <class Body>
SimulatorReport on(Arch arch, uint32_t threads, const Body& body) {
  return violations({.block = {threads}, .shared_bytes = 4096}, body, {}, arch);
}

// The nearest of a format's numbers, ties to the even code, by trying all.
uint8_t nearest(float x, int codes, float (*decode)(uint8_t)) {
  const auto sign = static_cast<uint8_t>(std::signbit(x) ? codes : 0);
  int best = 0;
  for (int code = 1; code < codes; ++code) {
    const double nearer = std::fabs(double{std::fabs(x)} - decode(static_cast<uint8_t>(code))) -
                          std::fabs(double{std::fabs(x)} - decode(static_cast<uint8_t>(best)));
    if (nearer < 0 || (nearer == 0 && code % 2 == 0)) best = code;
  }
  return static_cast<uint8_t>(sign | best);
}
float e2m1(uint8_t code) { return decode_e2m1(code); }
float e2m3(uint8_t code) {
  const int e = code >> 3 & 3, f = code & 7;
  return e == 0 ? static_cast<float>(f) / 8 : std::ldexp(1 + static_cast<float>(f) / 8, e - 1);
}
float e3m2(uint8_t code) {
  const int e = code >> 2 & 7, f = code & 3;
  return e == 0 ? static_cast<float>(f) / 16 : std::ldexp(1 + static_cast<float>(f) / 4, e - 3);
}

TEST(ConvertNarrow, RoundsToTheNearest) {
  for (const Arch arch : {Arch::sm_100a, Arch::sm_120a}) {
    const SimulatorReport report = on(arch, 1, [](sim::Thread&) {
      std::mt19937 random(1);
      for (int i = 0; i < 20000; ++i) {
        // All ties and their neighbours are multiples of 1/64.
        const float x = static_cast<float>(static_cast<int>(random() % 4097) - 2048) / 64;
        const float y = static_cast<float>(static_cast<int>(random() % 65537) - 32768) / 2048;
        ASSERT_EQ(hw::cvt_e2m1x2(x, y), nearest(x, 8, e2m1) | nearest(y, 8, e2m1) << 4) << x;
        ASSERT_EQ(hw::cvt_fp6x2<Type::e2m3>(x, y), nearest(x, 32, e2m3) | nearest(y, 32, e2m3) << 8)
            << x << ' ' << y;
        ASSERT_EQ(hw::cvt_fp6x2<Type::e3m2>(y, x), nearest(y, 32, e3m2) | nearest(x, 32, e3m2) << 8)
            << x << ' ' << y;
        const uint32_t halves = encode_f16(x) | uint32_t{encode_f16(y)} << 16;
        ASSERT_EQ(hw::cvt_e2m1x2_f16x2(halves),
                  nearest(x, 8, e2m1) | nearest(decode_f16(encode_f16(y)), 8, e2m1) << 4);
      }
    });
    EXPECT_TRUE(report.clean()) << to_string(report, false);
  }
}

TEST(ConvertNarrow, EveryCodeComesBack) {
  const SimulatorReport report = on(Arch::sm_120a, 1, [](sim::Thread&) {
    for (uint32_t pair = 0; pair < 256; ++pair) {
      const auto byte = static_cast<uint8_t>(pair);
      const uint32_t halves = hw::cvt_f16x2_e2m1x2(byte);
      EXPECT_EQ(decode_f16(static_cast<uint16_t>(halves)), decode_e2m1(pair & 15));
      EXPECT_EQ(decode_f16(static_cast<uint16_t>(halves >> 16)), decode_e2m1(byte >> 4));
      EXPECT_EQ(hw::cvt_e2m1x2_f16x2(halves), byte);
      const auto powers = static_cast<uint16_t>(pair | (255 - pair) << 8);
      const uint32_t bf16 = hw::cvt_bf16x2_ue8m0x2(powers);
      EXPECT_EQ(bf16 & 0xffff, pair == 255 ? 0x7fffu : pair == 0 ? 0x40u : pair << 7);
      using enum hw::PowerRounding;
      using enum hw::PowerOverflow;
      EXPECT_EQ((hw::cvt_ue8m0x2_bf16x2<rp, finite>(bf16)), powers);
      EXPECT_EQ((hw::cvt_ue8m0x2_bf16x2<rz, nan>(bf16)), powers);
    }
    for (uint32_t code = 0; code < 64; ++code) {
      const auto pair = static_cast<uint16_t>(code | (63 - code) << 8);
      const float value = (code & 32 ? -1 : 1) * e3m2(static_cast<uint8_t>(code & 31));
      const uint32_t halves = hw::cvt_f16x2_fp6x2<Type::e3m2>(pair);
      EXPECT_EQ(decode_f16(static_cast<uint16_t>(halves)), value);
      const uint32_t other = hw::cvt_f16x2_fp6x2<Type::e2m3, Relu::yes>(pair);
      EXPECT_EQ(decode_f16(static_cast<uint16_t>(other)),
                code & 32 ? 0.0f : e2m3(static_cast<uint8_t>(code)));
    }
    const float infinity = std::numeric_limits<float>::infinity();
    using enum hw::PowerRounding;
    using enum hw::PowerOverflow;
    EXPECT_EQ((hw::cvt_ue8m0x2<rp, finite>(1.5f, infinity)), 0xfe80);
    EXPECT_EQ((hw::cvt_ue8m0x2<rp, nan>(0x1.8p127f, infinity)), 0xffff);
    EXPECT_EQ((hw::cvt_ue8m0x2<rz, nan>(0x1.8p127f, 1.99f)), 0x7ffe);
    EXPECT_EQ((hw::cvt_e2m1x2<Relu::yes>(-3.0f, infinity)), 0x70);
  });
  EXPECT_TRUE(report.clean()) << to_string(report, false);
}

// Against the host's arithmetic in each rounding mode.
template <hw::Rounding rounding>
void check_rounding(int mode) {
  const SimulatorReport report = on(Arch::sm_100a, 1, [&](sim::Thread&) {
    std::mt19937 random(3);
    const auto any = [&] {
      auto bits = static_cast<uint32_t>(random());
      // A third near each other, a third tiny, a third anything.
      if (bits % 3 == 0) bits = (bits & 0x807fffff) | (120 + bits / 7 % 12) << 23;
      if (bits % 3 == 1) bits = (bits & 0x807fffff) | (bits / 7 % 30) << 23;
      return std::bit_cast<float>(bits);
    };
    for (int i = 0; i < 20000; ++i) {
      const hw::F32x2 a{any(), any()}, b{any(), any()}, c{any(), any()};
      const hw::F32x2 got[] = {hw::add_f32x2<rounding>(a, b), hw::sub_f32x2<rounding>(a, b),
                               hw::mul_f32x2<rounding>(a, b), hw::fma_f32x2<rounding>(a, b, c)};
      volatile float x = a.x, y = b.x, z = c.x;
      std::fesetround(mode);
      volatile float sum = x + y, difference = x - y, product = x * y;
      volatile float fused = std::fma(x, y, z);
      std::fesetround(FE_TONEAREST);
      const float want[] = {sum, difference, product, fused};
      for (int j = 0; j < 4; ++j) {
        const auto bits = std::bit_cast<uint32_t>(std::isnan(want[j]) ? NAN : want[j]);
        const auto have = std::bit_cast<uint32_t>(std::isnan(got[j].x) ? NAN : got[j].x);
        ASSERT_EQ(have, bits) << j << ": " << a.x << ' ' << b.x << ' ' << c.x;
      }
    }
  });
  EXPECT_TRUE(report.clean()) << to_string(report, false);
}

TEST(F32x2, EveryRounding) {
  check_rounding<hw::Rounding::rn>(FE_TONEAREST);
  check_rounding<hw::Rounding::rz>(FE_TOWARDZERO);
  check_rounding<hw::Rounding::rm>(FE_DOWNWARD);
  check_rounding<hw::Rounding::rp>(FE_UPWARD);
}

TEST(F32x2, FlushesSubnormals) {
  const SimulatorReport report = on(Arch::sm_120a, 1, [](sim::Thread&) {
    const auto tiny = std::bit_cast<float>(0x80000001u);
    const auto flushed = hw::add_f32x2<hw::Rounding::rn, hw::Subnormals::ftz>({tiny, 1}, {tiny, 2});
    EXPECT_EQ(std::bit_cast<uint32_t>(flushed.x), 0x80000000u);
    EXPECT_EQ(flushed.y, 3.0f);
    const auto kept = hw::mul_f32x2({0x1p-100f, tiny}, {0x1p-40f, 1});
    EXPECT_EQ(kept.x, 0x1p-140f);
    EXPECT_EQ(kept.y, tiny);
    const auto zero =
        hw::mul_f32x2<hw::Rounding::rn, hw::Subnormals::ftz>({0x1p-100f, 1}, {-0x1p-40f, 1});
    EXPECT_EQ(std::bit_cast<uint32_t>(zero.x), 0x80000000u);
  });
  EXPECT_TRUE(report.clean()) << to_string(report, false);
}

TEST(ReduxF32, MinimumAndMaximum) {
  const SimulatorReport report = on(Arch::sm_100a, 32, [](sim::Thread& me) {
    using hw::Magnitude;
    using hw::NanWins;
    const float mine = me.lane == 7 ? NAN : static_cast<float>((me.lane * 13) % 32) - 20;
    EXPECT_EQ(hw::redux_max_f32(mine), 11.0f);
    EXPECT_EQ(hw::redux_min_f32(mine), -20.0f);
    EXPECT_EQ((hw::redux_max_f32<Magnitude::abs>(mine)), 20.0f);
    EXPECT_EQ((hw::redux_min_f32<Magnitude::abs>(mine)), 0.0f);
    EXPECT_TRUE(std::isnan((hw::redux_max_f32<Magnitude::value, NanWins::yes>(mine))));
    if (me.lane < 4) {
      EXPECT_EQ(hw::redux_max_f32(static_cast<float>(me.lane), 0xf), 3.0f);
      EXPECT_EQ(std::signbit(hw::redux_max_f32(me.lane == 2 ? 0.0f : -0.0f, 0xf)), false);
    }
  });
  EXPECT_TRUE(report.clean()) << to_string(report, false);
}

// 16 rows of 16 elements, element (row, column) = unique in its bits; packed as the format says.
void fill_rows(sim::Thread& me, int bits, uint32_t base) {
  if (me.lane >= 32) return;
  uint8_t row[16] = {};
  for (uint32_t column = 0; column < 16; ++column) {
    const uint32_t value = (me.lane * 16 + column * 7 + me.lane / 3) & ((1u << bits) - 1);
    for (int bit = 0; bit < bits; ++bit) {
      const uint32_t at = column * static_cast<uint32_t>(bits) + static_cast<uint32_t>(bit);
      if (value >> bit & 1) row[at / 8] |= static_cast<uint8_t>(1 << at % 8);
    }
  }
  for (uint32_t at = 0; at < 16; at += 4) {
    uint32_t word;
    std::memcpy(&word, row + at, 4);
    hw::store_shared(hw::SharedAddress{base + me.lane * 16 + at}, word);
  }
}
uint32_t element(uint32_t row, uint32_t column, int bits) {
  return (row * 16 + column * 7 + row / 3) & ((1u << bits) - 1);
}

TEST(LdmatrixNarrow, SpreadsFp4AndFp6IntoBytes) {
  const SimulatorReport report = on(Arch::sm_120a, 32, [](sim::Thread& me) {
    const uint32_t base = hw::shared_memory_base().value;
    const auto check = [&](auto format, int bits) {
      fill_rows(me, bits, base);
      sim::warp_sync(sim::kFullMask, std::source_location::current());
      uint32_t r[4];
      hw::ldmatrix_m8n16<decltype(format)::value>(r, {base + me.lane * 16});
      for (uint32_t reg = 0; reg < 4; ++reg) {
        for (uint32_t e = 0; e < 4; ++e) {
          EXPECT_EQ(r[reg] >> 8 * e & 0xff,
                    element(reg * 8 + me.lane / 4, me.lane % 4 * 4 + e, bits));
        }
      }
      sim::warp_sync(sim::kFullMask, std::source_location::current());
    };
    check(std::integral_constant<hw::RowFormat, hw::RowFormat::b4x16_p64>{}, 4);
    check(std::integral_constant<hw::RowFormat, hw::RowFormat::b6x16_p32>{}, 6);
  });
  EXPECT_TRUE(report.clean()) << to_string(report, false);
}

TEST(LdmatrixNarrow, TheTransposingFormsWorkAndSayThatTheyAreUnverified) {
  const SimulatorReport report = on(Arch::sm_120a, 32, [](sim::Thread& me) {
    const uint32_t base = hw::shared_memory_base().value;
    fill_rows(me, 8, base);
    sim::warp_sync(sim::kFullMask, std::source_location::current());
    uint32_t r[4];
    hw::ldmatrix_m16n16_trans<hw::RowFormat::b8>(r, {base + me.lane * 16});
    for (uint32_t reg = 0; reg < 4; ++reg) {
      for (uint32_t j = 0; j < 4; ++j) {
        const uint32_t row = reg / 2 * 16 + me.lane % 4 * 4 + j % 2 + reg % 2 * 2;
        EXPECT_EQ(r[reg] >> 8 * j & 0xff, element(row, me.lane / 4 + j / 2 * 8, 8));
      }
    }
    // What stmatrix stores is its input, transposed: the rows that ldmatrix read, two apart.
    uint32_t out[1] = {r[0]};
    hw::stmatrix_m16n8_trans({base + 1024 + me.lane % 8 * 16}, out);
    sim::warp_sync(sim::kFullMask, std::source_location::current());
    for (uint32_t row = 0; row < 8; ++row) {
      const uint32_t from = row / 2 * 4 + row % 2;
      EXPECT_EQ(hw::load_shared<uint8_t>({base + 1024 + row * 16 + me.lane % 16}),
                element(from, me.lane % 16, 8));
    }
  });
  ASSERT_EQ(report.violations.size(), 2u) << to_string(report, false);
  for (const auto& violation : report.violations) {
    EXPECT_EQ(violation.rule, "ldmatrix.unverified");
    EXPECT_EQ(violation.level, SimulatorViolation::Level::warning);
  }
}

}  // namespace
}  // namespace halftone::test
