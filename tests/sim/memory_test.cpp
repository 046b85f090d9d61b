// The memory model at work: correct kernels run, are clean under every schedule, and move the right
// bytes.
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "sim/kernels.h"
#include "sim/memory/device_memory.h"
#include "sim/memory/memory.h"

namespace halftone::test {
namespace {

using namespace sim;

Site here(Site site = Site::current()) { return site; }

void wait(Thread& me, uint32_t barrier, uint32_t parity, Site site = Site::current()) {
  while (!mbarrier_try_wait(me, barrier, parity, Order::acquire, MemoryScope::cta, site)) {
  }
}

template <class T>
struct DeviceArray {
  explicit DeviceArray(size_t n) : data(static_cast<T*>(allocate(Arch::sm_90a, n * sizeof(T)))) {}
  ~DeviceArray() { deallocate(data); }
  T* data;
};

// A ring of two stages: one producer thread with bulk loads, 32 consumers that sum.
TEST(Memory, RingOfBulkLoads) {
  constexpr uint32_t kTile = 256, kTiles = 7;
  DeviceArray<uint32_t> in(kTile * kTiles), out(32);
  std::iota(in.data, in.data + kTile * kTiles, 1u);
  for (const auto schedule : kSchedules) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const SimulatorReport report = violations(
          {.block = {64}, .shared_bytes = 4096},
          [&](Thread& me) {
            const uint32_t base = shared_memory_base(*me.block);
            const auto full = [&](uint32_t s) { return base + 8 * s; };
            const auto empty = [&](uint32_t s) { return base + 16 + 8 * s; };
            const auto tile = [&](uint32_t s) { return base + 1024 + s * kTile * 4; };
            if (me.index == 0) {
              for (uint32_t s = 0; s < 2; ++s) {
                mbarrier_init(me, full(s), 1, here());
                mbarrier_init(me, empty(s), 32, here());
              }
              fence_mbarrier_init(me, here());
            }
            barrier_sync(0, 0, here());
            if (me.warp->index == 0) {
              if (me.lane != 0) return;
              for (uint32_t t = 0; t < kTiles; ++t) {
                const uint32_t s = t % 2;
                wait(me, empty(s), (t / 2 & 1) ^ 1);
                mbarrier_arrive(me, full(s), {.expect_bytes = kTile * 4}, here());
                bulk_load(me, tile(s), in.data + t * kTile, kTile * 4, full(s), 0, here());
              }
            } else {
              uint32_t sum = 0;
              for (uint32_t t = 0; t < kTiles; ++t) {
                const uint32_t s = t % 2;
                wait(me, full(s), t / 2 & 1);
                for (uint32_t i = 0; i < kTile / 32; ++i) {
                  sum += read_shared<uint32_t>(me, tile(s) + 4 * (me.lane + 32 * i), here());
                }
                mbarrier_arrive(me, empty(s), {}, here());
              }
              write_global(me, out.data + me.lane, sum, here());
            }
          },
          {.severity = Options::Severity::check, .schedule = schedule, .seed = seed});
      ASSERT_TRUE(report.clean()) << to_string(report);
      EXPECT_EQ(std::accumulate(out.data, out.data + 32, 0u),
                kTile * kTiles * (kTile * kTiles + 1) / 2);
    }
  }
}

}  // namespace
}  // namespace halftone::test
