// The vector form of tensor-core arithmetic against its definition, at every ISA level.
#include "sim/numerics/mma.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "sim/mma_cases.h"
#include "sim/numerics/mma_decode.h"

namespace halftone::sim {
namespace {

using E = MmaElement;
using A = MmaAccumulator;
using U = MmaUnit;

struct Instruction {
  Arch arch;
  U unit;
  E a, b;
  A accumulator;
  MmaScales scales = MmaScales::none;
};

// Every row of the table of rules, and every way to decode.
const Instruction kInstructions[] = {
    {Arch::sm_80, U::mma_sync, E::bf16, E::bf16, A::f32},
    {Arch::sm_80, U::mma_sync, E::f16, E::f16, A::f32},
    {Arch::sm_80, U::mma_sync, E::f16, E::f16, A::f16},
    {Arch::sm_80, U::mma_sync, E::tf32, E::tf32, A::f32},
    {Arch::sm_80, U::mma_sync, E::s8, E::s8, A::s32},
    {Arch::sm_89, U::mma_sync, E::e4m3, E::e5m2, A::f32},
    {Arch::sm_90a, U::mma_sync, E::bf16, E::bf16, A::f32},
    {Arch::sm_90a, U::mma_sync, E::e4m3, E::e4m3, A::f32},
    {Arch::sm_90a, U::mma_sync, E::e5m2, E::e4m3, A::f32},
    {Arch::sm_90a, U::wgmma, E::bf16, E::bf16, A::f32},
    {Arch::sm_90a, U::wgmma, E::f16, E::f16, A::f32},
    {Arch::sm_90a, U::wgmma, E::f16, E::f16, A::f16},
    {Arch::sm_90a, U::wgmma, E::tf32, E::tf32, A::f32},
    {Arch::sm_90a, U::wgmma, E::e4m3, E::e5m2, A::f32},
    {Arch::sm_90a, U::wgmma, E::e5m2, E::e4m3, A::f16},
    {Arch::sm_90a, U::wgmma, E::u8, E::s8, A::s32},
    {Arch::sm_100a, U::tcgen05, E::bf16, E::bf16, A::f32},
    {Arch::sm_100a, U::tcgen05, E::e2m3, E::e3m2, A::f32},
    {Arch::sm_100a, U::tcgen05, E::e4m3, E::e2m1_container, A::f32, MmaScales::mxf8f6f4},
    {Arch::sm_120a, U::mma_sync, E::e5m2, E::e3m2, A::f32},
    {Arch::sm_120a, U::mma_sync, E::e5m2, E::e5m2, A::f32, MmaScales::mxf8f6f4},
    {Arch::sm_120a, U::mma_sync, E::e2m1, E::e2m1, A::f32, MmaScales::mxf4},
    {Arch::sm_120a, U::mma_sync, E::e2m1, E::e2m1, A::f32, MmaScales::nvf4},
};

std::string name(const Instruction& x) {
  return std::string(halftone::name(x.arch)) +
         (x.unit == U::mma_sync ? " mma.sync "
          : x.unit == U::wgmma  ? " wgmma "
                                : " tcgen05 ") +
         name(x.a) + " x " + name(x.b);
}

int smallest_k(const Instruction& x) {
  return x.scales == MmaScales::mxf4 || x.scales == MmaScales::nvf4 ? 64
                                                                    : 256 / 8 / code_bytes(x.a);
}

std::vector<CpuLevel> levels() {
  std::vector<CpuLevel> all;
  for (int l = 0; l <= static_cast<int>(detected_cpu_level()); ++l)
    all.push_back(static_cast<CpuLevel>(l));
  return all;
}

std::vector<uint8_t> reference(const MmaRule& rule, const MmaCase& x) {
  std::vector<uint8_t> d(x.output_bytes());
  mma_reference(rule, x.tile(d.data()));
  return d;
}

// Outputs that differ, as words of the accumulator.
size_t differences(const std::vector<uint8_t>& x, const std::vector<uint8_t>& y, size_t word) {
  size_t count = 0;
  for (size_t i = 0; i < x.size(); i += word) count += std::memcmp(&x[i], &y[i], word) != 0;
  return count;
}

// More than a million outputs in all: 23 instructions, 10 kinds of data.
TEST(Mma, EveryLevelGivesTheBitsOfTheDefinition) {
  MmaCases cases(1);
#if defined(HALFTONE_SANITIZED)
  constexpr int kRounds = 1;
#else
  constexpr int kRounds = 8;
#endif
  size_t outputs = 0;
  for (const Instruction& instruction : kInstructions) {
    const auto rule = mma_rule(instruction.arch, instruction.unit, instruction.a, instruction.b,
                               instruction.accumulator, instruction.scales);
    ASSERT_TRUE(rule) << name(instruction);
    for (const MmaData data : kMmaData) {
      for (int round = 0; round < kRounds; ++round) {
        // Odd sizes too, and a chain of two instructions.
        const int m = round == 1 ? 19 : 32, n = round == 2 ? 13 : 24;
        const int k = smallest_k(instruction) * (round == 3 ? 2 : 1);
        const MmaCase x =
            cases.make(instruction.a, instruction.b, instruction.accumulator, m, n, k, data);
        const size_t word = x.c.size() / static_cast<size_t>(m * n);
        const auto expected = reference(*rule, x);
        outputs += static_cast<size_t>(m * n);
        for (const CpuLevel level : levels()) {
          std::vector<uint8_t> d(x.output_bytes());
          mma_exact(*rule, x.tile(d.data()), level);
          ASSERT_EQ(differences(expected, d, word), 0u)
              << name(instruction) << ", " << name(data) << ", level " << halftone::name(level);
        }
      }
    }
  }
  EXPECT_TRUE(kRounds < 8 || outputs >= 1000000u) << outputs;
}

// The comparison above means something only where other rules give other bits.
TEST(Mma, OtherRulesGiveOtherBits) {
  MmaCases cases(2);
  const MmaRule hopper = *mma_rule(Arch::sm_90a, U::wgmma, E::bf16, E::bf16, A::f32);
  const MmaCase x = cases.make(E::bf16, E::bf16, A::f32, 64, 64, 16, MmaData::ordinary);
  const auto expected = reference(hopper, x);
  const auto changed = [&](auto change) {
    MmaRule rule = hopper;
    change(rule);
    return differences(expected, reference(rule, x), 4);
  };
  EXPECT_GT(changed([](MmaRule& r) { r.fraction_bits = 24; }), 400u);
  EXPECT_GT(changed([](MmaRule& r) { r.fraction_bits = 26; }), 400u);
  EXPECT_GT(changed([](MmaRule& r) { r.k = 8; }), 400u);
  EXPECT_GT(changed([](MmaRule& r) { r.output = MmaRule::Output::f32_e8m13; }), 4000u);
  // Rounding to nearest, which a sum in FP64 and a conversion give, differs for nearly half.
  std::vector<float> d(64 * 64);
  std::memcpy(d.data(), expected.data(), expected.size());
  size_t nearest_differs = 0;
  for (int i = 0; i < 64; ++i) {
    for (int j = 0; j < 64; ++j) {
      float c;
      std::memcpy(&c, &x.c[static_cast<size_t>(i * 64 + j) * 4], 4);
      double sum = c;
      for (int k = 0; k < 16; ++k) {
        const auto value = [](const std::vector<uint8_t>& codes, int at) {
          uint32_t code = 0;
          std::memcpy(&code, &codes[static_cast<size_t>(at) * 2], 2);
          return static_cast<double>(std::bit_cast<float>(code << 16));
        };
        sum += value(x.a, i * 16 + k) * value(x.b, j * 16 + k);
      }
      nearest_differs += static_cast<float>(sum) != d[static_cast<size_t>(i * 64 + j)];
    }
  }
  EXPECT_GT(nearest_differs, 1000u);
}

float one_output(const MmaRule& rule, E type, std::vector<uint32_t> a, std::vector<uint32_t> b,
                 float c) {
  const int bytes = code_bytes(type);
  std::vector<uint8_t> x(16 * static_cast<size_t>(bytes) * a.size()), y(x.size() / 2);
  for (size_t i = 0; i < a.size(); ++i) {
    std::memcpy(&x[i * static_cast<size_t>(bytes)], &a[i], static_cast<size_t>(bytes));
    std::memcpy(&y[i * static_cast<size_t>(bytes)], &b[i], static_cast<size_t>(bytes));
  }
  float d = 0;
  const auto k = static_cast<int>(a.size());
  const MmaTile tile{1, 1, k, {type, x.data(), k}, {type, y.data(), k}, &c, &d, 1, 1};
  mma_exact(rule, tile);
  return d;
}

// Cases worked out by hand from the rule.
TEST(Mma, RuleByHand) {
  const MmaRule rule = *mma_rule(Arch::sm_90a, U::wgmma, E::bf16, E::bf16, A::f32);
  constexpr uint32_t kOne = 0x3f80, kMinusOne = 0xbf80;
  std::vector<uint32_t> a(16, 0), b(16, 0);
  a[0] = kOne, b[0] = kOne;
  // 2^-24 is kept below 1 with 25 fraction bits; rounded towards zero it leaves 1.
  EXPECT_EQ(one_output(rule, E::bf16, a, b, 0x1p-24f), 1.0f);
  a[1] = kMinusOne, b[1] = kOne;
  EXPECT_EQ(one_output(rule, E::bf16, a, b, 0x1p-25f), 0x1p-25f);
  EXPECT_EQ(one_output(rule, E::bf16, a, b, 0x1p-26f), 0.0f);  // cut off when aligned
  // A zero next to a huge factor does not raise the largest exponent.
  a[1] = 0, b[1] = 0x7000;
  EXPECT_EQ(one_output(rule, E::bf16, a, b, 0x1p-20f), 1 + 0x1p-20f);
  // 0 * infinity is NaN, with the one pattern that the unit writes.
  b[1] = 0x7f80;
  EXPECT_EQ(std::bit_cast<uint32_t>(one_output(rule, E::bf16, a, b, 1)), 0x7fffffffu);
  a[1] = kMinusOne;
  EXPECT_EQ(one_output(rule, E::bf16, a, b, 1), -INFINITY);

  const MmaRule fp8 = *mma_rule(Arch::sm_90a, U::wgmma, E::e4m3, E::e4m3, A::f32);
  std::vector<uint32_t> p(32, 0), q(32, 0);
  p[0] = 0x38, q[0] = 0x38;  // 1
  EXPECT_EQ(one_output(fp8, E::e4m3, p, q, 0x1p-13f), 1 + 0x1p-13f);
  EXPECT_EQ(one_output(fp8, E::e4m3, p, q, 0x1p-14f), 1.0f);
}

// F and the products of one sum, told by 1 - 1 + 2^-F: it is 2^-F within a sum, 2^-(F + 1) is cut
// off, and over two sums the first one's rounding leaves nothing.
TEST(Mma, BitsAndLengthOfEverySum) {
  struct Row {
    Arch arch;
    U unit;
    E type;
    int k, fraction_bits;
  };
  for (const Row& row :
       {Row{Arch::sm_80, U::mma_sync, E::bf16, 8, 24}, Row{Arch::sm_80, U::mma_sync, E::f16, 8, 24},
        Row{Arch::sm_80, U::mma_sync, E::tf32, 4, 24},
        Row{Arch::sm_89, U::mma_sync, E::e4m3, 16, 13},
        Row{Arch::sm_90a, U::mma_sync, E::bf16, 16, 25},
        Row{Arch::sm_90a, U::wgmma, E::f16, 16, 25}, Row{Arch::sm_90a, U::wgmma, E::tf32, 8, 25},
        Row{Arch::sm_90a, U::wgmma, E::e4m3, 32, 13}, Row{Arch::sm_90a, U::wgmma, E::e5m2, 32, 13},
        Row{Arch::sm_100a, U::tcgen05, E::bf16, 16, 25},
        Row{Arch::sm_100a, U::tcgen05, E::e4m3, 32, 25},
        Row{Arch::sm_120a, U::mma_sync, E::e5m2, 32, 25},
        Row{Arch::sm_120a, U::mma_sync, E::tf32, 8, 25}}) {
    const MmaRule rule = *mma_rule(row.arch, row.unit, row.type, row.type, A::f32);
    const MmaFormat format = mma_format(row.type);
    const int low = row.type == E::tf32 ? 13 : 0;
    const uint32_t one = static_cast<uint32_t>(format.bias) << (format.fraction_bits + low);
    const uint32_t minus = one | 1u << (format.fraction_bits + format.exponent_bits + low);
    const auto result = [&](int place, int bits) {
      std::vector<uint32_t> a(static_cast<size_t>(2 * row.k)), b(a.size(), one);
      a[0] = one;
      a[static_cast<size_t>(place)] = minus;
      return one_output(rule, row.type, a, b, std::ldexp(1.0f, -bits));
    };
    const float last = std::ldexp(1.0f, -row.fraction_bits);
    EXPECT_EQ(result(row.k - 1, row.fraction_bits), last) << name(row.type);
    EXPECT_EQ(result(row.k - 1, row.fraction_bits + 1), 0.0f) << name(row.type);
    if (row.fraction_bits > 23) {
      EXPECT_EQ(result(row.k, row.fraction_bits), 0.0f) << name(row.type);
    }
  }
}

TEST(Mma, FastIsCloseAndInteger) {
  MmaCases cases(3);
  for (const Instruction& instruction : kInstructions) {
    if (instruction.accumulator != A::f32) continue;
    const auto rule = mma_rule(instruction.arch, instruction.unit, instruction.a, instruction.b,
                               instruction.accumulator, instruction.scales);
    const int k = smallest_k(instruction);
    const MmaCase x =
        cases.make(instruction.a, instruction.b, A::f32, 32, 16, k, MmaData::ordinary);
    std::vector<float> exact(32 * 16), fast(32 * 16);
    mma_reference(*rule, x.tile(exact.data()));
    for (const CpuLevel level : levels()) {
      mma_fast(*rule, x.tile(fast.data()), level);
      // Both are within (k + 1) units in the last kept place of the largest partial sum.
      double largest = 1;
      for (const float v : exact) largest = std::max(largest, std::abs(double{v}));
      const int bits = rule->fraction_bits < 23 ? rule->fraction_bits : 23;
      const double bound = largest * (k + 1) * std::ldexp(16.0, -bits);
      for (size_t i = 0; i < exact.size(); ++i) {
        if (std::isnan(exact[i])) continue;
        ASSERT_NEAR(exact[i], fast[i], bound) << name(instruction) << " output " << i;
      }
    }
  }
}

TEST(Mma, TilesMayBeStridedTransposedAndInPlace) {
  MmaCases cases(4);
  const MmaRule rule = *mma_rule(Arch::sm_90a, U::wgmma, E::f16, E::f16, A::f32);
  const MmaCase x = cases.make(E::f16, E::f16, A::f32, 64, 24, 16, MmaData::rare_special);
  const auto expected = reference(rule, x);
  std::vector<uint8_t> transposed(x.c.size());
  for (size_t i = 0; i < 64; ++i)
    for (size_t j = 0; j < 24; ++j)
      std::memcpy(&transposed[(j * 64 + i) * 4], &x.c[(i * 24 + j) * 4], 4);
  MmaTile tile = x.tile(transposed.data());
  tile.c = transposed.data();
  tile.row_stride = 1;
  tile.column_stride = 64;
  mma_exact(rule, tile);
  for (size_t i = 0; i < 64; ++i)
    for (size_t j = 0; j < 24; ++j)
      ASSERT_EQ(std::memcmp(&transposed[(j * 64 + i) * 4], &expected[(i * 24 + j) * 4], 4), 0);
}

TEST(MmaRules, RefusesWhatTheArchitectureLacks) {
  EXPECT_FALSE(mma_rule(Arch::sm_80, U::wgmma, E::bf16, E::bf16, A::f32));
  EXPECT_FALSE(mma_rule(Arch::sm_90a, U::tcgen05, E::bf16, E::bf16, A::f32));
  EXPECT_FALSE(mma_rule(Arch::sm_80, U::mma_sync, E::e4m3, E::e4m3, A::f32));
  EXPECT_FALSE(mma_rule(Arch::sm_90a, U::wgmma, E::bf16, E::f16, A::f32));
  EXPECT_FALSE(mma_rule(Arch::sm_90a, U::wgmma, E::bf16, E::bf16, A::f16));
  EXPECT_FALSE(mma_rule(Arch::sm_90a, U::wgmma, E::e2m1, E::e2m1, A::f32));
  EXPECT_FALSE(mma_rule(Arch::sm_100a, U::mma_sync, E::e2m1, E::e2m1, A::f32, MmaScales::nvf4));
  EXPECT_FALSE(mma_rule(Arch::sm_120a, U::mma_sync, E::e4m3, E::e4m3, A::f32, MmaScales::nvf4));
}

}  // namespace
}  // namespace halftone::sim
