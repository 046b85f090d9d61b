// Conversions against a search through all values of the target format.
#include "sim/numerics/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <functional>
#include <random>
#include <vector>

namespace halftone::sim {
namespace {

// A format as the ascending list of its finite magnitudes: the index is the code.
struct Target {
  const char* name;
  int codes;       // finite, without sign
  int sign_shift;  // of the sign bit
  std::function<float(uint32_t)> decode;
  uint32_t nan, overflow;  // codes of NaN and of what is too large, without sign
  std::function<uint32_t(float)> encode;
};

Target targets(int which) {
  switch (which) {
    case 0:
      return {"f16",
              0x7c00,
              15,
              [](uint32_t c) { return decode_f16(static_cast<uint16_t>(c)); },
              0x7fff,
              0x7c00,
              [](float x) { return cvt_f16(x); }};
    case 1:
      return {"bf16",
              0x7f80,
              15,
              [](uint32_t c) { return decode_bf16(static_cast<uint16_t>(c)); },
              0x7fff,
              0x7f80,
              [](float x) { return cvt_bf16(x); }};
    case 2:
      return {"e4m3",
              0x7f,
              7,
              [](uint32_t c) { return decode_e4m3(static_cast<uint8_t>(c)); },
              0x7f,
              0x7e,
              [](float x) { return cvt_e4m3(x); }};
    case 3:
      return {"e5m2",
              0x7c,
              7,
              [](uint32_t c) { return decode_e5m2(static_cast<uint8_t>(c)); },
              0x7f,
              0x7b,
              [](float x) { return cvt_e5m2(x); }};
    case 4:
      return {"e2m1",
              8,
              3,
              [](uint32_t c) { return decode_e2m1(static_cast<uint8_t>(c)); },
              7,
              7,
              [](float x) { return cvt_e2m1(x); }};
    case 5:
      return {"e2m3",
              32,
              5,
              [](uint32_t c) { return decode_e2m3(static_cast<uint8_t>(c)); },
              0x1f,
              0x1f,
              [](float x) { return cvt_e2m3(x); }};
    default:
      return {"e3m2",
              32,
              5,
              [](uint32_t c) { return decode_e3m2(static_cast<uint8_t>(c)); },
              0x1f,
              0x1f,
              [](float x) { return cvt_e3m2(x); }};
  }
}

// Every code's value, every midpoint, their neighbours, and floats of all exponents.
std::vector<float> samples(const Target& target) {
  std::vector<float> all;
  const auto add = [&](float x) {
    for (const float y : {x, std::nextafter(x, INFINITY), std::nextafter(x, -INFINITY)}) {
      all.push_back(y);
      all.push_back(-y);
    }
  };
  for (int code = 0; code < target.codes; ++code) {
    const double value = target.decode(static_cast<uint32_t>(code));
    const double next = code + 1 < target.codes
                            ? double{target.decode(static_cast<uint32_t>(code + 1))}
                            : 2 * value - target.decode(static_cast<uint32_t>(code - 1));
    add(static_cast<float>(value));
    add(static_cast<float>((value + next) / 2));
  }
  std::mt19937 random(1);
  for (uint32_t exponent = 0; exponent < 256; ++exponent)
    for (int i = 0; i < 64; ++i)
      all.push_back(
          std::bit_cast<float>(static_cast<uint32_t>((random() & 0x807fffffu) | (exponent << 23))));
  for (const float x : {0.0f, INFINITY, std::nanf("")}) all.push_back(x), all.push_back(-x);
  return all;
}

uint32_t nearest(const Target& target, const std::vector<double>& values, float x) {
  if (x != x) return target.nan;
  const uint32_t sign = std::signbit(x) ? 1u << target.sign_shift : 0;
  const double magnitude = std::abs(double{x});
  const size_t last = values.size() - 1;
  // Too large: beyond the midpoint to the next value that the format would have.
  const double step = values[last] - values[last - 1];
  if (magnitude >= values[last] + step / 2) return sign | target.overflow;
  size_t low = 0, high = last;
  while (low < high) {
    const size_t middle = (low + high + 1) / 2;
    (values[middle] <= magnitude ? low : high) = values[middle] <= magnitude ? middle : middle - 1;
  }
  if (low == last) return sign | static_cast<uint32_t>(last);
  const double below = magnitude - values[low], above = values[low + 1] - magnitude;
  const bool up = above < below || (above == below && low % 2 == 1);
  return sign | static_cast<uint32_t>(low + up);
}

TEST(Convert, NearestEvenIsTheNearestCode) {
  for (int which = 0; which < 7; ++which) {
    const Target target = targets(which);
    std::vector<double> values;
    for (int code = 0; code < target.codes; ++code)
      values.push_back(target.decode(static_cast<uint32_t>(code)));
    size_t checked = 0;
    for (const float x : samples(target)) {
      ASSERT_EQ(target.encode(x), nearest(target, values, x))
          << target.name << " of " << x << " (" << std::hex << std::bit_cast<uint32_t>(x) << ")";
      ++checked;
    }
    EXPECT_GT(checked, 16000u);
  }
}

TEST(Convert, TowardsZeroKeepsWhatNearestCannotExceed) {
  std::mt19937 random(2);
  for (int i = 0; i < 1 << 20; ++i) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (x != x || std::isinf(x)) continue;
    const float f16 = decode_f16(cvt_f16(x, Round::zero));
    const float bf16 = decode_bf16(cvt_bf16(x, Round::zero));
    ASSERT_LE(std::abs(f16), std::abs(x));
    ASSERT_LE(std::abs(bf16), std::abs(x));
    // The next code away from zero is too large, or there is none.
    const float f16_next = decode_f16(static_cast<uint16_t>(cvt_f16(x, Round::zero) + 1));
    const float bf16_next = decode_bf16(static_cast<uint16_t>(cvt_bf16(x, Round::zero) + 1));
    ASSERT_TRUE(std::abs(f16_next) > std::abs(x) || std::isinf(f16_next)) << x;
    ASSERT_TRUE(std::abs(bf16_next) > std::abs(x) || std::isinf(bf16_next)) << x;
  }
  EXPECT_EQ(cvt_f16(INFINITY, Round::zero), 0x7c00);
  EXPECT_EQ(cvt_f16(1e30f, Round::zero), 0x7bff);
}

TEST(Convert, ReluAndSaturation) {
  EXPECT_EQ(cvt_f16(-1.0f, Round::nearest_even, true), 0);
  EXPECT_EQ(cvt_f16(-0.0f, Round::nearest_even, true), 0);
  EXPECT_EQ(cvt_f16(-0.0f), 0x8000);
  EXPECT_EQ(cvt_f16(std::nanf(""), Round::nearest_even, true), 0x7fff);
  EXPECT_EQ(cvt_f16(1e6f, Round::nearest_even, false, true), 0x7bff);
  EXPECT_EQ(cvt_f16(-INFINITY, Round::nearest_even, false, true), 0xfbff);
  EXPECT_EQ(cvt_bf16(-2.0f, Round::nearest_even, true), 0);
  EXPECT_EQ(cvt_bf16(3.4e38f), 0x7f80);
  EXPECT_EQ(cvt_bf16(3.4e38f, Round::zero), 0x7f7f);
  EXPECT_EQ(cvt_e4m3(-3.0f, true), 0);
  EXPECT_EQ(cvt_e5m2(-INFINITY), 0xfb);
  EXPECT_EQ(std::bit_cast<uint32_t>(cvt_f32_f16(0xfc01)), 0x7fffffffu);
  EXPECT_EQ(cvt_f32_f16(0xfc00), -INFINITY);
}

TEST(Convert, Tf32) {
  constexpr float kTie = std::bit_cast<float>(0x3f801000u);  // 1 + half a step
  EXPECT_EQ(cvt_tf32(kTie), 0x3f802000u);
  EXPECT_EQ(cvt_tf32(-kTie), 0xbf802000u);
  EXPECT_EQ(cvt_tf32(kTie, RoundTf32::nearest_even), 0x3f800000u);
  EXPECT_EQ(cvt_tf32(kTie, RoundTf32::zero), 0x3f800000u);
  EXPECT_EQ(cvt_tf32(std::bit_cast<float>(0x3f803000u), RoundTf32::nearest_even), 0x3f804000u);
  EXPECT_EQ(cvt_tf32(INFINITY), 0x7f800000u);
  EXPECT_EQ(cvt_tf32(std::nanf(""), RoundTf32::nearest_even), 0x7fffe000u);
  EXPECT_EQ(cvt_tf32(std::bit_cast<float>(0xffc01234u)), 0xffc00000u);
  EXPECT_EQ(cvt_tf32(std::bit_cast<float>(0x7f801234u)), 0x7f800000u);
  EXPECT_EQ(cvt_tf32(INFINITY, RoundTf32::nearest_away, false, true), 0x7f7fe000u);
  EXPECT_EQ(cvt_tf32(std::bit_cast<float>(0x7f7fffffu)), 0x7f800000u);
}

TEST(Convert, IntegersSaturate) {
  using R = RoundInteger;
  EXPECT_EQ(cvt_s32(2.5f, R::nearest_even), 2);
  EXPECT_EQ(cvt_s32(3.5f, R::nearest_even), 4);
  EXPECT_EQ(cvt_s32(-2.5f, R::nearest_even), -2);
  EXPECT_EQ(cvt_s32(-2.5f, R::zero), -2);
  EXPECT_EQ(cvt_s32(-2.5f, R::down), -3);
  EXPECT_EQ(cvt_s32(2.1f, R::up), 3);
  EXPECT_EQ(cvt_s32(3e9f, R::zero), INT32_MAX);
  EXPECT_EQ(cvt_s32(-INFINITY, R::zero), INT32_MIN);
  EXPECT_EQ(cvt_s32(std::nanf(""), R::zero), 0);
  EXPECT_EQ(cvt_u32(-1.0f, R::zero), 0u);
  EXPECT_EQ(cvt_u32(1e20f, R::zero), UINT32_MAX);
  EXPECT_EQ(cvt_s8(127.5f, R::nearest_even), 127);
  EXPECT_EQ(cvt_s8(-1000.0f, R::nearest_even), -128);
  EXPECT_EQ(cvt_u8(256.0f, R::nearest_even), 255);
  EXPECT_EQ(cvt_s8_saturated(-129), -128);
}

TEST(Convert, ScalesRoundUpOrDown) {
  EXPECT_EQ(cvt_ue8m0_up(1.0f), 127);
  EXPECT_EQ(cvt_ue8m0_up(1.0001f), 128);
  EXPECT_EQ(cvt_ue8m0_zero(1.9999f), 127);
  EXPECT_EQ(cvt_ue8m0_up(3.0e38f), 254);
  EXPECT_EQ(cvt_bf16_ue8m0(0), 0x0040);
  EXPECT_EQ(cvt_bf16_ue8m0(255), 0x7fff);
}

}  // namespace
}  // namespace halftone::sim
