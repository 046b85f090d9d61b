// Stacks, switches, what a switch keeps, and what it costs. Built twice: with the hand-written
// switch, and (HALFTONE_UCONTEXT) with the portable one.
#include "sim/execution/fiber.h"

#include <algorithm>
#include <cfenv>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace halftone::sim {
namespace {

struct Relay {
  Fiber root;
  FiberPool pool;
  std::vector<Fiber*> fibers;
  std::vector<uint64_t> sums;
  size_t number = 0;  // of the fiber being started
  uint64_t rounds = 0;
};

// Each fiber hands on to the next, the last to the root; locals must survive.
void relay_body(void* argument) {
  Relay& relay = *static_cast<Relay*>(argument);
  const size_t me = relay.number;
  uint64_t sum = 0;
  for (uint64_t round = 0;; ++round) {
    sum += round * (me + 1);
    relay.sums[me] = sum;
    Fiber& next = me + 1 < relay.fibers.size() ? *relay.fibers[me + 1] : relay.root;
    if (round == 0 && me + 1 < relay.fibers.size()) relay.number = me + 1;
    switch_fiber(*relay.fibers[me], next);
  }
}

void start(Relay& relay, size_t count) {
  adopt_thread(relay.root);
  relay.sums.assign(count, 0);
  for (size_t i = 0; i < count; ++i) relay.fibers.push_back(relay.pool.take());
  for (Fiber* fiber : relay.fibers) prepare(*fiber, relay_body, &relay);
}

TEST(Fiber, LocalsSurviveSwitches) {
  Relay relay;
  start(relay, 65);
  constexpr uint64_t kRounds = 100;
  for (uint64_t r = 0; r < kRounds; ++r) switch_fiber(relay.root, *relay.fibers[0]);
  for (size_t i = 0; i < relay.sums.size(); ++i) {
    EXPECT_EQ(relay.sums[i], kRounds * (kRounds - 1) / 2 * (i + 1));
  }
}

struct Once {
  Fiber root;
  Fiber* fiber = nullptr;
  void (*body)(Once&) = nullptr;
  std::string log;
};

void once(void* argument) {
  Once& me = *static_cast<Once*>(argument);
  me.body(me);
  leave_fiber(*me.fiber, me.root);
}

TEST(Fiber, RoundingModeBelongsToTheFiber) {
  FiberPool pool;
  Once test;
  adopt_thread(test.root);
  test.fiber = pool.take();
  test.body = [](Once& me) {
    std::fesetround(FE_UPWARD);
    switch_fiber(*me.fiber, me.root);
    me.log = std::fegetround() == FE_UPWARD ? "kept" : "lost";
    std::fesetround(FE_TONEAREST);
  };
  prepare(*test.fiber, once, &test);
  switch_fiber(test.root, *test.fiber);
  EXPECT_EQ(std::fegetround(), FE_TONEAREST);
  switch_fiber(test.root, *test.fiber);
  EXPECT_EQ(test.log, "kept");
}

TEST(Fiber, ExceptionsStayInside) {
  FiberPool pool;
  Once test;
  adopt_thread(test.root);
  test.fiber = pool.take();
  test.body = [](Once& me) {
    try {
      const std::string local(100, 'x');  // destroyed on the way
      switch_fiber(*me.fiber, me.root);
      throw std::runtime_error("inside");
    } catch (const std::exception& error) {
      me.log = error.what();
    }
  };
  prepare(*test.fiber, once, &test);
  switch_fiber(test.root, *test.fiber);
  switch_fiber(test.root, *test.fiber);
  EXPECT_EQ(test.log, "inside");
}

TEST(Fiber, StacksAreUsedAgain) {
  FiberPool pool;
  Once test;
  adopt_thread(test.root);
  test.body = [](Once& me) { me.log += "."; };
  for (int i = 0; i < 1000; ++i) {
    test.fiber = pool.take();
    prepare(*test.fiber, once, &test);
    pool.give(test.fiber);
    switch_fiber(test.root, *test.fiber);
  }
  EXPECT_EQ(test.log.size(), 1000u);
  EXPECT_EQ(pool.mapped(), 1u);
}

TEST(Fiber, StackIsAlignedAndLarge) {
  FiberPool pool;
  Once test;
  adopt_thread(test.root);
  test.fiber = pool.take();
  test.body = [](Once& me) {
    alignas(64) volatile char large[128 << 10];
    large[0] = 1;
    large[sizeof large - 1] = 2;
    me.log = std::to_string(reinterpret_cast<uintptr_t>(&large[0]) % 64 + large[0] - 1);
  };
  prepare(*test.fiber, once, &test);
  switch_fiber(test.root, *test.fiber);
  EXPECT_EQ(test.log, "0");
}

TEST(Fiber, Cost) {
#if defined(HALFTONE_UCONTEXT) || !defined(NDEBUG) || defined(HALFTONE_SANITIZED)
  GTEST_SKIP() << "switches by ucontext, without optimisation or under a sanitizer have no bound";
#endif
  for (const size_t count : {size_t{32}, size_t{128}, size_t{384}}) {
    Relay relay;
    start(relay, count);
    const size_t rounds = 50000 / count;
    switch_fiber(relay.root, *relay.fibers[0]);
    double each = 1e9;  // the best of several: others may use the machine
    for (int repeat = 0; repeat < 10; ++repeat) {
      const auto begin = std::chrono::steady_clock::now();
      for (size_t r = 0; r < rounds; ++r) switch_fiber(relay.root, *relay.fibers[0]);
      const std::chrono::duration<double, std::nano> time =
          std::chrono::steady_clock::now() - begin;
      each = std::min(each, time.count() / double(rounds * (count + 1)));
    }
    std::printf("%zu fibers: %.1f ns a switch\n", count, each);
    EXPECT_LT(each, 60);  // about 8 is what it takes
  }
}

}  // namespace
}  // namespace halftone::sim
