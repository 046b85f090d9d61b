// Copies in another order. Where the source steps by elements along another dimension than the
// result, tiles turn in shared memory, so that both sides are read and written in runs.
#pragma once
#include "base/launch.h"
#include "hw/barrier.h"
#include "hw/memory.h"
#include "hw/thread.h"
#include "ops/transpose/kernels.h"

namespace halftone {

struct PermuteGpu {
  struct Params {
    PermuteArgs args;
    uint32_t tiles_down, tiles_across;
  };
  static constexpr uint32_t kThreads = 256, kMinBlocks = 1;
  // Sides of a tile: whole sectors of 32 bytes for every size of element.
  HT_HOST_DEVICE static uint32_t side(int element) { return element <= 2 ? 64 : 32; }
  // Bytes from line to line in shared memory: an odd number of words, so that a column of elements
  // lies in all banks (of 8-byte elements, whose warp takes two turns: two words more).
  HT_HOST_DEVICE static uint32_t pitch(int element) {
    return side(element) * static_cast<uint32_t>(element) + (element == 8 ? 8 : 4);
  }

  static LaunchShape shape(const Params& p, int64_t outer) {
    const int element = p.args.element;
    return {.grid = {static_cast<uint32_t>(outer * p.tiles_down * p.tiles_across), 1, 1},
            .block = {kThreads, 1, 1},
            .shared_bytes = side(element) * pitch(element)};
  }

  HT_DEVICE static void run(const Params& p) {
    switch (p.args.element) {
      case 1:
        return tile<uint8_t>(p);
      case 2:
        return tile<uint16_t>(p);
      case 4:
        return tile<uint32_t>(p);
      default:
        return tile<uint64_t>(p);
    }
  }

  template <class T>
  HT_DEVICE static void tile(const Params& p) {
    const PermuteArgs& args = p.args;
    constexpr uint32_t kSide = side(sizeof(T)), kPitch = pitch(sizeof(T));
    uint32_t index = hw::block_index().x;
    const int64_t column = int64_t{index % p.tiles_across} * kSide;
    index /= p.tiles_across;
    const int64_t row = int64_t{index % p.tiles_down} * kSide;
    index /= p.tiles_down;
    const char* x = args.x + row * args.x_row + column * args.x_column;
    char* out = args.out + row * args.out_row + column * int64_t{sizeof(T)};
    for (int d = args.outer - 1; d >= 0; --d) {
      const auto extent = static_cast<uint32_t>(args.extent[d]);
      x += index % extent * args.x_stride[d];
      out += index % extent * args.out_stride[d];
      index /= extent;
    }
    const int64_t rows = args.rows - row, columns = args.columns - column;
    const uint32_t thread = hw::thread_index().x;
    const hw::SharedAddress shared = hw::shared_memory_base();
    // Neighbouring threads step along what the source has side by side.
    for (uint32_t i = thread; i < kSide * kSide; i += kThreads) {
      const uint32_t along = i % kSide, across = i / kSide;
      const uint32_t r = args.turned ? along : across, c = args.turned ? across : along;
      if (r >= rows || c >= columns) continue;
      const T value =
          hw::load_global(reinterpret_cast<const T*>(x + r * args.x_row + c * args.x_column));
      if (args.turned) {
        hw::store_shared(shared + (across * kPitch + along * uint32_t{sizeof(T)}), value);
      } else {
        hw::store_global(reinterpret_cast<T*>(out + r * args.out_row) + c, value);
      }
    }
    if (!args.turned) return;
    hw::barrier_sync();
    for (uint32_t i = thread; i < kSide * kSide; i += kThreads) {
      const uint32_t c = i % kSide, r = i / kSide;
      if (r >= rows || c >= columns) continue;
      const T value = hw::load_shared<T>(shared + (c * kPitch + r * uint32_t{sizeof(T)}));
      hw::store_global(reinterpret_cast<T*>(out + r * args.out_row) + c, value);
    }
  }
};

}  // namespace halftone
