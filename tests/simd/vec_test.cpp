#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "formats/codec.h"
#include "halftone/device.h"
#include "simd/vec_level.h"

namespace halftone {
namespace {

using test::VecFunctions;

// What this machine can run.
std::vector<std::pair<std::string, VecFunctions>> levels() {
  std::vector<std::pair<std::string, VecFunctions>> all{
      {"baseline", cpu_baseline::vec_functions()}};
#if defined(__x86_64__)
  const CpuLevel most = detected_cpu_level();
  if (most >= CpuLevel::avx2) all.emplace_back("avx2", cpu_avx2::vec_functions());
  if (most >= CpuLevel::avx512) all.emplace_back("avx512", cpu_avx512::vec_functions());
  if (most >= CpuLevel::avx512_bf16) {
    all.emplace_back("avx512_bf16", cpu_avx512_bf16::vec_functions());
  }
#endif
  return all;
}

constexpr int64_t kChunk = 1 << 16;

// Calls body(values) with chunks that cover every `step`-th FP32 code; all of them when
// HALFTONE_LONG_TESTS is set.
template <class Body>
void over_floats(uint64_t step, const Body& body) {
  if (std::getenv("HALFTONE_LONG_TESTS") != nullptr) step = 1;
  std::vector<float> values(kChunk);
  for (uint64_t code = 0; code < uint64_t{1} << 32;) {
    for (float& v : values) {
      v = std::bit_cast<float>(static_cast<uint32_t>(code));
      code += step;
    }
    body(values);
  }
}

// Codes around every rounding boundary: each pattern of the upper bits with the lower bits just
// below, at and above zero and the midpoint.
std::vector<float> boundary_values(int lower_bits) {
  std::vector<float> values;
  const uint32_t half = 1u << (lower_bits - 1), all = (half << 1) - 1;
  for (uint32_t upper = 0; upper < 1u << (32 - lower_bits); ++upper) {
    for (const uint32_t lower :
         {0u, 1u, half - 1, half, half + 1, all, half / 2, half + half / 2}) {
      values.push_back(std::bit_cast<float>((upper << lower_bits) | lower));
    }
  }
  return values;
}

// Distance in units of the last place of the exact result.
double ulps(float result, double exact) {
  const double spacing = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
  return std::abs(result - exact) / spacing;
}

TEST(Vec, ExpIsWithinTwoUlp) {
  constexpr double kLeast = 0x1p-126, kMost = 0x1.fffffep127;
  std::vector<double> worst(levels().size(), 0.0);
  std::vector<double> exact(kChunk);
  std::vector<float> result(kChunk);
  over_floats(509, [&](const std::vector<float>& x) {
    for (size_t i = 0; i < x.size(); ++i) exact[i] = std::exp(double{x[i]});
    size_t level = 0;
    for (const auto& [name, functions] : levels()) {
      functions.exp(x.data(), result.data(), kChunk);
      for (size_t i = 0; i < x.size(); ++i) {
        if (std::isnan(x[i])) {
          ASSERT_TRUE(std::isnan(result[i])) << name;
        } else if (exact[i] > kMost * (1 + 0x1p-24)) {
          ASSERT_EQ(result[i], INFINITY) << name << ": exp(" << x[i] << ")";
        } else if (exact[i] < kLeast) {
          ASSERT_TRUE(result[i] == 0 || ulps(result[i], exact[i]) <= 2)
              << name << ": exp(" << x[i] << ") = " << result[i];
        } else {
          worst[level] = std::max(worst[level], ulps(result[i], exact[i]));
        }
      }
      ++level;
    }
  });
  for (const double w : worst) EXPECT_LE(w, 2.0);
  RecordProperty("worst_ulp", std::to_string(*std::max_element(worst.begin(), worst.end())));
}

TEST(Vec, ExpDenselyWhereItMatters) {
  // Every FP32 value would take long; [-20, 20] in steps of 2^-15 hits every reduced argument.
  constexpr int64_t kCount = 40 << 15;
  std::vector<float> x(kCount), y(kCount);
  for (int64_t i = 0; i < kCount; ++i)
    x[static_cast<size_t>(i)] = std::ldexp(static_cast<float>(i), -15) - 20;
  for (const auto& [name, functions] : levels()) {
    functions.exp(x.data(), y.data(), kCount);
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      worst = std::max(worst, ulps(y[i], std::exp(double{x[i]})));
    }
    EXPECT_LE(worst, 2.0) << name;
  }
}

TEST(Vec, ExpOfSpecialValues) {
  const std::vector<float> x = {0.0f,      -0.0f,  INFINITY,   -INFINITY, NAN,     88.72283f,
                                88.72284f, 89.0f,  -87.33654f, -87.3366f, -104.0f, -1e38f,
                                1e38f,     1e-40f, 1.0f,       -1.0f};
  for (const auto& [name, functions] : levels()) {
    SCOPED_TRACE(name);
    float y[16];
    functions.exp(x.data(), y, 16);
    EXPECT_EQ(y[0], 1);
    EXPECT_EQ(y[1], 1);
    EXPECT_EQ(y[2], INFINITY);
    EXPECT_EQ(y[3], 0);
    EXPECT_TRUE(std::isnan(y[4]));
    EXPECT_LE(ulps(y[5], std::exp(double{x[5]})), 2);
    EXPECT_EQ(y[7], INFINITY);
    EXPECT_LE(ulps(y[8], std::exp(double{x[8]})), 2);
    EXPECT_EQ(y[9], 0);
    EXPECT_EQ(y[10], 0);
    EXPECT_EQ(y[11], 0);
    EXPECT_EQ(y[12], INFINITY);
    EXPECT_EQ(y[13], 1);
  }
}

template <class Encode>
void expect_narrow(const std::vector<float>& x, void (*narrow)(const float*, uint16_t*, int64_t),
                   const Encode& encode, const std::string& name) {
  std::vector<uint16_t> y(x.size());
  narrow(x.data(), y.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(y[i], encode(x[i])) << name << ": code " << std::hex << std::bit_cast<uint32_t>(x[i]);
  }
}

TEST(Vec, NarrowingEqualsTheCodec) {
  const auto check = [](const std::vector<float>& x) {
    for (const auto& [name, functions] : levels()) {
      expect_narrow(
          x, functions.narrow_bf16, [](float v) { return encode_bf16(v); }, name + " bf16");
      expect_narrow(
          x, functions.narrow_f16, [](float v) { return encode_f16(v); }, name + " f16");
    }
  };
  check(boundary_values(16));  // bf16 drops 16 bits
  check(boundary_values(13));  // f16 drops 13 bits of a normal number
  over_floats(1009, check);
}

TEST(Vec, NarrowingRoundsSubnormalsOfF16) {
  // Every subnormal code of f16, its midpoint to the next and one FP32 step on either side.
  std::vector<float> x;
  for (int code = 0; code < 1024; ++code) {
    const float value = std::ldexp(static_cast<float>(code), -24);
    const float middle = std::ldexp(static_cast<float>(code) + 0.5f, -24);
    for (const float v :
         {value, std::nextafter(value, 1.0f), middle, std::nextafter(middle, 1.0f),
          std::nextafter(middle, 0.0f), -value, -middle, -std::nextafter(middle, 0.0f)}) {
      x.push_back(v);
    }
  }
  for (const auto& [name, functions] : levels()) {
    expect_narrow(
        x, functions.narrow_f16, [](float v) { return encode_f16(v); }, name);
  }
}

TEST(Vec, WideningEqualsTheCodec) {
  std::vector<uint16_t> codes(65536);
  std::iota(codes.begin(), codes.end(), uint16_t{0});
  std::vector<float> y(codes.size());
  for (const auto& [name, functions] : levels()) {
    functions.widen_bf16(codes.data(), y.data(), 65536);
    for (size_t i = 0; i < codes.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(y[i]), std::bit_cast<uint32_t>(decode_bf16(codes[i])))
          << name << " bf16 " << i;
    }
    functions.widen_f16(codes.data(), y.data(), 65536);
    for (size_t i = 0; i < codes.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(y[i]), std::bit_cast<uint32_t>(decode_f16(codes[i])))
          << name << " f16 " << i;
    }
  }
}

TEST(Vec, ReductionsHaveAFixedOrder) {
  for (const auto& [name, functions] : levels()) {
    SCOPED_TRACE(name);
    std::vector<float> x(16);
    for (size_t i = 0; i < 16; ++i) x[i] = std::pow(-3.1f, static_cast<float>(i));
    std::vector<float> lane(x.begin(), x.begin() + functions.lanes);
    for (size_t width = lane.size() / 2; width > 0; width /= 2) {
      for (size_t i = 0; i < width; ++i) lane[i] += lane[i + width];
    }
    EXPECT_EQ(functions.reduce_add(x.data()), lane[0]);
    EXPECT_EQ(functions.reduce_max(x.data()),
              *std::max_element(x.begin(), x.begin() + functions.lanes));
  }
}

TEST(Vec, MaxMinAndFma) {
  const std::vector<float> a = {1, 2, -1, 0, NAN, 3, INFINITY, -INFINITY, 1, 1, 1, 1, 1, 1, 1, 1};
  const std::vector<float> b = {2, 1, -2, -0.0f, 3, NAN, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  for (const auto& [name, functions] : levels()) {
    SCOPED_TRACE(name);
    std::vector<float> y(16);
    functions.max(a.data(), b.data(), y.data(), 16);
    EXPECT_EQ(y[0], 2);
    EXPECT_EQ(y[1], 2);
    EXPECT_EQ(y[2], -1);
    EXPECT_EQ(y[4], 3);  // NaN gives the second operand
    EXPECT_TRUE(std::isnan(y[5]));
    EXPECT_EQ(y[6], INFINITY);
    functions.min(a.data(), b.data(), y.data(), 16);
    EXPECT_EQ(y[0], 1);
    EXPECT_EQ(y[4], 3);
    EXPECT_EQ(y[7], -INFINITY);
    // (1 + e)(1 - e) - 1 = -e^2, lost when the product is rounded by itself.
    const std::vector<float> p(16, 1 + 0x1p-13f), m(16, 1 - 0x1p-13f), c(16, -1.0f);
    functions.fma(p.data(), m.data(), c.data(), y.data(), 16);
    EXPECT_EQ(y[3], name == "baseline" ? 0.0f : -0x1p-26f);
  }
}

TEST(Vec, PartialAccessStaysInside) {
  for (const auto& [name, functions] : levels()) {
    SCOPED_TRACE(name);
    for (int count = 1; count < functions.lanes; ++count) {
      std::vector<float> from(static_cast<size_t>(count), 1.5f), to(32, 7.0f);  // asan watches
      functions.copy_partial_f32(from.data(), to.data(), count);
      for (int i = 0; i < 32; ++i) EXPECT_EQ(to[static_cast<size_t>(i)], i < count ? 1.5f : 7.0f);
      for (const auto copy : {functions.copy_partial_bf16, functions.copy_partial_f16}) {
        std::vector<uint16_t> codes(static_cast<size_t>(count), 0x3c01), out(32, 9);
        copy(codes.data(), out.data(), count);
        for (int i = 0; i < 32; ++i) EXPECT_EQ(out[static_cast<size_t>(i)], i < count ? 0x3c01 : 9);
      }
    }
  }
}

}  // namespace
}  // namespace halftone
