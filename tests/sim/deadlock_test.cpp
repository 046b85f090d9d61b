// What a deadlock report says: who waits for what, who arrived last, who is missing.
#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "sim/execution/arrivals.h"
#include "sim/kernels.h"
#include "sim/memory/memory.h"

namespace halftone::test {
namespace {

// The text of the deadlock, under a given schedule.
template <class Body>
std::string deadlock(LaunchShape shape, const Body& body,
                     Options::Schedule schedule = Options::Schedule::fifo) {
  const auto report = violations(shape, body, {.schedule = schedule, .seed = 3});
  const SimulatorViolation* found = find(report, "deadlock");
  EXPECT_NE(found, nullptr) << to_string(report);
  return found == nullptr ? "" : to_string(*found);
}

void expect_parts(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << '"' << part << "\" in\n" << text;
  }
}

// A producer warp and two consumer warps over one buffer; consumer 2 forgets to hand it back once.
TEST(Deadlock, NamesTheMissingArrival) {
  for (const auto schedule : kSchedules) {
    const std::string text = deadlock(
        {.block = {96}},
        [](sim::Thread& me) {
          sim::set_role(me.warp->index == 0 ? "producer" : "consumer");
          for (int i = 0; i < 4; ++i) {
            if (me.warp->index == 0) {
              if (i > 0) sim::barrier_sync(2, 96, Site::current());  // empty
              sim::barrier_arrive(1, 96, Site::current());           // full
            } else {
              sim::barrier_sync(1, 96, Site::current());
              const bool forgets = me.warp->index == 2 && i == 1;
              if (i < 3 && !forgets) sim::barrier_arrive(2, 96, Site::current());
            }
          }
        },
        schedule);
    expect_parts(
        text, {"warp 0 (producer): waits in bar.sync at deadlock_test.cpp:",
               "barrier 2, phase 1: 64 of 96 threads have arrived",
               "missing, by the phase before: warp 2 (consumer), which made 32 arrivals "
               "then, last at deadlock_test.cpp:",
               "now waiting in bar.sync", "(consumer): waits in bar.sync", "barrier 1, phase 2: "});
  }
}

// Lanes of a producer that wait for an empty stage and do nothing then: one that is two phases late
// waits for ever. The lane that fills is needed, and cannot be late.
TEST(Deadlock, LanesThatOnlyWait) {
  constexpr uint32_t kRounds = 9;
  const auto found = [](bool fixed, uint64_t seed) {
    const auto body = [fixed](sim::Thread& me) {
      const uint32_t full = sim::shared_memory_base(*me.block), empty = full + 8;
      if (me.index == 0) {
        for (const uint32_t barrier : {full, empty}) {
          sim::mbarrier_init(me, barrier, 1, Site::current());
        }
      }
      sim::barrier_sync(0, 0, Site::current());
      const auto wait = [&](uint32_t barrier, uint32_t parity) {
        while (!sim::mbarrier_try_wait(me, barrier, parity, sim::Order::acquire,
                                       sim::MemoryScope::cta, Site::current())) {
        }
      };
      if (me.warp->index == 0 ? fixed && me.lane != 0 : me.lane != 0) return;
      for (uint32_t i = 0; i < kRounds; ++i) {
        if (me.warp->index == 0) {
          wait(empty, (i & 1) ^ 1);
          if (me.lane == 0) sim::mbarrier_arrive(me, full, {}, Site::current());
        } else {
          wait(full, i & 1);
          sim::mbarrier_arrive(me, empty, {}, Site::current());
        }
      }
    };
    const auto report = violations({.block = {64}, .shared_bytes = 1024}, body,
                                   {.schedule = Options::Schedule::adversarial, .seed = seed});
    return find(report, "deadlock") != nullptr ||
           find(report, "mbarrier.phase_aliasing") != nullptr;
  };
  int seen = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    seen += found(false, seed) ? 1 : 0;
    EXPECT_FALSE(found(true, seed)) << seed;
  }
  EXPECT_GE(seen, 5);
}

// A ring of two stages over mbarriers: one of two consumer warps forgets an arrival in round 1.
TEST(Deadlock, NamesTheMissingArrivalOfAnMbarrier) {
  for (const auto schedule : kSchedules) {
    const LaunchShape shape{.grid = {1}, .block = {96}, .cluster = {1}, .shared_bytes = 1024};
    const std::string text = deadlock(
        shape,
        [](sim::Thread& me) {
          const uint32_t base = sim::shared_memory_base(*me.block);
          const auto full = [&](uint32_t stage) { return base + 8 * stage; };
          const auto empty = [&](uint32_t stage) { return base + 16 + 8 * stage; };
          if (me.index == 0) {
            for (uint32_t s = 0; s < 2; ++s) {
              sim::mbarrier_init(me, full(s), 1, Site::current());
              sim::mbarrier_init(me, empty(s), 2, Site::current());
              sim::name_barrier(me, full(s), "full[" + std::to_string(s) + "]");
              sim::name_barrier(me, empty(s), "empty[" + std::to_string(s) + "]");
            }
          }
          sim::barrier_sync(0, 0, Site::current());
          const auto wait = [&](uint32_t barrier, uint32_t parity, const Site& site) {
            while (!sim::mbarrier_try_wait(me, barrier, parity, sim::Order::acquire,
                                           sim::MemoryScope::cta, site)) {
            }
          };
          if (me.lane != 0) return;
          sim::set_role(me.warp->index == 0 ? "producer" : "consumer");
          for (uint32_t i = 0; i < 8; ++i) {
            const uint32_t stage = i % 2, parity = i / 2 % 2;
            if (me.warp->index == 0) {
              wait(empty(stage), parity ^ 1, Site::current());
              sim::mbarrier_arrive(me, full(stage), {}, Site::current());
            } else {
              wait(full(stage), parity, Site::current());
              if (me.warp->index == 2 && i == 3) continue;  // round 1, stage 1
              sim::mbarrier_arrive(me, empty(stage), {}, Site::current());
            }
          }
        },
        schedule);
    expect_parts(text, {"warp 0 (producer) lane 0: waits in mbarrier.try_wait", "empty[1]",
                        "1 of 2 arrivals missing",
                        "missing, by the phase before: warp 2 (consumer), which made 1 arrival",
                        "warps 1-2 (consumer), 2 threads: waits in mbarrier.try_wait", "full["});
  }
}

TEST(Deadlock, OneLinePerRole) {
  const std::string text = deadlock({.block = {256}}, [](sim::Thread& me) {
    if (me.index < 128) {
      sim::set_role("load");
      sim::barrier_sync(1, 256, Site::current());
    } else {
      sim::set_role("math");
      sim::barrier_sync(2, 256, Site::current());
    }
  });
  expect_parts(text, {"warps 0-3 (load): waits in bar.sync", "warps 4-7 (math): waits in bar.sync",
                      "barrier 1, phase 0: 128 of 256",
                      "no phase has completed yet; could still arrive: warps 4-7 (math), now "
                      "waiting in bar.sync at deadlock_test.cpp"});
  // Two groups, so two lines that say "waits in", and the two accesses of the report.
  size_t lines = 0;
  for (size_t at = 0; (at = text.find("waits in bar.sync", at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(lines, 4u) << text;
}

TEST(Deadlock, ClusterBarrierNamesTheRank) {
  const std::string text =
      deadlock({.grid = {2}, .block = {64}, .cluster = {2}}, [](sim::Thread& me) {
        sim::cluster_arrive(true, Site::current());
        sim::cluster_wait(Site::current());
        if (sim::cluster_rank() == 1 && me.warp->index == 1) {
          sim::barrier_sync(5, 64, Site::current());
        }
        sim::cluster_arrive(true, Site::current());
        sim::cluster_wait(Site::current());
      });
  expect_parts(text,
               {"cluster barrier, phase 1: 96 of 128", "rank 1",
                "missing, by the phase before: warp 1 of rank 1",
                "now waiting in bar.sync at deadlock_test.cpp", "barrier 5, phase 0: 32 of 64"});
}

TEST(Deadlock, WarpWithoutOneLane) {
  const std::string text = deadlock({.block = {64}}, [](sim::Thread& me) {
    if (me.index == 17) {
      sim::barrier_sync(3, 32, Site::current());
    } else if (me.index < 32) {
      sim::warp_sync(sim::kFullMask, Site::current());
    }
  });
  expect_parts(text, {"lanes 0x00020000 of warp 0 are missing (lane 17 waits in bar.sync",
                      "of warp 0 only 1 lanes have arrived", "warp 1: returned from the kernel"});
}

TEST(Deadlock, EveryFiberLeavesThroughItsDestructors) {
  // Blocks run on several threads, and the report may stop some before all their fibers began.
  std::atomic<int> began = 0, left = 0;
  struct Count {
    std::atomic<int>& left;
    ~Count() { ++left; }
  };
  deadlock({.grid = {3}, .block = {64}}, [&](sim::Thread& me) {
    ++began;
    const Count count{left};
    if (me.index != 0 || sim::block_index().x != 0) sim::barrier_sync(1, 64, Site::current());
    if (me.index == 0 && sim::block_index().x == 0) sim::barrier_sync(2, 64, Site::current());
  });
  EXPECT_EQ(left, began);
  EXPECT_GE(began, 64);  // all of the block that hangs
}

TEST(Arrivals, AddUpAndRemember) {
  Stream stream = simulated();
  run(stream, {.block = {128}}, [](sim::Thread& me) {
    sim::barrier_sync(0, 0, Site::current());
    if (me.index != 127) return;
    const Site here = Site::current();
    sim::Arrivals arrivals;
    EXPECT_NE(arrivals.text().find("no arrival in this phase; no phase has completed"),
              std::string::npos);
    for (uint32_t t = 0; t < 128; ++t) arrivals.arrived(&me.block->threads[t], here);
    arrivals.completed();
    for (uint32_t t = 0; t < 100; ++t) arrivals.arrived(&me.block->threads[t], here);
    arrivals.arrived(nullptr, here);
    const std::string text = arrivals.text();
    EXPECT_NE(text.find("warps 0-3 made 100 arrivals"), std::string::npos) << text;
    EXPECT_NE(text.find("asynchronous work made 1 arrival"), std::string::npos) << text;
    EXPECT_NE(text.find("missing, by the phase before: warp 3, which made 28 arrivals then"),
              std::string::npos)
        << text;
  });
}

}  // namespace
}  // namespace halftone::test
