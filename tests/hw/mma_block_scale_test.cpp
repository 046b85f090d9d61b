// mma.sync of FP8, FP6 and FP4 on the simulated sm_120a: every pair of types, every scale selector,
// against FP64.
#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "hw/mma/mma_block_scale.h"
#include "hw/thread.h"
#include "sim/kernels.h"
#include "sim/numerics/convert.h"
#include "tile/fragment.h"

namespace halftone::test {
namespace {

using hw::Type;

double value_of(Type type, uint32_t code) {
  const auto byte = static_cast<uint8_t>(code);
  switch (type) {
    case Type::e4m3:
    case Type::ue4m3:
      return decode_e4m3(byte);
    case Type::e5m2:
      return decode_e5m2(byte);
    case Type::e2m3:
      return sim::decode_e2m3(byte);
    case Type::e3m2:
      return sim::decode_e3m2(byte);
    case Type::ue8m0:
      return decode_ue8m0(byte);
    default:
      return decode_e2m1(byte);
  }
}

// Matrices as the test has them: A [16, k], B [8, k], C [16, 8], scales of blocks along k.
struct Product {
  Type a_type, b_type, scale_type = Type::ue8m0;
  int k, blocks = 0;
  std::vector<uint8_t> a, b, a_scales, b_scales;
  float c[16][8], d[16][8];

  Product(Type ta, Type tb, int width, int scales, Type scale, uint32_t seed)
      : a_type(ta), b_type(tb), scale_type(scale), k(width), blocks(scales) {
    std::mt19937 random(seed);
    const auto fill = [&](std::vector<uint8_t>& codes, Type type, int rows) {
      codes.resize(static_cast<size_t>(rows * k));
      for (uint8_t& code : codes) {
        do {
          code = static_cast<uint8_t>(random() & ((1u << hw::bits_of(type)) - 1));
        } while (!std::isfinite(value_of(type, code)));
      }
    };
    fill(a, a_type, 16), fill(b, b_type, 8);
    const auto fill_scales = [&](std::vector<uint8_t>& codes, int rows) {
      codes.resize(static_cast<size_t>(rows * blocks));
      for (uint8_t& code : codes) {
        code = static_cast<uint8_t>(scale == Type::ue8m0 ? 120 + random() % 15 : random() % 0x7f);
      }
    };
    fill_scales(a_scales, 16), fill_scales(b_scales, 8);
    for (auto& row : c) {
      for (float& x : row) x = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 8;
    }
  }
  double scaled(const std::vector<uint8_t>& codes, const std::vector<uint8_t>& scales, Type type,
                int row, int at) const {
    const double value = value_of(type, codes[static_cast<size_t>(row * k + at)]);
    if (blocks == 0) return value;
    return value *
           value_of(scale_type, scales[static_cast<size_t>(row * blocks + at * blocks / k)]);
  }
  // The largest error in units of its bound: k + 1 terms cut off at 2^-25 of the largest, the sum
  // at 2^-23 (FP16: rounded at 2^-11).
  double worst_error(bool half) const {
    double worst = 0;
    for (int m = 0; m < 16; ++m) {
      for (int n = 0; n < 8; ++n) {
        double exact = c[m][n], size = std::fabs(exact);
        for (int at = 0; at < k; ++at) {
          const double term =
              scaled(a, a_scales, a_type, m, at) * scaled(b, b_scales, b_type, n, at);
          exact += term, size += std::fabs(term);
        }
        const double bound = size * ((k + 1) * 0x1p-25 + (half ? 0x1p-11 : 0x1p-23));
        worst = std::max(worst, std::fabs(d[m][n] - exact) / bound);
      }
    }
    return worst;
  }
};

// What a lane holds of the product. In kinds f8f6f4 and mxf8f6f4 FP4 lies in bits 5:2 of a byte.
struct Fragment {
  uint32_t a[4] = {}, b[2] = {}, a_scales = 0, b_scales = 0;
  float c[4], d[4];

  Fragment(const Product& p, int lane, int a_byte, int a_thread, int b_byte, int b_thread) {
    const int bits = p.k == 64 ? 4 : 8, each = 32 / bits;
    const auto place = [&](Type type, uint8_t code) {
      return uint32_t{code} << (bits == 8 && type == Type::e2m1 ? 2 : 0);
    };
    for (int reg = 0; reg < 4; ++reg) {
      for (int e = 0; e < each; ++e) {  // PTX 9.7.14.5: groups of lane / 4, threads of lane % 4
        const int row = lane / 4 + reg % 2 * 8, at = lane % 4 * each + e + reg / 2 * 4 * each;
        a[reg] |= place(p.a_type, p.a[static_cast<size_t>(row * p.k + at)]) << e * bits;
        if (reg >= 2) continue;
        const int b_at = lane % 4 * each + e + reg * 4 * each;
        b[reg] |= place(p.b_type, p.b[static_cast<size_t>(lane / 4 * p.k + b_at)]) << e * bits;
      }
    }
    for (int i = 0; i < 4; ++i) c[i] = p.c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
    // Bytes that the instruction must not look at hold NaN.
    a_scales = b_scales = 0xffffffff;
    for (int j = 0; j < p.blocks; ++j) {
      if (lane % 4 / 2 == a_thread) {
        const int row = lane / 4 + lane % 2 * 8;
        const uint32_t shift = static_cast<uint32_t>(8 * (a_byte + j));
        a_scales &= ~(0xffu << shift);
        a_scales |= uint32_t{p.a_scales[static_cast<size_t>(row * p.blocks + j)]} << shift;
      }
      if (lane % 4 == b_thread) {
        const uint32_t shift = static_cast<uint32_t>(8 * (b_byte + j));
        b_scales &= ~(0xffu << shift);
        b_scales |= uint32_t{p.b_scales[static_cast<size_t>(lane / 4 * p.blocks + j)]} << shift;
      }
    }
  }
  void keep(Product& p, int lane) const {
    for (int i = 0; i < 4; ++i) p.d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = d[i];
  }
};

template <class Instruction>
void run_warp(Product& p, const Instruction& instruction, int a_byte = 0, int a_thread = 0,
              int b_byte = 0, int b_thread = 0) {
  Stream stream = simulated(Arch::sm_120a, {}, 1);
  run(stream, {.grid = {1}, .block = {32}}, [&](sim::Thread& me) {
    const int lane = static_cast<int>(me.lane);
    Fragment f(p, lane, a_byte, a_thread, b_byte, b_thread);
    instruction(f);
    f.keep(p, lane);
  });
}

template <Type a, Type b>
void check_pair(uint32_t seed) {
  Product p(a, b, 32, 0, Type::ue8m0, seed);
  run_warp(p, [](Fragment& f) { hw::mma_f8f6f4<a, b>(f.d, f.a, f.b, f.c); });
  EXPECT_LE(p.worst_error(false), 1.0);
  run_warp(p, [](Fragment& f) {
    uint32_t c[2], d[2];
    for (int i = 0; i < 2; ++i) {
      c[i] = encode_f16(f.c[2 * i]) | uint32_t{encode_f16(f.c[2 * i + 1])} << 16;
    }
    hw::mma_f8f6f4<a, b>(d, f.a, f.b, c);
    for (int i = 0; i < 4; ++i) {
      const float value = decode_f16(static_cast<uint16_t>(d[i / 2] >> 16 * (i % 2)));
      // E5M2 overflows FP16: what the FP32 sum says must then be beyond it.
      f.d[i] = std::isfinite(value) ? value : f.d[i];
    }
  });
  if (a != Type::e5m2 && b != Type::e5m2 && !(a == Type::e4m3 && b == Type::e4m3)) {
    EXPECT_LE(p.worst_error(true), 1.0);
  }
  Product scaled(a, b, 32, 1, Type::ue8m0, seed + 1);
  run_warp(
      scaled,
      [](Fragment& f) {
        hw::mma_mxf8f6f4<a, b>(f.d, f.a, f.b, f.c, f.a_scales, f.b_scales, hw::ScaleAt<1, 1>{},
                               hw::ScaleAt<2, 3>{});
      },
      1, 1, 2, 3);
  EXPECT_LE(scaled.worst_error(false), 1.0);
}
template <Type a>
void check_row(uint32_t seed) {
  check_pair<a, Type::e4m3>(seed), check_pair<a, Type::e5m2>(seed + 2);
  check_pair<a, Type::e2m3>(seed + 4), check_pair<a, Type::e3m2>(seed + 6);
  check_pair<a, Type::e2m1>(seed + 8);
}

TEST(MmaF8f6f4, EveryPairOfTypes) {
  check_row<Type::e4m3>(10), check_row<Type::e5m2>(20), check_row<Type::e2m3>(30);
  check_row<Type::e3m2>(40), check_row<Type::e2m1>(50);
}

template <int a_byte, int a_thread, int b_byte, int b_thread>
void check_selectors() {
  using AtA = hw::ScaleAt<a_byte, a_thread>;
  using AtB = hw::ScaleAt<b_byte, b_thread>;
  Product fp8(Type::e4m3, Type::e4m3, 32, 1, Type::ue8m0, 60 + a_byte * 4 + b_thread);
  run_warp(
      fp8,
      [](Fragment& f) {
        hw::mma_mxf8f6f4<Type::e4m3, Type::e4m3>(f.d, f.a, f.b, f.c, f.a_scales, f.b_scales, AtA{},
                                                 AtB{});
      },
      a_byte, a_thread, b_byte, b_thread);
  EXPECT_LE(fp8.worst_error(false), 1.0);
  if constexpr (a_byte % 2 == 0 && b_byte % 2 == 0) {
    Product fp4(Type::e2m1, Type::e2m1, 64, 2, Type::ue8m0, 80 + a_byte * 4 + b_thread);
    run_warp(
        fp4,
        [](Fragment& f) { hw::mma_mxf4(f.d, f.a, f.b, f.c, f.a_scales, f.b_scales, AtA{}, AtB{}); },
        a_byte, a_thread, b_byte, b_thread);
    EXPECT_LE(fp4.worst_error(false), 1.0);
    run_warp(
        fp4,
        [](Fragment& f) {
          hw::mma_mxf4nvf4<Type::ue8m0>(f.d, f.a, f.b, f.c, f.a_scales, f.b_scales, AtA{}, AtB{});
        },
        a_byte, a_thread, b_byte, b_thread);
    EXPECT_LE(fp4.worst_error(false), 1.0);
  }
  if constexpr (a_byte == 0 && b_byte == 0) {
    Product fp4(Type::e2m1, Type::e2m1, 64, 4, Type::ue4m3, 90 + b_thread);
    run_warp(
        fp4,
        [](Fragment& f) {
          hw::mma_mxf4nvf4<Type::ue4m3>(f.d, f.a, f.b, f.c, f.a_scales, f.b_scales, AtA{}, AtB{});
        },
        a_byte, a_thread, b_byte, b_thread);
    EXPECT_LE(fp4.worst_error(false), 1.0);
    // A wrong scale must show.
    fp4.a_scales[5 * 4 + 2] ^= 0x20;
    EXPECT_GT(fp4.worst_error(false), 100.0);
  }
}

TEST(MmaBlockScale, EverySelector) {
  check_selectors<0, 0, 0, 0>(), check_selectors<0, 1, 0, 1>(), check_selectors<0, 0, 0, 2>();
  check_selectors<0, 1, 0, 3>(), check_selectors<1, 0, 3, 1>(), check_selectors<2, 1, 0, 2>();
  check_selectors<3, 1, 2, 3>(), check_selectors<2, 0, 2, 1>();
}

TEST(MmaBlockScale, OtherArchitecturesRefuseIt) {
  const SimulatorReport report = violations(
      {.block = {32}},
      [](sim::Thread&) {
        float d[4] = {};
        const uint32_t a[4] = {}, b[2] = {};
        hw::mma_mxf4(d, a, b, d, 0, 0, hw::ScaleAt<0, 0>{}, hw::ScaleAt<0, 0>{});
      },
      {}, Arch::sm_100a);
  ASSERT_EQ(report.violations.size(), 1u);
  EXPECT_EQ(report.violations[0].level, SimulatorViolation::Level::fatal);
}

}  // namespace
}  // namespace halftone::test
