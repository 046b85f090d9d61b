// Copies that nobody waits for at once: cp.async and bulk copies.
#include <gtest/gtest.h>

#include "hw/barrier.h"
#include "hw/cluster.h"
#include "hw/copy/bulk_copy.h"
#include "hw/copy/bulk_reduce.h"
#include "hw/copy/cp_async.h"
#include "hw/fence.h"
#include "hw/griddep.h"
#include "hw/kernels.h"
#include "hw/mbarrier.h"
#include "hw/memory.h"
#include "hw/warp.h"

namespace halftone::test {
namespace {

using hw::BulkReduction;
using hw::Mbarrier;
using hw::Type;

constexpr Arch kTmaArchs[] = {Arch::sm_90a, Arch::sm_100a, Arch::sm_120a};

void number(const DeviceArray<uint32_t>& array) {
  for (uint32_t i = 0; i < array.size(); ++i) array[i] = i + 1;
}

template <uint32_t kBytes>
void check_cp_async(Arch arch) {
  DeviceArray<uint32_t> in(arch, 64 * 4);
  number(in);
  run_everywhere(arch, {.block = {64}, .shared_bytes = 4096}, [&](sim::Thread& me) {
    const hw::SharedAddress base = hw::shared_memory_base();
    const uint32_t words = kBytes / 4, mine = me.index * 4;
    for (uint32_t group = 0; group < 3; ++group) {
      const hw::SharedAddress to = base + group * 1024 + me.index * 16;
      if (group == 2) {
        hw::cp_async_zero_fill<kBytes>(to, in.data() + mine, 4);
      } else {
        hw::cp_async<kBytes>(to, in.data() + mine);
      }
      hw::cp_async_commit();
    }
    hw::cp_async_wait<1>();
    hw::barrier_sync();
    const uint32_t other = 63 - me.index;
    for (uint32_t w = 0; w < words; ++w) {
      EXPECT_EQ(hw::load_shared<uint32_t>(base + other * 16 + w * 4), other * 4 + w + 1);
      EXPECT_EQ(hw::load_shared<uint32_t>(base + 1024 + other * 16 + w * 4), other * 4 + w + 1);
    }
    hw::cp_async_wait_all();
    hw::barrier_sync();
    for (uint32_t w = 0; w < words; ++w) {
      EXPECT_EQ(hw::load_shared<uint32_t>(base + 2048 + other * 16 + w * 4),
                w == 0 ? other * 4 + 1 : 0);
    }
  });
}
TEST(CpAsync, EverySize) {
  for (const Arch arch : kArchs) {
    check_cp_async<4>(arch);
    check_cp_async<8>(arch);
    check_cp_async<16>(arch);
  }
}

TEST(CpAsync, ArrivesAtABarrier) {
  DeviceArray<uint32_t> in(Arch::sm_80, 64 * 4);
  number(in);
  run_everywhere(Arch::sm_80, {.block = {64}, .shared_bytes = 2048}, [&](sim::Thread& me) {
    const hw::SharedAddress base = hw::shared_memory_base();
    const Mbarrier counted{base}, extra{base + 8};
    if (me.index == 0) {
      hw::mbarrier_init(counted, 64);
      hw::mbarrier_init(extra, 64);
    }
    hw::barrier_sync();
    hw::cp_async_hint(base + 1024 + me.index * 16, in.data() + me.index * 4, hw::kEvictFirst);
    hw::cp_async_mbarrier_arrive_noinc(counted);
    hw::cp_async_mbarrier_arrive(extra);
    hw::mbarrier_arrive(extra);
    hw::mbarrier_spin_wait(counted, 0);
    hw::mbarrier_spin_wait(extra, 0);
    const uint32_t other = 63 - me.index;
    EXPECT_EQ(hw::load_shared<uint32_t>(base + 1024 + other * 16), other * 4 + 1);
    hw::barrier_sync();
  });
}

TEST(CpAsync, TooEarlyIsReported) {
  DeviceArray<uint32_t> in(Arch::sm_80, 4);
  const SimulatorReport report =
      violations({.block = {32}, .shared_bytes = 64}, [&](sim::Thread& me) {
        if (me.index != 0) return;
        hw::cp_async<16>(hw::shared_memory_base(), in.data());
        hw::cp_async_commit();
        hw::load_shared<uint32_t>(hw::shared_memory_base());
        hw::cp_async_wait<0>();
      });
  EXPECT_FALSE(report.clean());
}

// Global -> shared -> another block -> global, with a plain and a multicast load.
TEST(BulkCopy, ThroughACluster) {
  for (const Arch arch : kTmaArchs) {
    DeviceArray<uint32_t> in(arch, 256), out(arch, 2 * 256);
    number(in);
    const LaunchShape shape{.grid = {2}, .block = {32}, .cluster = {2}, .shared_bytes = 4096};
    run_everywhere(arch, shape, [&](sim::Thread& me) {
      const hw::SharedAddress base = hw::shared_memory_base();
      const uint32_t rank = hw::cluster_rank();
      const Mbarrier loaded{base}, sent{base + 8};
      if (me.index == 0) {
        hw::mbarrier_init(loaded, 1);
        hw::mbarrier_init(sent, 1);
        hw::fence_mbarrier_init();
      }
      hw::cluster_arrive();
      hw::cluster_wait();
      if (me.index == 0) {
        hw::bulk_prefetch(in.data(), 1024);
        hw::mbarrier_arrive_expect_tx(sent, 512);
        // 256 bytes of its own, 256 from each block for both.
        hw::mbarrier_arrive_expect_tx(loaded, 256 + 128 + 2 * 256);
        hw::bulk_load(base + 1024, in.data() + 64 * rank, 256, loaded);
        hw::bulk_load(base + 1024 + 256, in.data() + 64, 128, loaded, hw::kEvictFirst);
        const hw::SharedAddress both = base + 1536 + rank * 256;
        hw::bulk_load_multicast(both, in.data() + 128 + 64 * rank, 128, loaded, 3);
        hw::bulk_load_multicast(both + 128, in.data() + 160 + 64 * rank, 128, loaded, 3,
                                hw::kEvictLast);
      }
      hw::mbarrier_wait(loaded, 0);
      EXPECT_EQ(hw::load_shared<uint32_t>(base + 1024 + me.index * 4), 64 * rank + me.index + 1);
      EXPECT_EQ(hw::load_shared<uint32_t>(base + 1280 + me.index * 4), 64 + me.index + 1);
      for (uint32_t i = me.index; i < 128; i += 32) {
        EXPECT_EQ(hw::load_shared<uint32_t>(base + 1536 + i * 4), 128 + i + 1);
      }
      if (me.index == 0) {
        hw::bulk_send(hw::map_shared_rank(base + 2048, 1 - rank), base + 1536, 512,
                      hw::map_shared_rank(sent.address, 1 - rank));
      }
      hw::mbarrier_wait<hw::Scope::cluster>(sent, 0);
      EXPECT_EQ(hw::load_shared<uint32_t>(base + 2048 + me.index * 4), 128 + me.index + 1);
      if (me.index == 0) {
        hw::bulk_store(out.data() + 256 * rank, base + 2048, 512);
        hw::bulk_store(out.data() + 256 * rank + 128, base + 1024, 256, hw::kEvictLast);
        hw::bulk_commit();
        hw::bulk_wait<0>();
      }
      hw::cluster_arrive();
      hw::cluster_wait();
    });
    for (uint32_t rank = 0; rank < 2; ++rank) {
      for (uint32_t i = 0; i < 128; ++i) ASSERT_EQ(out[256 * rank + i], 128 + i + 1);
      for (uint32_t i = 0; i < 64; ++i) ASSERT_EQ(out[256 * rank + 128 + i], 64 * rank + i + 1);
    }
  }
  EXPECT_TRUE(refused(Arch::sm_89, [] { hw::bulk_commit(); }));
  EXPECT_TRUE(refused(Arch::sm_89, [] { hw::bulk_load({}, nullptr, 16, {}); }));
}

template <BulkReduction kReduction, Type kType, class T>
void check_reduction(T start, T expected) {
  DeviceArray<T> out(Arch::sm_90a, 64);
  for (size_t i = 0; i < out.size(); ++i) out[i] = start;
  Stream stream = simulated();
  run(stream, {.grid = {4}, .block = {32}, .shared_bytes = 1024}, [&](sim::Thread& me) {
    const hw::SharedAddress base = hw::shared_memory_base();
    for (uint32_t i = me.index; i < 64; i += 32) {
      hw::store_shared(base + i * static_cast<uint32_t>(sizeof(T)),
                       static_cast<T>(start + static_cast<T>(hw::block_index().x)));
    }
    hw::fence_proxy_async_shared();
    hw::warp_sync();
    if (me.index == 0) {
      constexpr uint32_t kHalf = 32 * sizeof(T);
      hw::bulk_reduce<kReduction, kType>(out.data(), base, kHalf);
      hw::bulk_reduce<kReduction, kType>(out.data() + 32, base + kHalf, kHalf, hw::kEvictLast);
      hw::bulk_commit();
      hw::bulk_wait_read<0>();
      hw::bulk_wait<0>();
    }
  });
  for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], expected);
}
TEST(BulkCopy, Reductions) {
  check_reduction<BulkReduction::add, Type::u32>(7u, 7u * 5 + 6);
  check_reduction<BulkReduction::add, Type::f32>(0.5f, 0.5f * 5 + 6);
  check_reduction<BulkReduction::max, Type::s32>(-9, -6);
  check_reduction<BulkReduction::min, Type::u64>(uint64_t{9}, uint64_t{9});
  check_reduction<BulkReduction::or_, Type::b32>(4u, 7u);
  check_reduction<BulkReduction::and_, Type::b32>(4u, 4u);
  check_reduction<BulkReduction::add, Type::bf16>(uint16_t{0}, uint16_t{6});  // subnormals
}

TEST(BulkCopy, MissingFenceIsReported) {
  DeviceArray<uint32_t> out(Arch::sm_90a, 32);
  const auto store = [&](bool fence) {
    return violations({.block = {32}, .shared_bytes = 256}, [&](sim::Thread& me) {
      const hw::SharedAddress base = hw::shared_memory_base();
      hw::store_shared(base + me.index * 4, me.index);
      if (fence) hw::fence_proxy_async();
      hw::warp_sync();
      if (me.index == 0) {
        hw::bulk_store(out.data(), base, 128);
        hw::bulk_commit();
        hw::bulk_wait<0>();
      }
    });
  };
  EXPECT_TRUE(store(true).clean());
  EXPECT_FALSE(store(false).clean());
}

TEST(GridDependency, OnArchitecturesThatHaveIt) {
  Stream stream = simulated(Arch::sm_90a);
  run(stream, {.block = {32}}, [](sim::Thread&) {
    hw::griddepcontrol_wait();
    hw::griddepcontrol_launch_dependents();
  });
  EXPECT_TRUE(refused(Arch::sm_89, [] { hw::griddepcontrol_wait(); }));
}

}  // namespace
}  // namespace halftone::test
