// RoPE for every GPU: a CTA rotates all heads of a token by the angles of 512 pairs, which it
// computes once, with the additions and products of the CPU kernel and so to the same bits. A token
// whose position is out of range stays as it is, and the position is reported.
#pragma once
#include "base/launch.h"
#include "hw/griddep.h"
#include "hw/thread.h"
#include "ops/rope/kernels.h"
#include "pipe/fault.h"
#include "pipe/rotate.h"
#include "pipe/row_pieces.h"

namespace halftone {

struct RopeGpuParams {
  RopeArgs args;  // frequencies and positions are on the device
  FaultReporter faults;

  // The position of a token; reported, and negative, where it is out of range.
  static constexpr int64_t kLastPosition = int64_t{1} << 31;
  HT_DEVICE int64_t position_of(int64_t token, bool reporter) const {
    const int64_t position =
        pipe::load_index(args.positions, args.wide_positions, token * args.position_stride);
    if (position >= 0 && position <= kLastPosition) return position;
    if (reporter) pipe::report_fault(faults, Fault::rope_position, token, position, kLastPosition);
    return -1;
  }
};

struct RopeGpu {
  using Params = RopeGpuParams;
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1;
  static constexpr uint32_t kPairs = pipe::RotationTable::kPairs;  // of a CTA

  static LaunchShape shape(const RopeArgs& args, int64_t tokens) {
    const auto chunks = static_cast<uint32_t>((args.pairs + kPairs - 1) / kPairs);
    return {.grid = {static_cast<uint32_t>(tokens), chunks, 1},
            .block = {kThreads, 1, 1},
            .shared_bytes = pipe::RotationTable::kSharedBytes};
  }

  HT_DEVICE static void run(const Params& p) {
    hw::launch_dependents_and_wait();
    const RopeArgs& args = p.args;
    const uint32_t thread = hw::thread_index().x;
    const int64_t token = hw::block_index().x;
    const int64_t first = int64_t{hw::block_index().y} * kPairs;
    const int64_t position = p.position_of(token, thread == 0 && first == 0);
    if (position < 0) return;
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
      table.load(unit * 8, c, s);
      rotate(args, x, first + unit * 8, c, s);
    }
  }

  // Eight pairs from `pair` on: half-split or interleaved.
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

// Half-split pairs, a power of two of them up to 512, in whole rows of a format. A thread has the
// same pairs in every head it rotates, so that it reads their angles once, and loads its first two
// heads before the angles are computed.
template <pipe::Access kAccess>
struct RopeHalvesGpu {
  using Params = RopeGpuParams;
  using Piece = pipe::Piece<kAccess>;
  static constexpr uint32_t kThreads = RopeGpu::kThreads, kMinBlocks = 8;
  static constexpr uint32_t kPairs = Piece::kElements;  // of a thread
  static constexpr uint32_t kHeads = 2;                 // in flight

  static bool takes(const RopeArgs& args) {
    const auto places = reinterpret_cast<uintptr_t>(args.x) |
                        static_cast<uintptr_t>(args.token_stride) |
                        static_cast<uintptr_t>(args.head_stride);
    return !args.interleaved && places % 16 == 0 && args.pairs >= 8 &&
           args.pairs <= RopeGpu::kPairs && (args.pairs & (args.pairs - 1)) == 0;
  }

  HT_DEVICE static void run(const Params& p) {
    hw::launch_dependents_and_wait();
    const RopeArgs& args = p.args;
    const uint32_t thread = hw::thread_index().x;
    const int64_t token = hw::block_index().x;
    const auto pairs = static_cast<uint32_t>(args.pairs), heads = static_cast<uint32_t>(args.heads);
    const uint32_t shift = hw::popc(pairs / kPairs - 1), apart = kThreads >> shift;
    const uint32_t pair = (thread & (pairs / kPairs - 1)) * kPairs;
    char* low = args.x + token * args.token_stride + pair * Piece::kBytes;
    char* high = low + pairs * Piece::kBytes;

    Piece a[kHeads], b[kHeads];
    const auto for_heads = [&](uint32_t first, const auto& each) {
      HT_UNROLL
      for (uint32_t k = 0; k < kHeads; ++k) {
        const uint32_t head = first + k * apart;
        if (head < heads) each(k, head * args.head_stride);
      }
    };
    const auto load = [&](uint32_t k, int64_t at) {
      a[k].load(low + at);
      b[k].load(high + at);
    };
    uint32_t head = thread >> shift;
    for_heads(head, load);
    const int64_t position = p.position_of(token, thread == 0);
    if (position < 0) return;
    const pipe::RotationTable table(hw::shared_memory_base(), pairs);
    table.fill(args.frequencies, position, args.magnitude, thread, kThreads);
    hw::barrier_sync();
    float c[kPairs], s[kPairs];
    table.load(pair, c, s);
    while (head < heads) {
      for_heads(head, [&](uint32_t k, int64_t at) {
        float x[kPairs], y[kPairs];
        a[k].widen(x);
        b[k].widen(y);
        pipe::rotate_halves(x, y, c, s);
        a[k].narrow(x);
        b[k].narrow(y);
        a[k].store(low + at);
        b[k].store(high + at);
      });
      head += kHeads * apart;
      for_heads(head, load);
    }
  }
};

}  // namespace halftone
