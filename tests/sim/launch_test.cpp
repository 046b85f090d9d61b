// Grids, clusters, limits, independence of the number of OS threads, polling across clusters.
#include <algorithm>
#include <atomic>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "halftone/error.h"
#include "halftone/tensor.h"
#include "sim/kernels.h"
#include "sim/memory/device_memory.h"

namespace halftone::test {
namespace {

TEST(Launch, DevicesAreNamed) {
  EXPECT_EQ(Device::parse("sim:sm_90a"), Device::simulator(Arch::sm_90a));
  EXPECT_EQ(Device::simulator(Arch::sm_120a).name(), "sim:sm_120a");
  EXPECT_EQ(properties(Device::simulator(Arch::sm_89)).shared_per_block, 99 * 1024);
  EXPECT_EQ(properties(Device::simulator(Arch::sm_100a)).shared_per_block, 227 * 1024);
}

TEST(Launch, EveryThreadRunsOnceWithItsIndices) {
  for (const auto schedule : kSchedules) {
    Stream stream = simulated(Arch::sm_90a, {.schedule = schedule});
    const LaunchShape shape{.grid = {6, 2, 3}, .block = {8, 5, 1}, .cluster = {2, 1, 1}};
    std::vector<int> seen(shape.grid.count() * shape.block.count());
    run(stream, shape, [&](sim::Thread& me) {
      const Dim3 b = sim::block_index(), t = sim::thread_index();
      const uint64_t block = b.x + 6 * (b.y + 2 * b.z);
      ++seen[block * 40 + t.x + 8 * t.y];
      EXPECT_EQ(sim::cluster_rank(), b.x % 2);
      EXPECT_EQ(sim::cluster_size(), 2u);
      EXPECT_EQ(me.index, t.x + 8 * t.y);
      EXPECT_EQ(me.lane, me.index % 32);
    });
    EXPECT_EQ(std::accumulate(seen.begin(), seen.end(), 0), int(seen.size()));
    EXPECT_EQ(*std::max_element(seen.begin(), seen.end()), 1);
  }
}

TEST(Launch, RefusesWhatTheChipLacks) {
  const auto message = [](Arch arch, LaunchShape shape) {
    Stream stream = simulated(arch);
    try {
      run(stream, shape, [](sim::Thread&) {});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message(Arch::sm_80,
                    {
                        .block = {32},
                        .cluster = {2},
                    })
                .find("cluster"),
            std::string::npos);
  EXPECT_NE(message(Arch::sm_120a, {.block = {32}, .shared_bytes = 100 * 1024}).find("102400"),
            std::string::npos);
  EXPECT_EQ(message(Arch::sm_100a, {.block = {32}, .shared_bytes = 227 * 1024}), "");
  EXPECT_NE(message(Arch::sm_90a, {.grid = {3}, .block = {32}, .cluster = {2}}), "");
  EXPECT_NE(message(Arch::sm_90a, {.grid = {16}, .block = {32}, .cluster = {16}}), "");
}

// Split-K in its usual form: clusters wait their turn on a semaphore in global memory, and there
// are more clusters than OS threads. A later cluster may wait for an earlier one and the other way
// round.
TEST(Launch, ClustersThatPollMakeRoomForOthers) {
  for (const auto schedule : kSchedules) {
    for (const bool reverse : {false, true}) {
      Stream stream = simulated(Arch::sm_90a, {.schedule = schedule}, 2);
      std::atomic<uint32_t> turn{0};
      std::vector<uint32_t> order;
      constexpr uint32_t kBlocks = 20;
      run(stream, {.grid = {kBlocks}, .block = {64}}, [&](sim::Thread& me) {
        const uint32_t block = sim::block_index().x;
        const uint32_t mine = reverse ? kBlocks - 1 - block : block;
        if (me.index == 0) {
          while (turn.load() != mine) sim::spin(Site::current());
          order.push_back(block);
          turn.store(mine + 1);
        }
        sim::barrier_sync(0, 0, Site::current());
      });
      ASSERT_EQ(order.size(), kBlocks);
      for (uint32_t i = 0; i < kBlocks; ++i) EXPECT_EQ(order[i], reverse ? kBlocks - 1 - i : i);
    }
  }
}

TEST(Launch, PollingForWhatNeverComesIsAHang) {
  std::atomic<uint32_t> flag{0};
  const auto report = violations({.grid = {3}, .block = {32}}, [&](sim::Thread& me) {
    sim::set_role("consumer");
    while (me.index == 0 && flag.load() == 0) {
      sim::spin(Site::current());  // a failed test, and a nap
      sim::spin(Site::current());
    }
    sim::warp_sync(sim::kFullMask, Site::current());
  });
  const SimulatorViolation* hang = find(report, "hang");
  ASSERT_NE(hang, nullptr) << to_string(report);
  EXPECT_NE(hang->text.find("polls at launch_test.cpp"), std::string::npos) << hang->text;
  EXPECT_NE(hang->text.find("(consumer)"), std::string::npos);
  EXPECT_NE(hang->text.find("bar.warp.sync"), std::string::npos);
}

TEST(Launch, ClustersBeyondTheChipDoNotStart) {
  // 132 SMs hold one block of 200 KB each; block 132 would have to run to release the first.
  std::atomic<uint32_t> flag{0};
  const LaunchShape shape{.grid = {133}, .block = {32}, .shared_bytes = 200 * 1024};
  const auto report = violations(shape, [&](sim::Thread& me) {
    if (sim::block_index().x == 132) flag.store(1);
    while (me.index == 0 && flag.load() == 0) sim::spin(Site::current());
  });
  const SimulatorViolation* hang = find(report, "hang");
  ASSERT_NE(hang, nullptr) << to_string(report);
  EXPECT_NE(hang->text.find("1 of 133 clusters not started"), std::string::npos) << hang->text;
}

TEST(Launch, TooManyStepsAreAHang) {
  const auto report = violations({.block = {64}},
                                 [&](sim::Thread&) {
                                   for (;;) sim::barrier_sync(0, 0, Site::current());
                                 },
                                 {.step_limit = 10000});
  ASSERT_NE(find(report, "hang"), nullptr);
  EXPECT_NE(report.violations[0].text.find("scheduling steps"), std::string::npos);
}

// The same seed gives the same run whatever the number of OS threads.
TEST(Launch, SeedDecidesNotTheThreads) {
  const auto trace = [](int threads, uint64_t seed) {
    Stream stream =
        simulated(Arch::sm_90a, {.schedule = Options::Schedule::random, .seed = seed}, threads);
    constexpr uint32_t kBlocks = 8;
    std::vector<std::vector<uint32_t>> order(kBlocks);
    run(stream, {.grid = {kBlocks}, .block = {128}}, [&](sim::Thread& me) {
      std::vector<uint32_t>& mine = order[sim::block_index().x];
      mine.push_back(me.index);
      sim::barrier_sync(1, 128, Site::current());
      mine.push_back(me.index);
      mine.push_back(sim::elect_leader(sim::kFullMask, Site::current()));
    });
    return order;
  };
  EXPECT_EQ(trace(1, 5), trace(3, 5));
  EXPECT_EQ(trace(2, 5), trace(2, 5));
  EXPECT_NE(trace(1, 5), trace(1, 6));
}

TEST(Launch, ErrorCarriesRuleSeedAndPlace) {
  Stream stream = simulated(Arch::sm_90a, {.schedule = Options::Schedule::random, .seed = 77});
  try {
    run(stream, {.block = {64}}, [](sim::Thread&) { sim::barrier_sync(16, 0, Site::current()); });
    FAIL() << "no error";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.code(), ErrorCode::device);
    for (const char* part : {"test_kernel", "barrier.id", "seed=77", "launch_test.cpp:", "warp"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
    }
  }
  // The stream and its stacks serve the next launch as if nothing had been.
  int ran = 0;
  run(stream, {.block = {64}}, [&](sim::Thread&) { ++ran; });
  EXPECT_EQ(ran, 64);
}

TEST(Launch, ExceptionsOfModelsAreReported) {
  const auto report = violations({.block = {32}}, [](sim::Thread& me) {
    if (me.lane == 3) throw Error(ErrorCode::invalid_argument, "model refuses 7");
    sim::warp_sync(sim::kFullMask, Site::current());
  });
  const SimulatorViolation* violation = find(report, "kernel.exception");
  ASSERT_NE(violation, nullptr) << to_string(report);
  EXPECT_NE(violation->text.find("model refuses 7"), std::string::npos);
}

TEST(Launch, OptionsAreWords) {
  const Options options = parse_simulator_options("strict,fast,random,seed=7");
  EXPECT_EQ(options.severity, Options::Severity::strict);
  EXPECT_EQ(options.numerics, Options::Numerics::fast);
  EXPECT_EQ(options.schedule, Options::Schedule::random);
  EXPECT_EQ(options.seed, 7u);
  EXPECT_EQ(to_string(options), "strict,fast,random,seed=7");
  EXPECT_THROW(parse_simulator_options("stricter"), Error);
  EXPECT_THROW(parse_simulator_options("seed=x"), Error);
  Stream cpu;
  EXPECT_THROW(configure(cpu, {}), Error);
}

TEST(Launch, ProgrammaticLaunchMustWait) {
  const LaunchShape shape{.block = {32}, .programmatic = true};
  const auto broken =
      violations(shape, [](sim::Thread&) {}, {.severity = Options::Severity::strict});
  EXPECT_NE(find(broken, "launch.no_dependency_wait"), nullptr) << to_string(broken);
  const auto good =
      violations(shape, [](sim::Thread&) { sim::grid_dependency_wait(Site::current()); },
                 {.severity = Options::Severity::strict});
  EXPECT_TRUE(good.clean()) << to_string(good);
}

// 40,000 threads alive at a time: more stacks than a process may have guard pages.
TEST(Launch, WholeGridAtABarrierInGlobalMemory) {
#if defined(HALFTONE_SANITIZED)
  constexpr uint32_t kBlocks = 2;  // tsan allows 8128 fibers
#else
  constexpr uint32_t kBlocks = 40;
#endif
  Stream stream = simulated(Arch::sm_90a, {.severity = Options::Severity::off});
  std::atomic<uint32_t> arrived{0};
  run(stream, {.grid = {kBlocks}, .block = {1024}}, [&](sim::Thread& me) {
    if (me.index == 0) ++arrived;
    while (me.index == 0 && arrived.load() < kBlocks) sim::spin(Site::current());
    sim::barrier_sync(0, 0, Site::current());
  });
  EXPECT_EQ(arrived.load(), kBlocks);
}

TEST(Launch, ExceptionsOfAsynchronousWorkAreReported) {
  struct Work final : sim::AsyncWork {
    void run() override { throw Error(ErrorCode::invalid_argument, "work refuses 8"); }
    std::string text() const override { return "work"; }
  };
  const auto report = violations({.block = {64}}, [](sim::Thread& me) {
    if (me.index == 0) sim::add_async(sim::cluster_of(me), std::make_unique<Work>());
    sim::barrier_sync(0, 0, Site::current());
    sim::barrier_sync(1, 64, Site::current());
  });
  ASSERT_NE(find(report, "kernel.exception"), nullptr) << to_string(report);
  EXPECT_NE(to_string(report).find("work refuses 8"), std::string::npos);
}

TEST(Launch, RedZonesAndFreedMemoryAreKnown) {
  const Device device = Device::simulator(Arch::sm_90a);
  Tensor tensor = Tensor::empty({10}, Format::f32, device);
  const auto* data = static_cast<const uint8_t*>(tensor.data());
  const sim::Allocation* allocation = sim::find_allocation(data);
  ASSERT_NE(allocation, nullptr);
  EXPECT_TRUE(allocation->contains(data + 36, 4));
  EXPECT_FALSE(allocation->contains(data + 38, 4));
  EXPECT_EQ(sim::find_allocation(data + 40), allocation);
  EXPECT_EQ(sim::find_allocation(data - 1), allocation);
  EXPECT_FALSE(allocation->contains(data - 1, 1));
  EXPECT_FALSE(allocation->freed);
  tensor = {};
  ASSERT_EQ(sim::find_allocation(data), allocation);
  EXPECT_TRUE(allocation->freed);
  EXPECT_EQ(*data, 0xff);  // what a late read would see
}

TEST(Launch, MemoryOfTheDevice) {
  const Device device = Device::simulator(Arch::sm_80);
  Tensor host = Tensor::from({1, 2, 3, 4}, {4});
  const Tensor there = host.to(device);
  EXPECT_EQ(there.device(), device);
  EXPECT_EQ(there.to(Device::cpu()).at({2}), 3.0f);
}

}  // namespace
}  // namespace halftone::test
