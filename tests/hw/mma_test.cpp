// mma.sync on the simulator: every type and shape on every architecture that has it. The fragment
// maps are written out here again, from the PTX text, so that an error in either shows as an
// element.
#include "hw/mma/mma.h"

#include <gtest/gtest.h>

#include "formats/codec.h"
#include "hw/kernels.h"

namespace halftone::test {
namespace {

using hw::Type;

// Small integers are exact in every type, and so are their sums.
uint32_t encode(Type type, int value) {
  switch (type) {
    case Type::bf16:
      return encode_bf16(static_cast<float>(value));
    case Type::f16:
      return encode_f16(static_cast<float>(value));
    case Type::tf32:  // the low 13 bits are not read
      return std::bit_cast<uint32_t>(static_cast<float>(value)) | 0x1a5b;
    case Type::e4m3:
      return encode_e4m3(static_cast<float>(value));
    case Type::e5m2:
      return encode_e5m2(static_cast<float>(value));
    default:
      return static_cast<uint32_t>(value) & ((1u << hw::bits_of(type)) - 1);
  }
}
int random_value(Type type, std::mt19937& rng) {
  const bool is_signed = type != Type::u8 && type != Type::u4;
  const int bits = type == Type::s8 || type == Type::u8   ? 8
                   : type == Type::s4 || type == Type::u4 ? 4
                                                          : 3;  // -4..3
  const int value = static_cast<int>(rng() % (1u << bits));
  return is_signed ? value - (1 << (bits - 1)) : value;
}

template <class D>
float value_of(const D* d, int i) {
  if constexpr (std::is_same_v<D, uint32_t>) {
    return decode_f16(static_cast<uint16_t>(d[i / 2] >> 16 * (i % 2) & 0xffff));
  } else {
    return static_cast<float>(d[i]);
  }
}
template <class D>
void set_value(D* d, int i, int value) {
  if constexpr (std::is_same_v<D, uint32_t>) {
    const uint32_t code = encode_f16(static_cast<float>(value));
    d[i / 2] = i % 2 == 0 ? code : d[i / 2] | code << 16;
  } else {
    d[i] = static_cast<D>(value);
  }
}

// D, A and B registers of a lane: kD, kA, kB. `multiply(d, a, b, c)` is the instruction.
template <class D, int kD, int kA, int kB, class Multiply>
void check(Arch arch, Type a_type, Type b_type, int k, Multiply multiply) {
  SCOPED_TRACE(std::string(name(arch)) + " k " + std::to_string(k));
  std::mt19937 rng(static_cast<uint32_t>(k) * 7 + static_cast<uint32_t>(a_type));
  std::vector<int> a(16 * 64), b(8 * 64), c(16 * 8);
  for (int& x : a) x = random_value(a_type, rng);
  for (int& x : b) x = random_value(b_type, rng);
  for (int& x : c) x = static_cast<int>(rng() % 64) - 32;
  std::vector<float> d(16 * 8, -1e9f);
  run_everywhere(arch, {.block = {32}}, [&](sim::Thread& me) {
    const int lane = static_cast<int>(me.lane), bits = static_cast<int>(hw::bits_of(a_type));
    const int count = 32 / bits;
    uint32_t a_regs[kA] = {}, b_regs[kB] = {};
    for (int r = 0; r < kA; ++r)
      for (int e = 0; e < count; ++e) {
        const int row = lane / 4 + 8 * (r & 1), col = lane % 4 * count + e + 4 * count * (r >> 1);
        a_regs[r] |= encode(a_type, a[static_cast<size_t>(row * 64 + col)]) << e * bits;
      }
    for (int r = 0; r < kB; ++r)
      for (int e = 0; e < count; ++e) {
        const int row = lane % 4 * count + e + 4 * count * r, col = lane / 4;
        b_regs[r] |= encode(b_type, b[static_cast<size_t>(col * 64 + row)]) << e * bits;
      }
    D d_regs[kD] = {}, c_regs[kD] = {};
    const auto at = [&](int i) {
      return static_cast<size_t>((lane / 4 + 8 * (i >> 1)) * 8 + 2 * (lane % 4) + (i & 1));
    };
    for (int i = 0; i < 4; ++i) set_value(c_regs, i, c[at(i)]);
    multiply(d_regs, a_regs, b_regs, c_regs);
    for (int i = 0; i < 4; ++i) d[at(i)] = value_of(d_regs, i);
    // The accumulator may be its own result.
    multiply(c_regs, a_regs, b_regs, c_regs);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(value_of(c_regs, i), value_of(d_regs, i));
  });
  for (int m = 0; m < 16; ++m)
    for (int n = 0; n < 8; ++n) {
      int sum = c[static_cast<size_t>(m * 8 + n)];
      for (int i = 0; i < k; ++i)
        sum += a[static_cast<size_t>(m * 64 + i)] * b[static_cast<size_t>(n * 64 + i)];
      ASSERT_EQ(d[static_cast<size_t>(m * 8 + n)], static_cast<float>(sum))
          << "row " << m << " column " << n;
    }
}

#define HT_MULTIPLY(call) \
  [](auto& d, const auto& a, const auto& b, const auto& c) { call(d, a, b, c); }

TEST(Mma, HalvesWithF32) {
  for (const Arch arch : kArchs) {
    check<float, 4, 4, 2>(arch, Type::bf16, Type::bf16, 16,
                          HT_MULTIPLY(hw::mma_m16n8k16<Type::bf16>));
    check<float, 4, 4, 2>(arch, Type::f16, Type::f16, 16, HT_MULTIPLY(hw::mma_m16n8k16<Type::f16>));
    check<float, 4, 2, 1>(arch, Type::bf16, Type::bf16, 8,
                          HT_MULTIPLY(hw::mma_m16n8k8<Type::bf16>));
    check<float, 4, 2, 1>(arch, Type::f16, Type::f16, 8, HT_MULTIPLY(hw::mma_m16n8k8<Type::f16>));
  }
}
TEST(Mma, HalvesWithF16) {
  for (const Arch arch : kArchs) {
    check<uint32_t, 2, 4, 2>(arch, Type::f16, Type::f16, 16,
                             HT_MULTIPLY(hw::mma_m16n8k16<Type::f16>));
  }
}
TEST(Mma, Tf32) {
  for (const Arch arch : kArchs) {
    check<float, 4, 4, 2>(arch, Type::tf32, Type::tf32, 8,
                          HT_MULTIPLY(hw::mma_m16n8k8<Type::tf32>));
  }
}
TEST(Mma, Integers) {
  for (const Arch arch : kArchs) {
    check<int32_t, 4, 4, 2>(arch, Type::s8, Type::s8, 32, HT_MULTIPLY(hw::mma_m16n8k32<Type::s8>));
    check<int32_t, 4, 4, 2>(arch, Type::u8, Type::s8, 32,
                            HT_MULTIPLY((hw::mma_m16n8k32<Type::u8, Type::s8>)));
    check<int32_t, 4, 4, 2>(arch, Type::s8, Type::u8, 32,
                            HT_MULTIPLY((hw::mma_m16n8k32<Type::s8, Type::u8>)));
    check<int32_t, 4, 4, 2>(arch, Type::s4, Type::s4, 64, HT_MULTIPLY(hw::mma_m16n8k64<Type::s4>));
    check<int32_t, 4, 4, 2>(arch, Type::u4, Type::s4, 64,
                            HT_MULTIPLY((hw::mma_m16n8k64<Type::u4, Type::s4>)));
  }
}
TEST(Mma, IntegersSaturateWhereAsked) {
  Stream stream = simulated();
  run(stream, {.block = {32}}, [](sim::Thread&) {
    const uint32_t ones[4] = {0x01010101, 0x01010101, 0x01010101, 0x01010101};
    const uint32_t b[2] = {0x01010101, 0x01010101};
    const int32_t c[4] = {INT32_MAX - 31, INT32_MAX, INT32_MAX - 32, 5};
    int32_t wrapped[4], saturated[4];
    hw::mma_m16n8k32<Type::s8>(wrapped, ones, b, c);
    hw::mma_m16n8k32<Type::s8, Type::s8, true>(saturated, ones, b, c);
    EXPECT_EQ(wrapped[0], INT32_MIN);
    EXPECT_EQ(saturated[0], INT32_MAX);
    EXPECT_EQ(saturated[1], INT32_MAX);
    EXPECT_EQ(saturated[2], INT32_MAX);
    EXPECT_EQ(saturated[3], 37);
  });
}
TEST(Mma, Fp8) {
  for (const Arch arch : {Arch::sm_89, Arch::sm_90a, Arch::sm_100a, Arch::sm_120a}) {
    check<float, 4, 4, 2>(arch, Type::e4m3, Type::e4m3, 32,
                          HT_MULTIPLY(hw::mma_m16n8k32<Type::e4m3>));
    check<float, 4, 4, 2>(arch, Type::e5m2, Type::e5m2, 32,
                          HT_MULTIPLY(hw::mma_m16n8k32<Type::e5m2>));
    check<float, 4, 4, 2>(arch, Type::e4m3, Type::e5m2, 32,
                          HT_MULTIPLY((hw::mma_m16n8k32<Type::e4m3, Type::e5m2>)));
    check<float, 4, 4, 2>(arch, Type::e5m2, Type::e4m3, 32,
                          HT_MULTIPLY((hw::mma_m16n8k32<Type::e5m2, Type::e4m3>)));
  }
}
TEST(Mma, Fp8IsRefusedOnSm80) {
  const auto multiply = [] {
    float d[4] = {};
    const uint32_t a[4] = {}, b[2] = {};
    hw::mma_m16n8k32<Type::e4m3>(d, a, b, d);
  };
  EXPECT_TRUE(refused(Arch::sm_80, multiply));
  EXPECT_FALSE(refused(Arch::sm_90a, multiply));
  EXPECT_FALSE(refused(Arch::sm_120a, multiply));
}

}  // namespace
}  // namespace halftone::test
