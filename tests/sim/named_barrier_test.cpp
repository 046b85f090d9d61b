// Named barriers, the cluster barrier, the register pool.
#include "sim/execution/barrier.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include <gtest/gtest.h>

#include "sim/kernels.h"

namespace halftone::test {
namespace {

using sim::barrier_arrive;
using sim::barrier_sync;

template <class Body>
void each_schedule(LaunchShape shape, const Body& body) {
  for (const auto schedule : kSchedules) {
    for (const uint64_t seed : {1, 2, 3, 4}) {
      Stream stream = simulated(Arch::sm_90a, {.schedule = schedule, .seed = seed});
      Body copy = body;  // with its counts at 0
      run(stream, shape, copy);
    }
  }
}

// `rule` is reported once, under every schedule.
template <class Body>
void expect_rule(const char* rule, LaunchShape shape, const Body& body, const char* part = nullptr,
                 uint32_t min_blocks = 1) {
  for (const auto schedule : kSchedules) {
    const auto report = violations(shape, body, {.schedule = schedule}, Arch::sm_90a, min_blocks);
    const SimulatorViolation* found = find(report, rule);
    ASSERT_NE(found, nullptr) << rule << ": " << to_string(report);
    ASSERT_FALSE(found->accesses.empty());
    // A thread that returns without having executed an instruction has no place.
    EXPECT_EQ(found->accesses.back().file, "named_barrier_test.cpp");
    if (part != nullptr) {
      EXPECT_NE(found->text.find(part), std::string::npos) << found->text;
    }
  }
}

TEST(NamedBarrier, NobodyPassesBeforeTheLast) {
  each_schedule({.block = {160}}, [count = 0](sim::Thread&) mutable {
    for (int round = 1; round <= 10; ++round) {
      ++count;
      barrier_sync(0, 0, Site::current());
      EXPECT_EQ(count, 160 * round);
      barrier_sync(1, 160, Site::current());
    }
  });
}

TEST(NamedBarrier, ProducerArrivesConsumerWaits) {
  // Two buffers, the idiom of full and empty barriers.
  each_schedule({.block = {64}}, [values = std::vector<int>(2)](sim::Thread& me) mutable {
    for (uint32_t i = 0; i < 12; ++i) {
      const uint32_t full = 1 + i % 2, empty = 3 + i % 2;
      if (me.warp->index == 0) {
        if (i >= 2) barrier_sync(empty, 64, Site::current());
        if (me.lane == 0) values[i % 2] = static_cast<int>(i);
        sim::warp_sync(sim::kFullMask, Site::current());
        barrier_arrive(full, 64, Site::current());
      } else {
        barrier_sync(full, 64, Site::current());
        EXPECT_EQ(values[i % 2], static_cast<int>(i));
        if (i + 2 < 12) barrier_arrive(empty, 64, Site::current());
      }
    }
  });
}

TEST(NamedBarrier, Reduces) {
  using sim::BarrierReduction;
  each_schedule({.block = {100}}, [](sim::Thread& me) {
    const Site here = Site::current();
    for (uint32_t i = 0; i < 3; ++i) {
      EXPECT_EQ(sim::barrier_reduce(0, 0, me.index < 7 + i, BarrierReduction::population, here),
                7 + i);
      EXPECT_EQ(sim::barrier_reduce(0, 0, me.index != 7, BarrierReduction::all, here), 0u);
      EXPECT_EQ(sim::barrier_reduce(0, 0, true, BarrierReduction::all, here), 1u);
      EXPECT_EQ(sim::barrier_reduce(0, 0, me.index == 99, BarrierReduction::any, here), 1u);
      EXPECT_EQ(sim::barrier_reduce(0, 0, false, BarrierReduction::any, here), 0u);
    }
  });
}

TEST(NamedBarrier, Misuse) {
  expect_rule(
      "barrier.id", {.block = {32}}, [](sim::Thread&) { barrier_sync(16, 32, Site::current()); },
      "barrier 16");
  expect_rule(
      "barrier.count", {.block = {64}}, [](sim::Thread&) { barrier_sync(1, 40, Site::current()); },
      "40");
  expect_rule(
      "barrier.count", {.block = {64}}, [](sim::Thread&) { barrier_sync(1, 96, Site::current()); },
      "96");
  expect_rule("barrier.count", {.block = {64}},
              [](sim::Thread&) { barrier_arrive(1, 0, Site::current()); });
  expect_rule("barrier.count_differs", {.block = {96}}, [](sim::Thread& me) {
    barrier_sync(1, me.warp->index == 0 ? 64 : 96, Site::current());
  });
  expect_rule("barrier.diverged", {.block = {64}}, [](sim::Thread& me) {
    if (me.lane % 2 == 0) {
      barrier_sync(1, 64, Site::current());
    } else {
      barrier_sync(1, 64, Site::current());
    }
  });
  expect_rule("barrier.diverged", {.block = {128}}, [](sim::Thread& me) {
    if (me.lane < 16) barrier_sync(1, 64, Site::current());  // four half warps
  });
  expect_rule("barrier.twice", {.block = {64}}, [](sim::Thread& me) {
    if (me.warp->index != 0) return;
    barrier_arrive(1, 64, Site::current());
    barrier_arrive(1, 64, Site::current());
  });
  expect_rule("barrier.exited", {.block = {64}}, [](sim::Thread& me) {
    if (me.warp->index == 0) return;
    barrier_sync(0, 0, Site::current());
  });
}

TEST(NamedBarrier, LeftOverArrivalIsAWarning) {
  Stream stream = simulated();
  run(stream, {.block = {64}}, [](sim::Thread& me) {
    if (me.warp->index == 0) barrier_arrive(2, 64, Site::current());
  });  // does not throw
  EXPECT_NE(find(simulator_report(stream), "barrier.pending_at_exit"), nullptr);
}

TEST(ClusterBarrier, NobodyPassesBeforeTheLast) {
  each_schedule({.grid = {4}, .block = {64}, .cluster = {4}}, [count = 0](sim::Thread& me) mutable {
    for (int round = 1; round <= 5; ++round) {
      ++count;
      sim::cluster_arrive(round % 2 == 0, Site::current());
      sim::cluster_wait(Site::current());
      EXPECT_GE(count, 256 * round);
      sim::cluster_arrive(true, Site::current());
      barrier_sync(1 + me.warp->index, 32, Site::current());
      sim::cluster_wait(Site::current());
    }
  });
}

TEST(ClusterBarrier, ReturnedThreadsCountAsArrived) {
  each_schedule({.grid = {2}, .block = {32}, .cluster = {2}}, [](sim::Thread&) {
    if (sim::cluster_rank() == 1) return;
    sim::cluster_arrive(true, Site::current());
    sim::cluster_wait(Site::current());
  });
}

TEST(ClusterBarrier, Misuse) {
  const LaunchShape shape{.grid = {2}, .block = {32}, .cluster = {2}};
  expect_rule("cluster.twice", shape, [](sim::Thread&) {
    sim::cluster_arrive(true, Site::current());
    sim::cluster_arrive(true, Site::current());
  });
  expect_rule("cluster.wait_without_arrive", shape,
              [](sim::Thread&) { sim::cluster_wait(Site::current()); });
}

TEST(RegisterPool, ProducerGivesConsumersTake) {
  // 384 threads: 168 each; 128 x (168 - 40) = 16384 given, 256 x (232 - 168) = 16384 taken.
  each_schedule({.block = {384}}, [](sim::Thread& me) {
    if (me.index < 128) {
      sim::setmaxnreg(40, false, Site::current());
    } else {
      sim::setmaxnreg(232, true, Site::current());
    }
  });
}

TEST(RegisterPool, DeadlockShowsTheArithmetic) {
  // The idle fourth warp of the producer's warpgroup keeps its registers.
  expect_rule(
      "setmaxnreg.deadlock", {.block = {384}},
      [](sim::Thread& me) {
        if (me.index < 96) {
          sim::setmaxnreg(40, false, Site::current());
        } else if (me.index >= 128) {
          sim::setmaxnreg(232, true, Site::current());
        }
      },
      "32 x (232 - 168) = 2048 needed, 0 free of the block's 64512");
}

TEST(RegisterPool, Misuse) {
  expect_rule(
      "setmaxnreg.value", {.block = {128}},
      [](sim::Thread&) { sim::setmaxnreg(44, false, Site::current()); }, "44");
  expect_rule(
      "setmaxnreg.direction", {.block = {384}},
      [](sim::Thread&) { sim::setmaxnreg(232, false, Site::current()); }, "168");
}

TEST(NamedBarrier, Cost) {
#if defined(HALFTONE_UCONTEXT) || !defined(NDEBUG) || defined(HALFTONE_SANITIZED)
  GTEST_SKIP() << "switches by ucontext, without optimisation or under a sanitizer have no bound";
#endif
  Stream stream = simulated(Arch::sm_90a, {.severity = Options::Severity::off});
  constexpr int kRounds = 100, kThreads = 384;
  double each = 1e9;  // the best of several: others may use the machine
  run(stream, {.block = {kThreads}}, [&](sim::Thread& me) {
    barrier_sync(0, 0, Site::current());
    for (int repeat = 0; repeat < 10; ++repeat) {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < kRounds; ++i) barrier_sync(0, 0, Site::current());
      const std::chrono::duration<double, std::nano> time =
          std::chrono::steady_clock::now() - begin;
      if (me.index == 0) each = std::min(each, time.count() / (kRounds * kThreads));
    }
  });
  std::printf("barrier of %d threads: %.1f ns a thread\n", kThreads, each);
  EXPECT_LT(each, 200);  // a switch of fibers and what the barrier keeps of a thread
}

}  // namespace
}  // namespace halftone::test
