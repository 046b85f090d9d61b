// Memory traffic and nothing else: every thread has kLoads reads of 16 bytes under way, 32 KB a
// block and at least 128 KB a multiprocessor, which is three times what the latency needs.
#pragma once
#include "base/launch.h"
#include "hw/memory.h"
#include "hw/thread.h"

namespace halftone {

struct MemoryRoofParams {
  const hw::Words4* from = nullptr;
  hw::Words4* to = nullptr;  // null: read only
  uint64_t count = 0;        // of 16 bytes
};

struct MemoryRoof {
  using Params = MemoryRoofParams;
  static constexpr uint32_t kThreads = 256, kMinBlocks = 4, kLoads = 8;

  static LaunchShape shape(const Params& p) {
    constexpr uint64_t kOfBlock = kThreads * kLoads;
    return {.grid = {static_cast<uint32_t>((p.count + kOfBlock - 1) / kOfBlock), 1, 1},
            .block = {kThreads, 1, 1}};
  }

  HT_DEVICE static void run(const Params& p) {
    const uint64_t first = uint64_t{hw::block_index().x} * kThreads * kLoads + hw::thread_index().x;
    hw::Words4 words[kLoads]{};
    HT_UNROLL
    for (uint32_t i = 0; i < kLoads; ++i) {
      const uint64_t at = first + i * kThreads;
      if (at < p.count) words[i] = hw::load_global(p.from + at);
    }
    if (p.to == nullptr) {
      // Nobody can know that this never happens, so all is read.
      uint32_t all = 0;
      HT_UNROLL
      for (uint32_t i = 0; i < kLoads; ++i) {
        all |= words[i][0] ^ words[i][1] ^ words[i][2] ^ words[i][3];
      }
      if (all == 0x9e3779b9 && p.from == nullptr) hw::trap();
      return;
    }
    HT_UNROLL
    for (uint32_t i = 0; i < kLoads; ++i) {
      const uint64_t at = first + i * kThreads;
      if (at < p.count) hw::store_global(p.to + at, words[i]);
    }
  }
};

}  // namespace halftone
