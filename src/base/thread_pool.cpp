#include "base/thread_pool.h"

#include <algorithm>

namespace halftone {

namespace {
// About 20 us of polling at 4 GHz: longer than the gap between two regions of a decode step,
// shorter than a scheduler tick, so an idle process soon costs nothing.
constexpr int kSpins = 2000;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

thread_local bool inside_region = false;

// Parts of the gate: generation in the upper half, then this flag, then the count of workers.
constexpr uint64_t kOpen = uint64_t{1} << 31;
constexpr uint64_t kInside = kOpen - 1;

// Polls for a while, then sleeps until the value that `load` reads satisfies `done`.
template <class T, class Done>
T wait_until(const std::atomic<T>& value, const Done& done) {
  for (int spins = 0;;) {
    const T now = value.load(std::memory_order_acquire);
    if (done(now)) return now;
    if (++spins < kSpins) {
      pause();
    } else {
      value.wait(now, std::memory_order_acquire);
    }
  }
}
}  // namespace

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::call(int thread) {
  try {
    (*body_)(thread);
  } catch (...) {
    const std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void ThreadPool::work(int thread) {
  inside_region = true;
  for (uint32_t seen = 0;;) {
    seen = wait_until(generation_, [&](uint32_t now) { return now != seen; });
    if (stop_.load(std::memory_order_relaxed)) return;
    enter(thread, seen);
  }
}

void ThreadPool::enter(int thread, uint32_t generation) {
  uint64_t gate = gate_.load(std::memory_order_relaxed);
  do {
    if (gate >> 32 != generation || (gate & kOpen) == 0) return;
  } while (!gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel,
                                        std::memory_order_relaxed));
  call(thread);
  finished_.fetch_add(1, std::memory_order_release);
  finished_.notify_one();
  const uint64_t before = gate_.fetch_sub(1, std::memory_order_acq_rel);
  if ((before & (kOpen | kInside)) == 1) gate_.notify_one();  // closed, and the last to leave
}

void ThreadPool::region(FunctionRef<void(int)> f, bool everyone) {
  const std::lock_guard turn(turn_);
  body_ = &f;  // nobody is inside: the last region was left by all before its caller returned
  finished_.store(0, std::memory_order_relaxed);
  const uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
  gate_.store(uint64_t{generation} << 32 | kOpen, std::memory_order_release);
  generation_.store(generation, std::memory_order_release);
  generation_.notify_all();
  inside_region = true;
  call(0);
  inside_region = false;
  if (everyone) {
    const auto count = static_cast<int>(workers_.size());
    wait_until(finished_, [&](int finished) { return finished == count; });
  }
  gate_.fetch_and(~kOpen, std::memory_order_acq_rel);
  wait_until(gate_, [](uint64_t gate) { return (gate & kInside) == 0; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::run(FunctionRef<void(int)> f) {
  if (workers_.empty() || inside_region) {
    for (int thread = 0; thread < size(); ++thread) f(thread);
    return;
  }
  region(f, true);
}

void ThreadPool::parallel_for(int64_t count, int64_t grain, FunctionRef<void(int64_t, int64_t)> f) {
  parallel_for(count, grain, kTeamNanoseconds, f);
}

void ThreadPool::parallel_for(int64_t count, int64_t grain, int64_t nanoseconds,
                              FunctionRef<void(int64_t, int64_t)> f) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  if (count <= grain || size() == 1 || nanoseconds < kTeamNanoseconds) {
    for (int64_t begin = 0; begin < count; begin += grain) f(begin, std::min(begin + grain, count));
    return;
  }
  std::atomic<int64_t> next{0};
  const auto pieces = [&](int) {
    for (;;) {
      const int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      f(begin, std::min(begin + grain, count));
    }
  };
  if (inside_region) {
    pieces(0);
  } else {
    region(pieces, false);
  }
}

}  // namespace halftone
