// Shuffles, votes, matches, reductions, elections.
#include <gtest/gtest.h>

#include "hw/kernels.h"
#include "hw/thread.h"
#include "hw/vote.h"

namespace halftone::test {
namespace {

TEST(Warp, ShufflesStayInTheirSegment) {
  for (const uint32_t width : {2u, 4u, 8u, 16u, 32u}) {
    for (const uint32_t by : {0u, 1u, 3u, 7u, 17u, 31u}) {
      run_everywhere(Arch::sm_80, {.block = {64}}, [=](sim::Thread& me) {
        const uint32_t lane = me.lane, first = lane / width * width, last = first + width - 1;
        const float mine = static_cast<float>(1000 + lane);
        const auto from = [&](uint32_t source) { return static_cast<float>(1000 + source); };
        EXPECT_EQ(hw::shuffle(mine, by, width), from(first + by % width));
        EXPECT_EQ(hw::shuffle_up(mine, by, width), from(lane >= first + by ? lane - by : lane));
        EXPECT_EQ(hw::shuffle_down(mine, by, width), from(lane + by <= last ? lane + by : lane));
        EXPECT_EQ(hw::shuffle_xor(mine, by, width), from((lane ^ by) <= last ? lane ^ by : lane));
      });
    }
  }
}

TEST(Warp, ShuffleOfSomeLanes) {
  run_everywhere(Arch::sm_90a, {.block = {32}}, [](sim::Thread& me) {
    if (me.lane % 2 == 0) return;
    EXPECT_EQ(hw::shuffle(me.lane, 5, 32, 0xaaaaaaaa), 5u);
  });
  const SimulatorReport report = violations({.block = {32}}, [](sim::Thread& me) {
    if (me.lane % 2 == 0) return;
    hw::shuffle(me.lane, 4, 32, 0xaaaaaaaa);
  });
  EXPECT_NE(find(report, "shuffle.source"), nullptr);
}

TEST(Warp, VotesAndMatches) {
  run_everywhere(Arch::sm_80, {.block = {32}}, [](sim::Thread& me) {
    const bool odd = me.lane % 2 == 1;
    EXPECT_EQ(hw::vote_ballot(odd), 0xaaaaaaaau);
    EXPECT_EQ(hw::vote_ballot(me.lane == 31), 0x80000000u);
    EXPECT_TRUE(hw::vote_any(me.lane == 7));
    EXPECT_FALSE(hw::vote_any(me.lane == 32));
    EXPECT_TRUE(hw::vote_all(me.lane < 32));
    EXPECT_FALSE(hw::vote_all(me.lane != 9));
    EXPECT_TRUE(hw::vote_uniform(me.lane == 40));
    EXPECT_TRUE(hw::vote_uniform(me.lane < 40));
    EXPECT_FALSE(hw::vote_uniform(odd));
    EXPECT_EQ(hw::match_any(me.lane % 4), 0x11111111u << me.lane % 4);
    EXPECT_EQ(hw::match_all(17u), hw::kFullWarp);
    EXPECT_EQ(hw::match_all(me.lane / 31), 0u);
    if (me.lane < 4) {
      EXPECT_EQ(hw::vote_ballot(odd, 15), 10u);
      EXPECT_TRUE(hw::vote_uniform(true, 15));
      EXPECT_EQ(hw::match_all(3u, 15), 15u);
    }
  });
}

TEST(Warp, Reductions) {
  using hw::Reduction;
  run_everywhere(Arch::sm_80, {.block = {32}}, [](sim::Thread& me) {
    const auto signed_value = static_cast<int32_t>(me.lane) - 20;
    EXPECT_EQ(hw::redux<Reduction::add>(me.lane), 496u);
    EXPECT_EQ(hw::redux<Reduction::add>(signed_value), 496 - 640);
    EXPECT_EQ(hw::redux<Reduction::min>(signed_value), -20);
    EXPECT_EQ(hw::redux<Reduction::max>(signed_value), 11);
    EXPECT_EQ(hw::redux<Reduction::max>(static_cast<uint32_t>(signed_value)), 0xffffffffu);
    EXPECT_EQ(hw::redux<Reduction::min>(static_cast<uint32_t>(signed_value)), 0u);
    EXPECT_EQ(hw::redux<Reduction::or_>(1u << me.lane), 0xffffffffu);
    EXPECT_EQ(hw::redux<Reduction::and_>(~(1u << me.lane % 3)), 0xfffffff8u);
    EXPECT_EQ(hw::redux<Reduction::xor_>(me.lane * 0x01010101u), 0u);
    EXPECT_EQ(hw::redux<Reduction::add>(0x80000000u + me.lane), 496u);  // wraps around
  });
}

TEST(Warp, OneIsElected) {
  for (const uint32_t mask : {0xffffffffu, 0xfff0u, 0x80000000u}) {
    std::vector<uint32_t> leaders;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      Stream stream =
          simulated(Arch::sm_90a, {.schedule = SimulatorOptions::Schedule::random, .seed = seed});
      uint32_t elected = 0;
      run(stream, {.block = {32}}, [&](sim::Thread& me) {
        if ((mask >> me.lane & 1) != 0 && hw::elect_one(mask)) elected |= 1u << me.lane;
      });
      EXPECT_EQ(std::popcount(elected), 1);
      EXPECT_EQ(elected & mask, elected);
      leaders.push_back(elected);
    }
    std::sort(leaders.begin(), leaders.end());
    const auto distinct = std::unique(leaders.begin(), leaders.end()) - leaders.begin();
    if (std::popcount(mask) > 1) {
      EXPECT_GT(distinct, 1) << "nobody may rely on the lane";
    }
  }
  EXPECT_TRUE(refused(Arch::sm_89, [] { static_cast<void>(hw::elect_one()); }));
}

TEST(Warp, Coordinates) {
  const LaunchShape shape{.grid = {4, 2, 3}, .block = {8, 2, 4}, .cluster = {2, 1, 3}};
  std::vector<int> seen(24 * 64);
  Stream stream = simulated();
  run(stream, shape, [&](sim::Thread& me) {
    const hw::Index3 t = hw::thread_index(), b = hw::block_index(), g = hw::grid_size();
    const hw::Index3 s = hw::block_size(), in = hw::block_in_cluster(), c = hw::cluster_index();
    EXPECT_EQ(g.x * 100 + g.y * 10 + g.z, 423u);
    EXPECT_EQ(s.x * 100 + s.y * 10 + s.z, 824u);
    EXPECT_EQ(hw::cluster_size(), 6u);
    EXPECT_EQ(hw::cluster_rank(), in.x + 2 * in.z);
    EXPECT_EQ(c.x * 2 + in.x, b.x);
    EXPECT_EQ(c.y, b.y);
    EXPECT_EQ(c.z * 3 + in.z, b.z);
    EXPECT_EQ(hw::lane_index(), me.index % 32);
    ++seen[(b.x + 4 * (b.y + 2 * b.z)) * 64 + t.x + 8 * (t.y + 2 * t.z)];
  });
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), 24 * 64);
}

}  // namespace
}  // namespace halftone::test
