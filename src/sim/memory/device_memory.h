// Global memory of the simulated devices: host memory with red zones, known by address.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "halftone/device.h"

namespace halftone::sim {

// Bytes before and after every allocation that no kernel may touch.
inline constexpr size_t kRedZone = 256;

struct Allocation {
  uint8_t* data = nullptr;
  size_t bytes = 0;
  Arch arch = Arch::sm_80;
  uint64_t number = 0;  // counts up; reports name it
  bool freed = false;   // kept for a while to recognise late accesses
  bool contains(const void* address, size_t size) const {
    const auto at = static_cast<const uint8_t*>(address);
    return at >= data && size <= bytes && static_cast<size_t>(at - data) <= bytes - size;
  }
  // The memory model's shadow of it (initialised bytes, last writers); created and guarded by it,
  // destroyed with the allocation.
  std::shared_ptr<void> shadow;
  std::unique_ptr<std::atomic<uint64_t>[]> touched;  // a bit per 32-byte sector, for counters
  mutable std::atomic<bool> any_touched{false};
};

// 256-byte aligned, like cudaMalloc's. Contents are 0xff... so that reads of nothing show.
void* allocate(Arch, size_t bytes);
void deallocate(void*) noexcept;
// The live or freed allocation whose data or red zones hold `address`, or null. The pointer stays
// valid while the launch runs: memory freed during a launch is kept until no launch runs.
Allocation* find_allocation(const void* address);

// Clears `touched` of all.
void forget_touched();

// Lives while a launch runs.
struct LaunchGuard {
  LaunchGuard();
  ~LaunchGuard();
  LaunchGuard(const LaunchGuard&) = delete;
  LaunchGuard& operator=(const LaunchGuard&) = delete;
};

}  // namespace halftone::sim
