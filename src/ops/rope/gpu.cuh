// Rotary embedding: a block rotates all heads of a token by 512 pairs' angles, which it computes
// once, with the additions and products of the CPU kernel and so to the same bits. A token whose
// position is out of range stays as it is, and the position is reported.
#pragma once
#include "base/launch.h"
#include "hw/thread.h"
#include "ops/rope/kernels.h"
#include "pipe/elements.h"
#include "pipe/fault.h"
#include "pipe/rotate.h"

namespace halftone {

struct RopeGpu {
  struct Params {
    RopeArgs args;  // frequencies and positions are on the device
    FaultReporter faults;
  };
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1;
  static constexpr uint32_t kPairs = pipe::RotationTable::kPairs;  // of a block
  static constexpr int64_t kLastPosition = int64_t{1} << 31;

  static LaunchShape shape(const RopeArgs& args, int64_t tokens) {
    const auto chunks = static_cast<uint32_t>((args.pairs + kPairs - 1) / kPairs);
    return {.grid = {static_cast<uint32_t>(tokens), chunks, 1},
            .block = {kThreads, 1, 1},
            .shared_bytes = pipe::RotationTable::kSharedBytes};
  }

  HT_DEVICE static void run(const Params& p) {
    const RopeArgs& args = p.args;
    const uint32_t thread = hw::thread_index().x;
    const int64_t token = hw::block_index().x;
    const int64_t first = int64_t{hw::block_index().y} * kPairs;
    const int64_t position =
        pipe::load_index(args.positions, args.wide_positions, token * args.position_stride);
    if (position < 0 || position > kLastPosition) {
      if (thread == 0 && first == 0) {
        pipe::report_fault(p.faults, Fault::rope_position, token, position, kLastPosition);
      }
      return;
    }
    const int64_t left = args.pairs - first;
    const auto pairs = static_cast<uint32_t>(left < kPairs ? left : kPairs);
    const pipe::RotationTable table(hw::shared_memory_base(), pairs);
    table.fill(args.frequencies + first, position, args.magnitude, thread, kThreads);
    hw::barrier_sync();
    const uint32_t heads = static_cast<uint32_t>(args.heads), units = table.units();
    for (uint32_t i = thread; i < heads * units; i += kThreads) {
      const uint32_t unit = i % units;
      char* x = args.x + token * args.token_stride + i / units * args.head_stride;
      float c[8], s[8];
      table.load(unit, c, s);
      rotate(args, x, first + unit * 8, c, s);
    }
  }

  // Eight pairs from `pair` on: of two halves, or of neighbours.
  HT_DEVICE static void rotate(const RopeArgs& args, char* x, int64_t pair, const float (&c)[8],
                               const float (&s)[8]) {
    const int64_t begin = args.interleaved ? 2 * pair : pair;
    const int64_t partner = args.interleaved ? begin + 8 : begin + args.pairs;
    const pipe::Quads low{begin, begin + 4}, high{partner, partner + 4};
    const int64_t low_end = args.interleaved ? 2 * args.pairs : args.pairs;
    const int64_t high_end = 2 * args.pairs;
    float a[8], b[8];
    pipe::load_eight(args.format, x, low, low_end, a);
    pipe::load_eight(args.format, x, high, high_end, b);
    if (args.interleaved) {
      HT_UNROLL
      for (uint32_t k = 0; k < 8; ++k) {
        float& even = k < 4 ? a[2 * k] : b[2 * k - 8];
        float& odd = k < 4 ? a[2 * k + 1] : b[2 * k - 7];
        const float turned = even * c[k] + odd * -s[k];
        odd = odd * c[k] + even * s[k];
        even = turned;
      }
    } else {
      pipe::rotate_halves(a, b, c, s);
    }
    pipe::store_eight(args.format, x, low, low_end, a);
    pipe::store_eight(args.format, x, high, high_end, b);
  }
};

}  // namespace halftone
