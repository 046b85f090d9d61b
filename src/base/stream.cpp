#include "halftone/stream.h"

#if defined(__linux__)
#include <sched.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "base/message.h"
#include "base/thread_pool.h"

namespace halftone {

namespace {

// Processors that a cgroup quota allows, or 0 when there is none. Reads cgroup v2, then v1.
int cgroup_quota() {
  std::string quota;
  double period = 0;
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2 >> quota >> period) {
    if (quota == "max" || period <= 0) return 0;
    return static_cast<int>(std::atof(quota.c_str()) / period + 0.999);
  }
  double v1_quota = 0, v1_period = 0;
  std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") >> v1_quota;
  std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> v1_period;
  return v1_quota > 0 && v1_period > 0 ? static_cast<int>(v1_quota / v1_period + 0.999) : 0;
}

int default_threads() {
  const char* text = std::getenv("HALFTONE_THREADS");
  if (text == nullptr || *text == '\0') return available_processors();
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  require(*end == '\0' && value >= 1 && value <= 1024, "HALFTONE_THREADS=", text,
          " must be a number from 1 to 1024");
  return static_cast<int>(value);
}

}  // namespace

int available_processors() {
  int count = static_cast<int>(std::thread::hardware_concurrency());
#if defined(__linux__)
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) count = CPU_COUNT(&mask);
#endif
  const int quota = cgroup_quota();
  if (quota > 0) count = std::min(count, quota);
  return std::max(count, 1);
}

Stream::Stream(Device device, int threads) : device_(device) {
  require(threads >= 0 && threads <= 1024, "threads is ", threads, "; it must be 0 to 1024");
  pool_ = std::make_shared<ThreadPool>(threads == 0 ? default_threads() : threads);
}

int Stream::threads() const { return pool_->size(); }

void Stream::synchronize() {}

Stream& Stream::default_stream(const Device&) {
  static Stream stream;  // the CPU is the only device of this build
  return stream;
}

}  // namespace halftone
