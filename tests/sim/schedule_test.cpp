// Schedules: who runs next, and when asynchronous work does.
#include "sim/execution/schedule.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/kernels.h"

namespace halftone::test {
namespace {

class Work final : public sim::AsyncWork {
 public:
  Work(
      std::function<void()> run, std::function<bool()> ready = [] { return true; })
      : run_(std::move(run)), ready_(std::move(ready)) {}
  bool ready() const override { return ready_(); }
  void run() override { run_(); }
  std::string text() const override { return "test work"; }

 private:
  std::function<void()> run_;
  std::function<bool()> ready_;
};

class TestWait final : public sim::Waiting {
 public:
  explicit TestWait(const Site& site) : Waiting("test.wait", site) {}
  std::string text() const override { return "a test's flag"; }
};

void add(std::function<void()> run) {
  sim::add_async(sim::cluster_of(sim::self()), std::make_unique<Work>(std::move(run)));
}

// The order in which 4 warps pass 3 places where they may be overtaken.
std::vector<uint32_t> order_of(Options::Schedule schedule, uint64_t seed) {
  Stream stream = simulated(Arch::sm_90a, {.schedule = schedule, .seed = seed});
  std::vector<uint32_t> order;
  run(stream, {.block = {128}}, [&](sim::Thread& me) {
    for (int i = 0; i < 3; ++i) {
      order.push_back(me.index);
      sim::schedule_point();
    }
    sim::barrier_sync(0, 0, Site::current());
    order.push_back(me.index);
  });
  return order;
}

TEST(Schedule, FifoIsInOrder) {
  const std::vector<uint32_t> order = order_of(Options::Schedule::fifo, 1);
  ASSERT_EQ(order.size(), 512u);
  for (uint32_t i = 0; i < 384; ++i) EXPECT_EQ(order[i], i / 3);
  EXPECT_EQ(order, order_of(Options::Schedule::fifo, 2));
}

TEST(Schedule, SeedsGiveOtherOrdersAndRepeat) {
  for (const auto schedule : {Options::Schedule::random, Options::Schedule::adversarial}) {
    std::set<std::vector<uint32_t>> orders;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      orders.insert(order_of(schedule, seed));
      EXPECT_EQ(order_of(schedule, seed), order_of(schedule, seed));
    }
    EXPECT_EQ(orders.size(), 20u);
  }
}

// One thread begins when all others have ended.
TEST(Schedule, AdversarialLeavesALaneBehind) {
  constexpr uint32_t kThreads = 64, kPlaces = 64;
  const auto one_is_late = [](Options::Schedule schedule, uint64_t seed) {
    Stream stream = simulated(Arch::sm_90a, {.schedule = schedule, .seed = seed});
    std::vector<uint32_t> order;
    run(stream, {.block = {kThreads}}, [&](sim::Thread& me) {
      for (uint32_t i = 0; i < kPlaces; ++i) {
        order.push_back(me.index);
        sim::schedule_point();
      }
    });
    return std::all_of(order.end() - kPlaces, order.end(),
                       [&](uint32_t index) { return index == order.back(); });
  };
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_TRUE(one_is_late(Options::Schedule::adversarial, seed)) << seed;
    EXPECT_FALSE(one_is_late(Options::Schedule::random, seed)) << seed;
  }
}

// Which of: before anything else runs, in the middle, or when nothing else can run.
TEST(Schedule, WorkRunsEarlyAndLate) {
  for (const auto schedule : kSchedules) {
    std::set<uint32_t> moments;
    for (uint64_t seed = 0; seed < 40; ++seed) {
      Stream stream = simulated(Arch::sm_90a, {.schedule = schedule, .seed = seed});
      uint32_t passed = 0, at = 1000;
      run(stream, {.block = {256}}, [&](sim::Thread& me) {
        if (me.index == 0) add([&] { at = passed; });
        sim::barrier_sync(1 + me.warp->index, 32, Site::current());
        ++passed;
      });
      EXPECT_LE(at, 256u);
      moments.insert(at);
    }
    if (schedule == Options::Schedule::fifo) {
      EXPECT_EQ(moments, std::set<uint32_t>{256});
    } else {
      EXPECT_TRUE(moments.contains(0) || *moments.begin() < 32);
      EXPECT_GT(*moments.rbegin(), 200u);
    }
  }
}

TEST(Schedule, WorkWakesWhoWaits) {
  for (const auto schedule : kSchedules) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      Stream stream = simulated(Arch::sm_90a, {.schedule = schedule, .seed = seed});
      run(stream, {.block = {64}}, [](sim::Thread& me) {
        bool done = false;
        sim::WaitQueue queue;
        add([&] { done = true, queue.wake_all(); });
        TestWait waiting(Site::current());
        sim::wait_until(queue, waiting, [&] { return done; });
        EXPECT_TRUE(done);
        EXPECT_LT(me.index, 64u);
      });
    }
  }
}

// Work that must follow other work, and work that work adds.
TEST(Schedule, WorkKeepsItsOrder) {
  for (const auto schedule : kSchedules) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      Stream stream = simulated(Arch::sm_90a, {.schedule = schedule, .seed = seed});
      std::string log;
      run(stream, {.block = {1}}, [&](sim::Thread& me) {
        sim::Cluster& cluster = sim::cluster_of(me);
        sim::add_async(cluster,
                       std::make_unique<Work>([&] { log += "2"; }, [&] { return log == "1"; }));
        sim::add_async(cluster, std::make_unique<Work>([&log, &cluster] {
                         log += "1";
                         sim::add_async(cluster,
                                        std::make_unique<Work>([&log] { log += "3"; },
                                                               [&log] { return log == "12"; }));
                       }));
      });
      EXPECT_EQ(log, "123");
    }
  }
}

TEST(Schedule, WorkThatNeverBecomesReadyIsADeadlock) {
  const auto report = violations({.block = {32}}, [](sim::Thread& me) {
    if (me.lane != 0) return;
    sim::add_async(sim::cluster_of(me), std::make_unique<Work>([] {}, [] { return false; }));
  });
  const SimulatorViolation* found = find(report, "deadlock");
  ASSERT_NE(found, nullptr) << to_string(report);
  EXPECT_NE(found->text.find("asynchronous: test work"), std::string::npos);
}

TEST(Schedule, FatalInWorkStopsTheLaunch) {
  for (const auto schedule : kSchedules) {
    const auto report = violations(
        {.block = {64}},
        [](sim::Thread& me) {
          if (me.index == 0) {
            sim::Thread* issuer = &me;
            const Site site = Site::current();
            add([issuer, site] { sim::fatal(*issuer, "test.fatal", site, "works", "a reason"); });
          }
          sim::barrier_sync(1, 64, Site::current());
          if (me.index == 1) sim::barrier_sync(2, 64, Site::current());
        },
        {.schedule = schedule});
    EXPECT_NE(find(report, "test.fatal"), nullptr) << to_string(report);
  }
}

// Pollers within a cluster give way to everybody else and to work.
TEST(Schedule, PollersGiveWay) {
  for (const auto schedule : kSchedules) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      Stream stream = simulated(Arch::sm_90a, {.schedule = schedule, .seed = seed});
      bool flag = false, arrived = false;
      run(stream, {.block = {64}}, [&](sim::Thread& me) {
        if (me.warp->index == 0) {
          while (!flag) sim::spin(Site::current());
          EXPECT_TRUE(arrived);
        } else {
          sim::barrier_sync(1, 32, Site::current());
          arrived = true;
          if (me.lane == 31) add([&] { flag = true; });
        }
      });
    }
  }
}

TEST(Schedule, ReportsCountTheSameFindingOnce) {
  Options options{.throws = false};
  Stream stream = simulated(Arch::sm_90a, options);
  const auto body = [](sim::Thread& me) {
    sim::report(me, sim::Level::error, "test.error", Site::current(), "acts", "a finding");
    sim::report(me, sim::Level::strict, "test.strict", Site::current(), "acts", "the letter");
    sim::report(me, sim::Level::warning, "test.warning", Site::current(), "acts", "likely");
  };
  run(stream, {.grid = {3}, .block = {32}}, body);
  const SimulatorReport& report = simulator_report(stream);
  ASSERT_EQ(report.violations.size(), 2u);  // not the strict one
  EXPECT_EQ(find(report, "test.error")->count, 96u);
  EXPECT_EQ(find(report, "test.error")->accesses[0].block, 0u);

  options.severity = Options::Severity::strict;
  configure(stream, options);
  clear_simulator_report(stream);
  run(stream, {.block = {32}}, body);
  EXPECT_EQ(simulator_report(stream).violations.size(), 3u);

  options.severity = Options::Severity::off;
  configure(stream, options);
  clear_simulator_report(stream);
  run(stream, {.block = {32}}, body);
  EXPECT_TRUE(simulator_report(stream).clean());
}

}  // namespace
}  // namespace halftone::test
