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
}  // namespace

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
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
  uint32_t seen = 0;
  for (;;) {
    int spins = 0;
    while (generation_.load(std::memory_order_acquire) == seen) {
      if (++spins < kSpins) {
        pause();
      } else {
        generation_.wait(seen, std::memory_order_acquire);
      }
    }
    ++seen;
    if (stop_) return;
    call(thread);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

void ThreadPool::run(FunctionRef<void(int)> f) {
  if (workers_.empty() || inside_region) {
    for (int thread = 0; thread < size(); ++thread) f(thread);
    return;
  }
  const std::lock_guard turn(turn_);
  body_ = &f;
  running_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  inside_region = true;
  call(0);
  inside_region = false;
  int spins = 0;
  for (int left; (left = running_.load(std::memory_order_acquire)) != 0;) {
    if (++spins < kSpins) {
      pause();
    } else {
      running_.wait(left, std::memory_order_acquire);
    }
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::parallel_for(int64_t count, int64_t grain, FunctionRef<void(int64_t, int64_t)> f) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  if (count <= grain || size() == 1) {
    for (int64_t begin = 0; begin < count; begin += grain) f(begin, std::min(begin + grain, count));
    return;
  }
  std::atomic<int64_t> next{0};
  run([&](int) {
    for (;;) {
      const int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      f(begin, std::min(begin + grain, count));
    }
  });
}

}  // namespace halftone
