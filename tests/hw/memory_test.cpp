// Loads, stores, atomics, barriers of a block.
#include "hw/memory.h"

#include <gtest/gtest.h>

#include "formats/codec.h"
#include "hw/atomic.h"
#include "hw/barrier.h"
#include "hw/kernels.h"
#include "hw/thread.h"

namespace halftone::test {
namespace {

using hw::Atomic;
using hw::Order;
using hw::Scope;
using hw::Type;

template <class T>
T value_of(uint32_t i) {
  T value{};
  auto* bytes = reinterpret_cast<uint8_t*>(&value);
  for (size_t b = 0; b < sizeof(T); ++b) bytes[b] = static_cast<uint8_t>(i * 37 + b * 11 + 1);
  return value;
}
template <class T>
bool equal(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

// Global to shared memory, to another thread, and back, in every kind of access.
template <class T>
void check_sizes(Arch arch) {
  DeviceArray<T> in(arch, 64), out(arch, 64);
  for (uint32_t i = 0; i < 64; ++i) in[i] = value_of<T>(i);
  run_everywhere(arch, {.block = {64}, .shared_bytes = 2048}, [&](sim::Thread& me) {
    const hw::SharedAddress base = hw::shared_memory_base();
    EXPECT_EQ(base.value % 1024, 0u);
    EXPECT_NE(base.value, 0u);
    const auto at = [&](uint32_t i) { return base + i * static_cast<uint32_t>(sizeof(T)); };
    hw::store_shared(at(me.index), hw::load_global(in.data() + me.index));
    hw::barrier_sync();
    const uint32_t other = (me.index + 33) % 64;
    hw::store_global(out.data() + me.index, hw::load_shared<T>(at(other)));
  });
  for (uint32_t i = 0; i < 64; ++i) {
    ASSERT_TRUE(equal(out[i], value_of<T>((i + 33) % 64))) << sizeof(T) << " bytes, thread " << i;
  }
  run_everywhere(arch, {.block = {64}, .shared_bytes = 2048}, [&](sim::Thread& me) {
    using hw::Cache;
    const T* from = in.data() + me.index;
    T* to = out.data() + me.index;
    const T mine = value_of<T>(me.index);
    EXPECT_TRUE(equal(hw::load_global<T, Cache::global>(from), mine));
    EXPECT_TRUE(equal(hw::load_global<T, Cache::streaming>(from), mine));
    EXPECT_TRUE(equal(hw::load_global<T, Cache::read_only>(from), mine));
    EXPECT_TRUE(equal(hw::load_global(from, hw::kEvictFirst), mine));
    hw::prefetch_global(from);
    hw::store_global<Cache::write_through>(to, mine);
    hw::store_global(to, mine, hw::make_policy<hw::Evict::last>());
    EXPECT_TRUE(equal(hw::load_global(to), mine));
  });
}
TEST(Memory, EverySize) {
  for (const Arch arch : kArchs) {
    check_sizes<uint8_t>(arch);
    check_sizes<uint16_t>(arch);
    check_sizes<float>(arch);
    check_sizes<uint64_t>(arch);
    check_sizes<hw::Words4>(arch);
  }
}

TEST(Memory, MistakesAreReported) {
  DeviceArray<uint32_t> array(Arch::sm_90a, 8);
  const auto report = [&](auto body) {
    return violations({.block = {32}, .shared_bytes = 256}, [=](sim::Thread& me) {
      if (me.index == 0) body();
    });
  };
  const hw::SharedAddress shift{1};
  const auto base = [] { return hw::shared_memory_base(); };
  EXPECT_FALSE(report([&] { hw::store_shared(base() + 256, 1u); }).clean()) << "out of range";
  EXPECT_FALSE(report([&] { hw::store_shared(base() + shift.value, 1u); }).clean()) << "misaligned";
  EXPECT_FALSE(report([&] { hw::load_shared<uint32_t>(base()); }).clean()) << "not initialised";
  EXPECT_FALSE(report([&] { hw::store_global(array.data() + 8, 1u); }).clean()) << "out of range";
  EXPECT_TRUE(report([&] { hw::store_global(array.data() + 7, 1u); }).clean());
  // Two warps without a barrier between them.
  const SimulatorReport race =
      violations({.block = {64}, .shared_bytes = 256}, [&](sim::Thread& me) {
        if (me.index == 0) hw::store_shared(base(), 7u);
        if (me.index == 32) hw::load_shared<uint32_t>(base());
      });
  EXPECT_FALSE(race.clean());
}

// A flag in shared and one in global memory hand data over.
TEST(Memory, OrderedAccesses) {
  DeviceArray<uint32_t> flag(Arch::sm_90a, 2), data(Arch::sm_90a, 1);
  for (const auto schedule : kSchedules) {
    flag[0] = 0;
    Stream stream = simulated(Arch::sm_90a, {.schedule = schedule});
    run(stream, {.grid = {2}, .block = {32}, .shared_bytes = 256}, [&](sim::Thread& me) {
      if (me.index != 0) return;
      if (hw::block_index().x == 0) {
        hw::store_global(data.data(), 42u);
        hw::store_global_ordered<Order::release>(flag.data(), 1u);
      } else {
        while (hw::load_global_ordered<uint32_t, Order::acquire>(flag.data()) == 0) {
          hw::nanosleep(100);
        }
        EXPECT_EQ(hw::load_global(data.data()), 42u);
      }
    });
  }
  for (const auto schedule : kSchedules) {
    Stream stream = simulated(Arch::sm_80, {.schedule = schedule});
    run(stream, {.block = {64}, .shared_bytes = 256}, [&](sim::Thread& me) {
      const hw::SharedAddress base = hw::shared_memory_base();
      if (me.index == 0) hw::store_shared(base, 0u);
      hw::barrier_sync();
      if (me.index == 0) {
        hw::store_shared(base + 4, 43u);
        hw::store_shared_ordered<Order::release>(base, 1u);
      }
      if (me.index == 32) {
        while (hw::load_shared_ordered<uint32_t, Order::acquire>(base) == 0) hw::nanosleep(20);
        EXPECT_EQ(hw::load_shared<uint32_t>(base + 4), 43u);
      }
    });
  }
}

// Every thread of the grid applies the operation once; `expected` is the result in any order.
template <Atomic kOperation, class T>
void check_atomic(Arch arch, T start, T (*value)(uint32_t), T expected) {
  DeviceArray<T> total(arch, 2);
  for (const auto schedule : kSchedules) {
    total[0] = total[1] = start;
    Stream stream = simulated(arch, {.schedule = schedule});
    run(stream, {.grid = {2}, .block = {64}, .shared_bytes = 64}, [&](sim::Thread& me) {
      const hw::SharedAddress base = hw::shared_memory_base();
      if (me.index == 0) hw::store_shared(base, start);
      hw::barrier_sync();
      const uint32_t i = me.index + 64 * hw::block_index().x;
      hw::atomic_global<kOperation>(total.data(), value(i));
      hw::reduce_global<kOperation>(total.data() + 1, value(i));
      hw::atomic_shared<kOperation>(base, value(me.index));
      hw::reduce_shared<kOperation>(base, value(me.index + 64));
      hw::barrier_sync();
      EXPECT_EQ(hw::load_shared<T>(base), expected);
    });
    EXPECT_EQ(total[0], expected);
    EXPECT_EQ(total[1], expected);
  }
}
TEST(Memory, Atomics) {
  for (const Arch arch : {Arch::sm_80, Arch::sm_90a}) {
    check_atomic<Atomic::add, uint32_t>(
        arch, 5, [](uint32_t i) { return i; }, 5 + 127 * 64);
    check_atomic<Atomic::add, float>(
        arch, 0.5f, [](uint32_t i) { return static_cast<float>(i); }, 127 * 64 + 0.5f);
    check_atomic<Atomic::add, double>(
        arch, 0.5, [](uint32_t i) { return static_cast<double>(i); }, 127 * 64 + 0.5);
    check_atomic<Atomic::min, int32_t>(
        arch, 4, [](uint32_t i) { return static_cast<int32_t>(i) - 90; }, -90);
    check_atomic<Atomic::max, uint64_t>(
        arch, 4, [](uint32_t i) { return uint64_t{i} << 40; }, uint64_t{127} << 40);
    check_atomic<Atomic::inc, uint32_t>(
        arch, 0, [](uint32_t) { return 99u; }, 28);
    check_atomic<Atomic::dec, uint32_t>(
        arch, 0, [](uint32_t) { return 99u; }, 72);
    check_atomic<Atomic::or_, uint32_t>(
        arch, 0, [](uint32_t i) { return 1u << i % 24; }, 0xffffff);
    check_atomic<Atomic::and_, uint32_t>(
        arch, 0xffffffff, [](uint32_t i) { return ~(1u << i % 24); }, 0xff000000);
    check_atomic<Atomic::xor_, uint64_t>(
        arch, 1, [](uint32_t i) { return uint64_t{i} << 33; }, 1);
  }
}
TEST(Memory, AtomicsReturnWhatWas) {
  DeviceArray<uint32_t> array(Arch::sm_90a, 4);
  run_everywhere(Arch::sm_90a, {.block = {1}, .shared_bytes = 64}, [&](sim::Thread&) {
    hw::store_global(array.data(), 10u);
    EXPECT_EQ(hw::atomic_global<Atomic::exch>(array.data(), 20u), 10u);
    EXPECT_EQ(hw::atomic_cas_global(array.data(), 19u, 30u), 20u);
    EXPECT_EQ(hw::atomic_cas_global(array.data(), 20u, 30u), 20u);
    EXPECT_EQ((hw::atomic_global<Atomic::add, Order::acq_rel, Scope::gpu>(array.data(), 1u)), 30u);
    EXPECT_EQ(hw::load_global(array.data()), 31u);
    const hw::SharedAddress base = hw::shared_memory_base();
    hw::store_shared(base, 1.5f);
    EXPECT_EQ(hw::atomic_cas_shared(base, 1.5f, 2.5f), 1.5f);
    EXPECT_EQ(hw::atomic_shared<Atomic::exch>(base, 7.0f), 2.5f);
    // 1, 2 and 0.5, -2 in f16; the same in bf16.
    hw::store_global(array.data() + 1, 0x40003c00u);
    EXPECT_EQ(hw::atomic_add_pair_global<Type::f16x2>(array.data() + 1, 0xc0003800u), 0x40003c00u);
    EXPECT_EQ(hw::load_global(array.data() + 1), 0x00003e00u);
    hw::store_global(array.data() + 1, 0x40003f80u);
    hw::atomic_add_pair_global<Type::bf16x2>(array.data() + 1, 0xc0003f00u);
    EXPECT_EQ(hw::load_global(array.data() + 1), 0x00003fc0u);
  });
  DeviceArray<hw::Words4> vector(Arch::sm_90a, 1);
  Stream stream = simulated();
  run(stream, {.block = {32}}, [&](sim::Thread& me) {
    const float x = static_cast<float>(me.index);
    hw::Words4 add;
    for (uint32_t i = 0; i < 4; ++i) add[i] = std::bit_cast<uint32_t>(x * static_cast<float>(i));
    hw::reduce_add_vector_global<Type::f32>(vector.data(), add);
  });
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(std::bit_cast<float>(vector[0][i]), 496.0f * static_cast<float>(i));
  }
}

TEST(Memory, Barriers) {
  for (const Arch arch : kArchs) {
    run_everywhere(arch, {.block = {128}, .shared_bytes = 1024}, [](sim::Thread& me) {
      const hw::SharedAddress base = hw::shared_memory_base();
      // Two warps produce for the other two, by one barrier and back by another.
      const bool producer = me.index < 64;
      for (uint32_t round = 0; round < 3; ++round) {
        if (producer) {
          hw::store_shared(base + me.index * 4, me.index + round);
          hw::barrier_arrive(1, 128);
          hw::barrier_sync(2, 128);
        } else {
          hw::barrier_sync(1, 128);
          EXPECT_EQ(hw::load_shared<uint32_t>(base + (127 - me.index) * 4), 127 - me.index + round);
          hw::barrier_arrive(2, 128);
        }
      }
      EXPECT_EQ(hw::barrier_count(3, 128, me.index % 5 == 0), 26u);
      EXPECT_TRUE(hw::barrier_any(4, 128, me.index == 77));
      EXPECT_FALSE(hw::barrier_any(4, 128, false));
      EXPECT_FALSE(hw::barrier_all(5, 128, me.index != 77));
      EXPECT_TRUE(hw::barrier_all(5, 128, true));
    });
  }
}

}  // namespace
}  // namespace halftone::test
