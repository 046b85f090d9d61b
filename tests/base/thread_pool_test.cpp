#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "halftone/error.h"
#include "halftone/stream.h"

namespace halftone {
namespace {

TEST(ThreadPool, RunsEveryThreadOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int repeat = 0; repeat < 100; ++repeat) {
      std::vector<int> calls(static_cast<size_t>(threads));
      pool.run([&](int thread) { ++calls[static_cast<size_t>(thread)]; });
      EXPECT_EQ(calls, std::vector<int>(static_cast<size_t>(threads), 1));
    }
  }
}

TEST(ThreadPool, ParallelForCoversTheRangeOnce) {
  ThreadPool pool(3);
  for (int64_t count : {0, 1, 7, 64, 1000}) {
    for (int64_t grain : {1, 3, 64, 5000}) {
      std::vector<int> seen(static_cast<size_t>(count));
      pool.parallel_for(count, grain, [&](int64_t begin, int64_t end) {
        EXPECT_LE(end - begin, grain);
        for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
      });
      EXPECT_EQ(std::accumulate(seen.begin(), seen.end(), 0), count);
      for (int times : seen) EXPECT_EQ(times, 1);
    }
  }
}

TEST(ThreadPool, WorkTooSmallForATeamStaysOnTheCaller) {
  ThreadPool pool(4);
  const auto caller = std::this_thread::get_id();
  for (int repeat = 0; repeat < 1000; ++repeat) {
    int64_t sum = 0;  // not atomic: the thread sanitizer would tell of a second thread too
    pool.parallel_for(100, 3, kTeamNanoseconds - 1, [&](int64_t begin, int64_t end) {
      ASSERT_EQ(std::this_thread::get_id(), caller);
      sum += end - begin;
    });
    ASSERT_EQ(sum, 100);
  }
}

// Short regions one after another, of both kinds: a worker that comes late to one must not run in
// the next with the wrong body.
TEST(ThreadPool, ManyShortRegions) {
  ThreadPool pool(4);
  for (int repeat = 0; repeat < 3000; ++repeat) {
    std::atomic<int64_t> sum{0};
    pool.parallel_for(6, 2, [&](int64_t begin, int64_t end) { sum += end - begin + repeat; });
    ASSERT_EQ(sum, 6 + 3 * repeat);
    if (repeat % 10 != 0) continue;
    std::atomic<int> threads{0};
    pool.run([&](int thread) { threads += 1 << thread; });
    ASSERT_EQ(threads, 15);
  }
}

TEST(ThreadPool, RethrowsTheErrorOfAPiece) {
  ThreadPool pool(3);
  for (int repeat = 0; repeat < 100; ++repeat) {
    EXPECT_THROW(pool.parallel_for(10, 1,
                                   [](int64_t begin, int64_t) {
                                     if (begin == 7) throw std::runtime_error("from a piece");
                                   }),
                 std::runtime_error);
  }
}

TEST(ThreadPool, RethrowsTheErrorAndStaysUsable) {
  ThreadPool pool(3);
  EXPECT_THROW(pool.run([](int thread) {
    if (thread == 2) throw std::runtime_error("from a worker");
  }),
               std::runtime_error);
  std::atomic<int> calls{0};
  pool.run([&](int) { ++calls; });
  EXPECT_EQ(calls, 3);
}

TEST(ThreadPool, NestedAndConcurrentCallsEnd) {
  ThreadPool pool(2);
  std::atomic<int> inner{0};
  pool.run([&](int) { pool.parallel_for(10, 1, [&](int64_t, int64_t) { ++inner; }); });
  EXPECT_EQ(inner, 20);

  std::atomic<int> total{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 50; ++repeat) {
        pool.parallel_for(8, 1, [&](int64_t, int64_t) { ++total; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, 4 * 50 * 8);
}

TEST(Stream, ThreadsFollowTheEnvironment) {
  setenv("HALFTONE_THREADS", "3", 1);
  EXPECT_EQ(Stream().threads(), 3);
  setenv("HALFTONE_THREADS", "none", 1);
  EXPECT_THROW(Stream(), Error);
  unsetenv("HALFTONE_THREADS");
  EXPECT_EQ(Stream().threads(), available_processors());
  EXPECT_EQ(Stream(Device::cpu(), 2).threads(), 2);
}

}  // namespace
}  // namespace halftone
