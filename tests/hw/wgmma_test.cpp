// wgmma on the simulator: every N, every type, both places of A, both majors, every swizzle. Where
// elements lie in shared memory and in registers is written out here from the PTX text.
#include "hw/mma/wgmma.h"

#include <gtest/gtest.h>

#include <utility>

#include "formats/codec.h"
#include "hw/barrier.h"
#include "hw/fence.h"
#include "hw/kernels.h"
#include "hw/memory.h"

namespace halftone::test {
namespace {

using hw::Type;
using tile::Major;

constexpr int kSpans[] = {16, 32, 64, 128};  // bytes of a line: no swizzle, 32, 64, 128

// The code of a small integer.
uint32_t encode(Type type, int value) {
  switch (type) {
    case Type::bf16:
      return encode_bf16(static_cast<float>(value));
    case Type::f16:
      return encode_f16(static_cast<float>(value));
    case Type::tf32:
      return std::bit_cast<uint32_t>(static_cast<float>(value)) | 0x0a5b;
    case Type::e4m3:
      return encode_e4m3(static_cast<float>(value));
    case Type::e5m2:
      return encode_e5m2(static_cast<float>(value));
    default:
      return static_cast<uint32_t>(value) & 0xff;
  }
}
int random_value(Type type, std::mt19937& rng) {
  if (type == Type::u8) return static_cast<int>(rng() % 256);
  if (type == Type::s8) return static_cast<int>(rng() % 256) - 128;
  return static_cast<int>(rng() % 8) - 4;
}

// An operand of mn x k elements in shared memory, in panels of `span` bytes.
struct Operand {
  Major major;
  int span, mn, k, bytes;
  int lines() const { return major == Major::k ? mn : k; }
  uint32_t panel() const { return static_cast<uint32_t>(lines() * span); }
  uint32_t address(uint32_t base, int m, int i) const {
    const int along = (major == Major::k ? i : m) * bytes, line = major == Major::k ? m : i;
    const uint32_t a = base + static_cast<uint32_t>(along / span) * panel() +
                       static_cast<uint32_t>(line * span + along % span);
    return a ^ (a >> 3 & static_cast<uint32_t>(span - 16));
  }
  hw::WgmmaDescriptor descriptor(uint32_t start) const {
    const uint64_t group = static_cast<uint64_t>(8 * span), mode = span == 128  ? 1
                                                                   : span == 64 ? 2
                                                                   : span == 32 ? 3
                                                                                : 0;
    // The strides change places without a swizzle, MN-major.
    const bool swapped = major == Major::mn && span == 16;
    const uint64_t leading = swapped ? group : panel(), stride = swapped ? panel() : group;
    return {(start >> 4) | (leading >> 4) << 16 | (stride >> 4) << 32 | mode << 62};
  }
};

template <class D>
float value_of(const D* d, int i) {
  if constexpr (std::is_same_v<D, uint32_t>) {
    return decode_f16(static_cast<uint16_t>(d[i / 2] >> 16 * (i % 2) & 0xffff));
  } else {
    return static_cast<float>(d[i]);
  }
}
template <class D>
D start_value(int i) {
  // Halves: both 3.
  return std::is_same_v<D, uint32_t> ? static_cast<D>(0x42004200) : static_cast<D>(i % 7 + 2);
}

template <class D, int kN, Type kA, Type kB, Major kMajorA, Major kMajorB>
void check(int span, bool a_in_registers,
           SimulatorOptions::Schedule schedule = SimulatorOptions::Schedule::random) {
  SCOPED_TRACE(testing::Message() << "N " << kN << " type " << int(kA) << " span " << span
                                  << " registers " << a_in_registers);
  constexpr int kRegisters = std::is_same_v<D, uint32_t> ? kN / 4 : kN / 2;
  constexpr int kBits = static_cast<int>(hw::bits_of(kA)), kBytes = kBits / 8, kK = 256 / kBits;
  // Tiles wide enough for whole panels; the instruction reads their second step along K.
  const int k = std::max(2 * kK, span / kBytes), skip = kK;
  const auto whole = [&](int mn) { return (mn * kBytes + span - 1) / span * span / kBytes; };
  const Operand a{kMajorA, span, kMajorA == Major::k ? 64 : whole(64), k, kBytes};
  const Operand b{kMajorB, span, kMajorB == Major::k ? kN : whole(kN), k, kBytes};
  std::mt19937 rng(kN);
  std::vector<int> a_values(64 * kK), b_values(kN * kK);
  for (int& x : a_values) x = random_value(kA, rng);
  for (int& x : b_values) x = random_value(kB, rng);
  std::vector<float> plain(64 * kN, -1e9f), added(64 * kN, -1e9f);
  Stream stream = simulated(Arch::sm_90a, {.schedule = schedule, .seed = 5});
  run(stream, {.block = {128}, .shared_bytes = 128 * 1024}, [&](sim::Thread& me) {
    const uint32_t base = hw::shared_memory_base().value, b_base = base + 32 * 1024;
    const auto t = static_cast<int>(me.index);
    const auto fill = [&](const Operand& o, uint32_t start, const std::vector<int>& values,
                          int rows, Type type) {
      for (int i = t; i < rows * kK; i += 128) {
        const hw::SharedAddress at{o.address(start, i / kK, skip + i % kK)};
        const uint32_t code = encode(type, values[static_cast<size_t>(i)]);
        if constexpr (kBytes == 1) hw::store_shared(at, static_cast<uint8_t>(code));
        if constexpr (kBytes == 2) hw::store_shared(at, static_cast<uint16_t>(code));
        if constexpr (kBytes == 4) hw::store_shared(at, code);
      }
    };
    fill(a, base, a_values, 64, kA);
    fill(b, b_base, b_values, kN, kB);
    uint32_t a_registers[4] = {};
    for (int r = 0; r < 4; ++r)
      for (int e = 0; e < 32 / kBits; ++e) {
        const int row = 16 * (t / 32) + t % 32 / 4 + 8 * (r & 1);
        const int col = (t % 4 + 4 * (r >> 1)) * (32 / kBits) + e;
        a_registers[r] |= encode(kA, a_values[static_cast<size_t>(row * kK + col)]) << e * kBits;
      }
    hw::fence_proxy_async();
    hw::barrier_sync();
    // K advances inside a line by its bytes; across lines or panels by theirs.
    const auto offset = [&](const Operand& o) {
      const int along = skip * kBytes;
      return o.major == Major::mn ? static_cast<uint32_t>(skip * span)
                                  : static_cast<uint32_t>(along / span) * o.panel() +
                                        static_cast<uint32_t>(along % span);
    };
    const auto da = a.descriptor(base + offset(a)), db = b.descriptor(b_base + offset(b));
    D d[kRegisters];
    const auto multiply = [&](bool accumulate) {
      hw::hold_registers(d);
      hw::wgmma_fence();
      if constexpr (kMajorA == Major::k) {
        if (a_in_registers) {
          hw::wgmma<kA, kB, kMajorB>(d, a_registers, db, accumulate);
        } else {
          hw::wgmma<kA, kB, kMajorA, kMajorB>(d, da, db, accumulate);
        }
      } else {
        hw::wgmma<kA, kB, kMajorA, kMajorB>(d, da, db, accumulate);
      }
      hw::wgmma_commit();
      hw::wgmma_wait<0>();
      hw::hold_registers(d);
    };
    for (int pass = 0; pass < 2; ++pass) {
      for (int i = 0; i < kRegisters; ++i) d[i] = start_value<D>(i);
      multiply(pass == 1);
      for (int i = 0; i < kN / 2; ++i) {
        const int row = 16 * (t / 32) + t % 32 / 4 + 8 * (i >> 1 & 1);
        const int col = 8 * (i >> 2) + 2 * (t % 4) + (i & 1);
        const int reg = std::is_same_v<D, uint32_t> ? i / 2 : i;
        const float c = std::is_same_v<D, uint32_t> ? 3 : static_cast<float>(start_value<D>(reg));
        (pass == 0 ? plain : added)[static_cast<size_t>(row * kN + col)] =
            value_of(d, i) - (pass == 0 ? 0 : c);
      }
    }
  });
  for (int m = 0; m < 64; ++m)
    for (int n = 0; n < kN; ++n) {
      int sum = 0;
      for (int i = 0; i < kK; ++i)
        sum +=
            a_values[static_cast<size_t>(m * kK + i)] * b_values[static_cast<size_t>(n * kK + i)];
      ASSERT_EQ(plain[static_cast<size_t>(m * kN + n)], static_cast<float>(sum))
          << "row " << m << " column " << n;
      ASSERT_EQ(added[static_cast<size_t>(m * kN + n)], static_cast<float>(sum))
          << "row " << m << " column " << n << ", added";
    }
}

template <class D, int kN, Type kA, Type kB = kA>
void check_k_major() {
  check<D, kN, kA, kB, Major::k, Major::k>(128, false);
  check<D, kN, kA, kB, Major::k, Major::k>(64, true);
}

template <size_t... kI>
void every_n(std::index_sequence<kI...>) {
  (check<float, 8 + 8 * static_cast<int>(kI), Type::bf16, Type::bf16, Major::k, Major::k>(
       128, kI % 2 == 1),
   ...);
}
TEST(Wgmma, EveryN) { every_n(std::make_index_sequence<32>{}); }

TEST(Wgmma, EveryType) {
  check_k_major<float, 24, Type::f16>();
  check_k_major<float, 24, Type::tf32>();
  check_k_major<float, 24, Type::e4m3>();
  check_k_major<float, 40, Type::e5m2>();
  check_k_major<float, 16, Type::e4m3, Type::e5m2>();
  check_k_major<float, 16, Type::e5m2, Type::e4m3>();
  check_k_major<uint32_t, 24, Type::f16>();
  check_k_major<uint32_t, 40, Type::e4m3>();
  check_k_major<int32_t, 24, Type::s8>();
  check_k_major<int32_t, 48, Type::u8>();
  check_k_major<int32_t, 32, Type::s8, Type::u8>();
  check_k_major<int32_t, 32, Type::u8, Type::s8>();
}

TEST(Wgmma, EveryLayout) {
  for (const int span : kSpans) {
    check<float, 64, Type::bf16, Type::bf16, Major::k, Major::k>(span, false);
    check<float, 64, Type::bf16, Type::bf16, Major::k, Major::mn>(span, false);
    check<float, 64, Type::bf16, Type::bf16, Major::k, Major::mn>(span, true);
    check<float, 64, Type::bf16, Type::bf16, Major::mn, Major::k>(span, false);
    check<float, 128, Type::f16, Type::f16, Major::mn, Major::mn>(span, false);
    check<float, 32, Type::e4m3, Type::e4m3, Major::k, Major::k>(span, false);
    check<float, 32, Type::tf32, Type::tf32, Major::k, Major::k>(span, false);
  }
}

TEST(Wgmma, EverySchedule) {
  for (const auto schedule : kSchedules) {
    check<float, 128, Type::bf16, Type::bf16, Major::k, Major::k>(128, false, schedule);
  }
}

// What only the checker sees.
template <class Body>
SimulatorReport misuse(Body body) {
  return violations({.block = {128}, .shared_bytes = 16 * 1024}, [=](sim::Thread& me) {
    const hw::SharedAddress base = hw::shared_memory_base();
    for (uint32_t i = me.index; i < 4096; i += 128) hw::store_shared(base + i * 4, 0u);
    hw::fence_proxy_async();
    hw::barrier_sync();
    const Operand o{Major::k, 128, 64, 64, 2};
    body(me, o.descriptor(base.value), o.descriptor(base.value + 8192));
  });
}
TEST(Wgmma, MisuseIsReported) {
  using hw::WgmmaDescriptor;
  const auto start = [](auto& d, WgmmaDescriptor a, WgmmaDescriptor b) {
    hw::wgmma<Type::bf16>(d, a, b, false);
    hw::wgmma_commit();
  };
  const SimulatorReport clean = misuse([=](sim::Thread&, WgmmaDescriptor a, WgmmaDescriptor b) {
    float d[8];
    hw::wgmma_fence();
    start(d, a, b);
    hw::wgmma_wait<0>();
  });
  EXPECT_TRUE(clean.clean()) << to_string(clean);
  // Registers read before the wait.
  EXPECT_FALSE(misuse([=](sim::Thread&, WgmmaDescriptor a, WgmmaDescriptor b) {
                 float d[8] = {};
                 hw::wgmma_fence();
                 start(d, a, b);
                 d[0] += 1;
                 hw::wgmma_wait<0>();
               }).clean());
  // An operand overwritten before the wait.
  EXPECT_FALSE(misuse([=](sim::Thread& me, WgmmaDescriptor a, WgmmaDescriptor b) {
                 float d[8];
                 hw::wgmma_fence();
                 start(d, a, b);
                 if (me.index == 3) hw::store_shared(hw::shared_memory_base(), 1u);
                 hw::wgmma_wait<0>();
               }).clean());
  // Written by plain stores and not fenced.
  EXPECT_FALSE(misuse([=](sim::Thread& me, WgmmaDescriptor a, WgmmaDescriptor b) {
                 float d[8];
                 hw::store_shared(hw::shared_memory_base() + me.index * 4, 1u);
                 hw::barrier_sync();
                 hw::wgmma_fence();
                 start(d, a, b);
                 hw::wgmma_wait<0>();
               }).clean());
  // Descriptors whose meaning hangs on a base offset.
  EXPECT_NE(find(misuse([=](sim::Thread&, WgmmaDescriptor a, WgmmaDescriptor b) {
                   float d[8];
                   hw::wgmma_fence();
                   start(d, WgmmaDescriptor{a.bits | uint64_t{1} << 49}, b);
                   hw::wgmma_wait<0>();
                 }),
                 "wgmma.descriptor"),
            nullptr);
  EXPECT_NE(find(misuse([=](sim::Thread&, WgmmaDescriptor a, WgmmaDescriptor b) {
                   float d[8];
                   hw::wgmma_fence();
                   start(d, a.advanced(128), b);
                   hw::wgmma_wait<0>();
                 }),
                 "wgmma.descriptor"),
            nullptr);
}

TEST(Wgmma, OnSm90aOnly) {
  const auto multiply = [] {
    float d[4];
    hw::wgmma<Type::bf16>(d, hw::WgmmaDescriptor{}, hw::WgmmaDescriptor{}, false);
  };
  for (const Arch arch : {Arch::sm_80, Arch::sm_89, Arch::sm_100a, Arch::sm_120a}) {
    EXPECT_TRUE(refused(arch, multiply, 128));
    EXPECT_TRUE(refused(
        arch, [] { hw::wgmma_fence(); }, 128));
    EXPECT_TRUE(refused(
        arch, [] { hw::wgmma_wait<0>(); }, 128));
  }
}

}  // namespace
}  // namespace halftone::test
