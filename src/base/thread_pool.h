// A team of threads for parallel regions of a few microseconds: waiting threads spin for a short
// while, then sleep on a futex.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace halftone {

// Nanoseconds that work must take one thread before a team is asked for it: the one rule of when to
// wake others (docs/findings/engine-overhead.md). A region costs its caller 1.4 us while the other
// threads still poll, so two of them gain from 3 us on; asleep, they come too late for 50 us of
// work and cost up to 12 us.
inline constexpr int64_t kTeamNanoseconds = 4000;

class ThreadPool {
 public:
  // `threads` counts the caller: 1 starts no thread.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls f(thread) for thread 0..size()-1, thread 0 on the caller, and returns when all ended.
  // The first exception is rethrown. Calls from several threads take turns; a call from inside a
  // region runs its iterations on the calling thread.
  void run(FunctionRef<void(int thread)> f);

  // Calls f(begin, end) over [0, count) in pieces of at most `grain`, handed out in order to
  // whoever is free. Which thread runs a piece varies, so a piece must not depend on it. A thread
  // that is busy elsewhere or asleep is not waited for: it finds the region closed when it comes.
  void parallel_for(int64_t count, int64_t grain, FunctionRef<void(int64_t begin, int64_t end)> f);
  // The same for work that takes one thread `nanoseconds`, by the caller alone when that is less
  // than kTeamNanoseconds.
  void parallel_for(int64_t count, int64_t grain, int64_t nanoseconds,
                    FunctionRef<void(int64_t begin, int64_t end)> f);

 private:
  // A region: the workers enter while it is open and the caller leaves when none is inside.
  void region(FunctionRef<void(int)> f, bool everyone);
  void work(int thread);
  void enter(int thread, uint32_t generation);
  void call(int thread);

  std::vector<std::thread> workers_;
  std::mutex turn_;                      // one region at a time
  std::atomic<uint32_t> generation_{0};  // number of the region; bumped at its start
  // The generation, whether it is open, and how many workers are inside: one word, so that nobody
  // enters a region that was closed or replaced in the meantime.
  std::atomic<uint64_t> gate_{0};
  std::atomic<int> finished_{0};  // workers that have left the region
  const FunctionRef<void(int)>* body_ = nullptr;
  std::atomic<bool> stop_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

}  // namespace halftone
