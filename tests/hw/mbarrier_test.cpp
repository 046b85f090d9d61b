// mbarriers: phases, counts, bytes, waits, and the barriers of a cluster.
#include "hw/mbarrier.h"

#include <gtest/gtest.h>

#include "hw/barrier.h"
#include "hw/cluster.h"
#include "hw/fence.h"
#include "hw/kernels.h"
#include "hw/memory.h"

namespace halftone::test {
namespace {

using hw::Mbarrier;
using hw::Scope;

Mbarrier barrier_at(uint32_t offset) { return {hw::shared_memory_base() + offset}; }

TEST(Mbarrier, PhasesAlternate) {
  for (const Arch arch : kArchs) {
    run_everywhere(arch, {.block = {64}, .shared_bytes = 1024}, [](sim::Thread& me) {
      const Mbarrier full = barrier_at(0), empty = barrier_at(8);
      const hw::SharedAddress slot = hw::shared_memory_base() + 64;
      if (me.index == 0) {
        hw::mbarrier_init(full, 32);
        hw::mbarrier_init(empty, 32);
      }
      hw::barrier_sync();
      // A fresh barrier: the phase before the first counts as over.
      for (uint32_t round = 0; round < 5; ++round) {
        if (me.index < 32) {
          hw::mbarrier_spin_wait(empty, (round & 1) ^ 1);
          hw::store_shared(slot + me.index * 4, round * 100 + me.index);
          hw::mbarrier_arrive(full);
        } else {
          hw::mbarrier_spin_wait(full, round & 1);
          const uint32_t other = 63 - me.index;
          EXPECT_EQ(hw::load_shared<uint32_t>(slot + other * 4), round * 100 + other);
          hw::mbarrier_arrive(empty);
        }
      }
      hw::barrier_sync();
      if (me.index == 0) {
        EXPECT_TRUE(hw::mbarrier_test_wait(full, 0));   // the fifth phase has parity 0
        EXPECT_FALSE(hw::mbarrier_test_wait(full, 1));  // the sixth is open
        hw::mbarrier_inval(full);
        hw::mbarrier_inval(empty);
      }
    });
  }
}

TEST(Mbarrier, BytesAndCounts) {
  for (const Arch arch : {Arch::sm_90a, Arch::sm_100a, Arch::sm_120a}) {
    run_everywhere(arch, {.block = {32}, .shared_bytes = 64}, [](sim::Thread& me) {
      if (me.index != 0) return;
      const Mbarrier barrier = barrier_at(0);
      hw::mbarrier_init(barrier, 3);
      hw::fence_mbarrier_init();
      hw::mbarrier_arrive_expect_tx(barrier, 48);
      hw::mbarrier_complete_tx(barrier, 48);
      EXPECT_FALSE(hw::mbarrier_test_wait(barrier, 0)) << "two arrivals are missing";
      hw::mbarrier_expect_tx(barrier, 16);
      hw::mbarrier_arrive(barrier, 2);
      EXPECT_FALSE(hw::mbarrier_test_wait(barrier, 0)) << "16 bytes are missing";
      hw::mbarrier_complete_tx(barrier, 16);
      EXPECT_TRUE(hw::mbarrier_test_wait(barrier, 0));
      hw::mbarrier_wait(barrier, 0);
      // Bytes may complete before they are expected, while arrivals are pending.
      hw::mbarrier_complete_tx(barrier, 32);
      hw::mbarrier_arrive_expect_tx(barrier, 32);
      hw::mbarrier_arrive_drop(barrier);
      EXPECT_FALSE(hw::mbarrier_test_wait(barrier, 1));
      hw::mbarrier_arrive(barrier);
      hw::mbarrier_wait(barrier, 1);
      // One fewer is expected from now on.
      hw::mbarrier_arrive(barrier, 2);
      while (!hw::mbarrier_try_wait(barrier, 0)) {
      }
    });
  }
  EXPECT_TRUE(refused(Arch::sm_89, [] { hw::mbarrier_arrive(barrier_at(0), 2); }));
  EXPECT_TRUE(refused(Arch::sm_89, [] { hw::mbarrier_expect_tx(barrier_at(0), 16); }));
  EXPECT_TRUE(refused(Arch::sm_89, [] { hw::mbarrier_wait(barrier_at(0), 0); }));
}

TEST(Mbarrier, MistakesAreReported) {
  const auto report = [](auto body) {
    return violations({.block = {32}, .shared_bytes = 64}, [=](sim::Thread& me) {
      if (me.index == 0) body();
    });
  };
  EXPECT_FALSE(report([] { hw::mbarrier_arrive(barrier_at(0)); }).clean()) << "not initialised";
  EXPECT_FALSE(report([] { hw::mbarrier_init(barrier_at(4), 1); }).clean()) << "misaligned";
  EXPECT_FALSE(report([] { hw::mbarrier_init(barrier_at(0), 0); }).clean()) << "count";
  EXPECT_FALSE(report([] {
                 hw::mbarrier_init(barrier_at(0), 1);
                 hw::store_shared(barrier_at(0).address, 1u);
               }).clean())
      << "a plain store into it";
  EXPECT_FALSE(report([] {
                 hw::mbarrier_init(barrier_at(0), 2);
                 hw::mbarrier_wait(barrier_at(0), 0);
               }).clean())
      << "nobody arrives";
}

// Every block of a cluster signals the next one's barrier, and reads and writes its memory.
TEST(Cluster, NeighboursMemory) {
  for (const Arch arch : {Arch::sm_90a, Arch::sm_100a, Arch::sm_120a}) {
    const LaunchShape shape{.grid = {8}, .block = {32}, .cluster = {4}, .shared_bytes = 1024};
    run_everywhere(arch, shape, [](sim::Thread& me) {
      const hw::SharedAddress base = hw::shared_memory_base();
      const uint32_t rank = hw::cluster_rank(), next = (rank + 1) % 4, previous = (rank + 3) % 4;
      const Mbarrier barrier = barrier_at(0), bytes = barrier_at(8);
      if (me.index == 0) {
        hw::mbarrier_init(barrier, 32);
        hw::mbarrier_init(bytes, 1);
        hw::fence_mbarrier_init();
        hw::mbarrier_arrive_expect_tx(bytes, 32 * 16 + 8 + 4);
      }
      hw::store_shared(base + 64 + me.index * 4, rank * 1000 + me.index);
      hw::cluster_arrive();
      hw::cluster_wait();
      const auto there = [&](uint32_t offset) { return hw::map_shared_rank(base + offset, next); };
      EXPECT_EQ(hw::rank_of(there(64)), next);
      EXPECT_EQ(hw::rank_of(base), rank);
      EXPECT_EQ(hw::load_cluster<uint32_t>(there(64) + me.index * 4), next * 1000 + me.index);
      hw::store_cluster(there(256) + me.index * 4, rank * 100 + me.index);
      hw::mbarrier_arrive_cluster(there(0));
      hw::Words4 words{{rank, me.index, 7, 9}};
      hw::st_async(there(512) + me.index * 16, words, there(8));
      if (me.index == 0) {
        hw::st_async(there(400), uint64_t{rank} << 40, there(8));
        hw::st_async(there(408), rank, there(8));
      }
      hw::mbarrier_wait<Scope::cluster>(barrier, 0);
      EXPECT_EQ(hw::load_shared<uint32_t>(base + 256 + (31 - me.index) * 4),
                previous * 100 + 31 - me.index);
      hw::mbarrier_wait<Scope::cluster>(bytes, 0);
      const auto got = hw::load_shared<hw::Words4>(base + 512 + (31 - me.index) * 16);
      EXPECT_EQ(got[0], previous);
      EXPECT_EQ(got[1], 31 - me.index);
      EXPECT_EQ(got[3], 9u);
      EXPECT_EQ(hw::load_shared<uint64_t>(base + 400), uint64_t{previous} << 40);
      EXPECT_EQ(hw::load_shared<uint32_t>(base + 408), previous);
      // Nobody leaves while others may still write to it.
      hw::cluster_arrive_relaxed();
      hw::cluster_wait();
    });
  }
  EXPECT_TRUE(refused(Arch::sm_89, [] { hw::cluster_arrive(); }));
  EXPECT_TRUE(refused(Arch::sm_89, [] { hw::map_shared_rank({}, 0); }));
}

}  // namespace
}  // namespace halftone::test
