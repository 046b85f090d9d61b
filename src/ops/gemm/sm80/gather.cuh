// Gathers rows of x by an index list, 16 bytes at a time where alignment allows: a warp a row.
#pragma once
#include "base/launch.h"
#include "hw/griddep.h"
#include "hw/memory.h"
#include "hw/thread.h"

namespace halftone::gemm {

struct GpuGatherParams {
  const uint8_t* x = nullptr;
  int64_t x_row = 0;               // bytes
  const int32_t* order = nullptr;  // [rows]: the row of x
  uint8_t* out = nullptr;          // 16-byte aligned
  int64_t out_row = 0;             // bytes, a multiple of 16
  uint32_t rows = 0, bytes = 0;    // of a row, even
};

struct GpuGather {
  using Params = GpuGatherParams;
  static constexpr uint32_t kWarps = 4, kThreads = kWarps * 32, kMinBlocks = 1;
  // Loads of a lane in flight.
  static constexpr uint32_t kAhead = 4;

  static LaunchShape shape(const Params& p) {
    return {.grid = {(p.rows + kWarps - 1) / kWarps, 1, 1},
            .block = {kThreads, 1, 1},
            .cluster = {},
            .shared_bytes = 0};
  }

  HT_DEVICE static void run(const Params& p) {
    hw::launch_dependents_and_wait();
    const uint32_t row = hw::block_index().x * kWarps + hw::warp_index(), lane = hw::lane_index();
    if (row >= p.rows) return;
    const uint8_t* from = p.x + hw::load_global(p.order + row) * p.x_row;
    uint8_t* to = p.out + row * p.out_row;
    const bool aligned = reinterpret_cast<uintptr_t>(from) % 16 == 0;
    const uint32_t whole = aligned ? p.bytes / 16 : 0;
    for (uint32_t i = lane; i < whole; i += kAhead * 32) {
      hw::Words4 words[kAhead];
      HT_UNROLL
      for (uint32_t a = 0; a < kAhead; ++a) {
        const uint32_t at = i + a * 32;
        if (at < whole) words[a] = hw::load_global(reinterpret_cast<const hw::Words4*>(from) + at);
      }
      HT_UNROLL
      for (uint32_t a = 0; a < kAhead; ++a) {
        const uint32_t at = i + a * 32;
        if (at < whole) hw::store_global(reinterpret_cast<hw::Words4*>(to) + at, words[a]);
      }
    }
    for (uint32_t i = whole * 8 + lane; i < p.bytes / 2; i += 32) {
      hw::store_global(reinterpret_cast<uint16_t*>(to) + i,
                       hw::load_global(reinterpret_cast<const uint16_t*>(from) + i));
    }
  }
};

}  // namespace halftone::gemm
