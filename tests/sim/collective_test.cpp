// Warp and warpgroup collectives: results, and every way to misuse them.
#include "sim/execution/collective.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "sim/kernels.h"

namespace halftone::test {
namespace {

using sim::kFullMask;
using sim::warp_sync;

struct Value {
  uint64_t in, out;
};

// Every lane receives the sum over the lanes of the mask.
uint64_t sum(uint32_t mask, uint64_t in, const Site& site, const sim::Uniform& uniform = {}) {
  Value mine{in, 0};
  sim::warp_collective(
      "test.sum", mask, mine,
      [](const sim::Lanes<Value>& lanes) {
        uint64_t total = 0;
        for (const uint32_t i : lanes) total += lanes[i].in;
        for (const uint32_t i : lanes) lanes[i].out = total;
      },
      site, uniform);
  return mine.out;
}

TEST(Collective, EveryLaneTakesPartOnce) {
  for (const auto schedule : kSchedules) {
    for (const uint64_t seed : {1, 2, 3}) {
      Stream stream = simulated(Arch::sm_90a, {.schedule = schedule, .seed = seed});
      run(stream, {.block = {96}}, [](sim::Thread& me) {
        for (uint64_t i = 0; i < 20; ++i) {
          EXPECT_EQ(sum(kFullMask, me.lane + i, Site::current()), 496 + 32 * i);
        }
      });
    }
  }
}

TEST(Collective, MasksAreIndependentMeetings) {
  for (const auto schedule : kSchedules) {
    Stream stream = simulated(Arch::sm_90a, {.schedule = schedule});
    run(stream, {.block = {64}}, [](sim::Thread& me) {
      const uint32_t mask = me.lane < 8 ? 0xffu : 0xffffff00u;
      for (uint32_t i = 0; i < 3; ++i) {
        EXPECT_EQ(sum(mask, 1, Site::current()), me.lane < 8 ? 8u : 24u);
      }
      if (me.lane == 5) {
        EXPECT_EQ(sum(1u << 5, 9, Site::current()), 9u);
      }
      warp_sync(kFullMask, Site::current());
    });
  }
}

TEST(Collective, PartialWarpMeetsAmongItsOwn) {
  Stream stream = simulated();
  run(stream, {.block = {40}}, [](sim::Thread& me) {
    EXPECT_EQ(sum(kFullMask, 1, Site::current()), me.index < 32 ? 32u : 8u);
  });
}

TEST(Collective, WarpgroupOf128) {
  for (const auto schedule : kSchedules) {
    Stream stream = simulated(Arch::sm_90a, {.schedule = schedule});
    run(stream, {.block = {256}}, [](sim::Thread& me) {
      for (uint64_t i = 0; i < 5; ++i) {
        Value mine{me.index + i, 0};
        sim::warpgroup_collective(
            "test.group", mine,
            [](const sim::GroupLanes<Value>& lanes) {
              uint64_t total = 0;
              for (uint32_t t = 0; t < lanes.size(); ++t) total += lanes[t].in;
              for (uint32_t t = 0; t < lanes.size(); ++t) lanes[t].out = total;
            },
            Site::current());
        EXPECT_EQ(mine.out, 128 * 127 / 2 + 128 * i + (me.index < 128 ? 0 : 128 * 128));
      }
    });
  }
}

TEST(Collective, ElectIsUniformAndVariesWithTheSeed) {
  std::set<uint32_t> leaders;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Stream stream = simulated(Arch::sm_90a, {.seed = seed});
    std::vector<uint32_t> of(64);
    run(stream, {.block = {64}}, [&](sim::Thread& me) {
      of[me.index] = sim::elect_leader(kFullMask, Site::current());
      if (me.lane >= 4 && me.lane < 8) {
        const uint32_t leader = sim::elect_leader(0xf0, Site::current());
        EXPECT_TRUE(leader >= 4 && leader < 8);
      }
    });
    for (const uint32_t leader : of) EXPECT_EQ(leader, of[0]);
    leaders.insert(of[0]);
  }
  EXPECT_GT(leaders.size(), 15u);
}

// One fatal violation of `rule` with both sites in this file, and under every schedule.
template <class Body>
void expect_rule(const char* rule, LaunchShape shape, const Body& body, size_t accesses = 2) {
  for (const auto schedule : kSchedules) {
    const auto report = violations(shape, body, {.schedule = schedule, .seed = 9});
    const SimulatorViolation* found = find(report, rule);
    ASSERT_NE(found, nullptr) << rule << ": " << to_string(report);
    EXPECT_EQ(found->level, SimulatorViolation::Level::fatal);
    ASSERT_EQ(found->accesses.size(), accesses);
    for (const auto& access : found->accesses) {
      EXPECT_EQ(access.file, "collective_test.cpp");
      EXPECT_GT(access.line, 0u);
      EXPECT_EQ(access.role, "worker");
    }
  }
}

TEST(Collective, SitesMustAgree) {
  expect_rule("collective.site", {.block = {32}}, [](sim::Thread& me) {
    sim::set_role("worker");
    if (me.lane < 16) {
      sum(kFullMask, 1, Site::current());
    } else {
      sum(kFullMask, 1, Site::current());
    }
  });
}

TEST(Collective, InstructionsMustAgree) {
  expect_rule("collective.instruction", {.block = {32}}, [](sim::Thread& me) {
    sim::set_role("worker");
    const Site here = Site::current();
    if (me.lane == 7) {
      warp_sync(kFullMask, here);
    } else {
      sum(kFullMask, 1, here);
    }
  });
}

TEST(Collective, UniformOperandsMustAgree) {
  expect_rule("collective.uniform", {.block = {32}}, [](sim::Thread& me) {
    sim::set_role("worker");
    sum(kFullMask, 1, Site::current(), {{{"columns", me.lane == 31 ? 64u : 128u}}});
  });
}

TEST(Collective, LaneOutsideItsMask) {
  expect_rule(
      "collective.mask", {.block = {32}},
      [](sim::Thread&) {
        sim::set_role("worker");
        sum(0xffff, 1, Site::current());
      },
      1);
}

TEST(Collective, MasksThatCross) {
  // Lane 15 waits for lane 16, which waits for lane 15 in another meeting.
  expect_rule("collective.mask", {.block = {32}}, [](sim::Thread& me) {
    sim::set_role("worker");
    const Site here = Site::current();
    sum(me.lane < 16 ? 0x0001ffffu : 0xffff8000u, 1, here);
  });
}

TEST(Collective, LanesThatReturnAreMissed) {
  for (const auto schedule : kSchedules) {
    const auto report = violations({.block = {32}},
                                   [](sim::Thread& me) {
                                     if (me.lane == 3) return;
                                     sum(kFullMask, 1, Site::current());
                                   },
                                   {.schedule = schedule});
    EXPECT_NE(find(report, "collective.exited"), nullptr) << to_string(report);
  }
}

TEST(Collective, WarpgroupNeedsAllOfItsWarps) {
  const auto group = [](const Site& site) {
    Value mine{};
    sim::warpgroup_collective(
        "test.group", mine, [](const auto&) {}, site);
  };
  EXPECT_NE(find(violations({.block = {96}}, [&](sim::Thread&) { group(Site::current()); }),
                 "collective.warpgroup"),
            nullptr);
  const auto report = violations({.block = {128}}, [&](sim::Thread& me) {
    if (me.warp->index == 2) return;
    group(Site::current());
  });
  EXPECT_NE(find(report, "collective.exited"), nullptr) << to_string(report);
  // A warp that is somewhere else: a deadlock that names its lanes.
  const auto stuck = violations({.block = {128}}, [&](sim::Thread& me) {
    if (me.warp->index == 1) {
      sim::barrier_sync(3, 64, Site::current());
    } else {
      group(Site::current());
    }
  });
  const SimulatorViolation* deadlock = find(stuck, "deadlock");
  ASSERT_NE(deadlock, nullptr) << to_string(stuck);
  EXPECT_NE(deadlock->text.find("lanes 0xffffffff of warp 1 are missing"), std::string::npos)
      << deadlock->text;
}

TEST(Collective, UnavailableInstructionNamesTheChip) {
  const auto report = violations({.block = {32}}, [](sim::Thread&) {
    sim::require(hw::Feature::tcgen05, "tcgen05.alloc", Site::current());
  });
  const SimulatorViolation* found = find(report, "target.unavailable");
  ASSERT_NE(found, nullptr);
  EXPECT_NE(found->text.find("tcgen05.alloc does not exist on sm_90a"), std::string::npos);
}

}  // namespace
}  // namespace halftone::test
