// What the tests of instructions share: arrays in the simulated device's memory, architectures, and
// the report of a launch that breaks a rule.
#pragma once
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "sim/kernels.h"
#include "sim/memory/device_memory.h"

namespace halftone::test {

inline constexpr Arch kArchs[] = {Arch::sm_80, Arch::sm_89, Arch::sm_90a, Arch::sm_100a,
                                  Arch::sm_120a};

// Global memory that the simulator checks.
template <class T>
class DeviceArray {
 public:
  DeviceArray(Arch arch, size_t count)
      : count_(count), data_(static_cast<T*>(sim::allocate(arch, count * sizeof(T)))) {
    std::fill_n(data_, count, T{});
  }
  ~DeviceArray() { sim::deallocate(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  T* data() const { return data_; }
  size_t size() const { return count_; }
  T& operator[](size_t i) const { return data_[i]; }

 private:
  size_t count_;
  T* data_;
};

// Runs `body` under every schedule; reports end the test.
template <class Body>
void run_everywhere(Arch arch, LaunchShape shape, const Body& body) {
  for (const auto schedule : kSchedules) {
    Stream stream = simulated(arch, {.schedule = schedule, .seed = 3});
    run(stream, shape, body);
  }
}

// Whether a launch of one warp that runs `body` is refused because the architecture lacks it.
template <class Body>
bool refused(Arch arch, const Body& body, uint32_t threads = 32) {
  const SimulatorReport report = violations(
      {.block = {threads}, .shared_bytes = 1024}, [&](sim::Thread&) { body(); }, {}, arch);
  return find(report, "target.unavailable") != nullptr;
}

}  // namespace halftone::test
