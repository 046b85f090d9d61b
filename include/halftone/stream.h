// The order in which operations run on a device. On the CPU a stream is a team of threads.
#pragma once
#include <memory>

#include "halftone/device.h"

namespace halftone {

class ThreadPool;

class Stream {
 public:
  // `threads` 0: the processors this process may use (affinity, cgroup quota), or HALFTONE_THREADS.
  explicit Stream(Device device = Device::cpu(), int threads = 0);
  const Device& device() const { return device_; }
  // Number of CPU threads.
  int threads() const;
  // Waits for everything submitted. CPU operations have ended when `run` returns.
  void synchronize();
  ThreadPool& pool() const { return *pool_; }

  // The process-wide stream that the one-line functions use; safe from any thread.
  static Stream& default_stream(const Device& device = Device::cpu());

 private:
  Device device_;
  std::shared_ptr<ThreadPool> pool_;
};

// Processors this process may use: affinity mask, then cgroup quota (rounded up), at least 1.
int available_processors();

}  // namespace halftone
