// Quantisation of blocks of any shape and alignment on GPUs: one group of threads a block of
// elements that share a scale; its first elements stay in registers from their maximum to their
// codes. Whole rows have kernels of their own (gpu_groups.cuh, gpu_tiles.cuh). The bits are those
// of the CPU.
#pragma once
#include "formats/gpu/encode.cuh"
#include "hw/griddep.h"
#include "pipe/row_threads.h"

namespace halftone {

struct QuantizeBlocksParams {
  QuantizeArgs args;
  FaultReporter faults;
  int64_t down, across;  // blocks of a matrix
  int64_t row_stride;    // bytes from row to row of a matrix of x
  uint32_t row_threads;
};

template <bool kConvert>
struct QuantizeBlocksGpu {
  using Params = QuantizeBlocksParams;
  static constexpr uint32_t kThreads = pipe::kMostRowThreads, kMinBlocks = 1;
  static constexpr uint32_t kKept = 4;  // eights of a thread: 128 x 128 elements stay in registers

  // Codes of columns first .. of a row; what shares a byte with the last one is 0.
  HT_DEVICE static void store_codes(Format f, uint8_t* row, int64_t first, int64_t columns,
                                    uint64_t codes) {
    const auto bits = static_cast<uint32_t>(bits_of(f));  // and bytes of eight codes
    const bool nibbles = bits == 4;
    uint8_t* at = row + code_offset(f, first);
    if (bits != 6 && first + 8 <= columns && pipe::is_aligned(at, bits)) {
      if (nibbles) {
        return hw::store_global(reinterpret_cast<uint32_t*>(at), static_cast<uint32_t>(codes));
      }
      const hw::Vector<uint32_t, 2> words{
          {static_cast<uint32_t>(codes), static_cast<uint32_t>(codes >> 32)}};
      return hw::store_global(reinterpret_cast<hw::Vector<uint32_t, 2>*>(at), words);
    }
    const int64_t left = columns - first;
    const auto count = static_cast<uint32_t>(left < 8 ? left : 8);
    if (bits < 8 && count < 8) codes &= (uint64_t{1} << bits * count) - 1;
    for (uint32_t i = 0; i < (count * bits + 7) / 8; ++i) {
      hw::store_global(at + i, static_cast<uint8_t>(codes >> 8 * i & 0xff));
    }
  }

  HT_DEVICE static void run(const Params& p) {
    hw::launch_dependents_and_wait();
    const QuantizeArgs& args = p.args;
    pipe::RowThreads threads(p.row_threads);
    const int64_t index = threads.row();
    const BlockPlace block(args, index, p.down, p.across);
    const bool live = block.live;
    const int64_t left = block.left, rows = block.rows, columns = block.end;
    const auto eights = static_cast<uint32_t>((columns - left + 7) / 8);
    const int64_t count = live ? rows * eights : 0;
    const auto number = [&](uint32_t step) {
      return int64_t{step} * threads.threads() + threads.rank();
    };
    // Row in the block and eight of the row, which has fewer than 2^32 of them; only blocks with
    // more wait for a division of 64 bits.
    struct Within {
      uint32_t row, eight;
    };
    const auto within = [&](uint32_t step) {
      const int64_t n = number(step);
      if (rows == 1) return Within{0, static_cast<uint32_t>(n)};
      const int64_t r = n >> 32 != 0 ? n / eights : static_cast<uint32_t>(n) / eights;
      return Within{static_cast<uint32_t>(r), static_cast<uint32_t>(n - r * eights)};
    };
    const int64_t first_row = block.first_row;
    const char* x = live ? args.x[first_row] : nullptr;
    using Eight = pipe::Eight<pipe::Access::any>;
    const auto read = [&](const Within& at, Eight& v) {
      const int64_t first = left + int64_t{at.eight} * 8;
      v.load(args.source, x + at.row * p.row_stride, {first, first + 4}, columns);
    };
    Within places[kKept];
    Eight kept[kKept];
    HT_UNROLL
    for (uint32_t step = 0; step < kKept; ++step) {
      places[step] = within(step);
      if (number(step) < count) read(places[step], kept[step]);
    }
    // Calls each(place, values) for this thread's eights.
    const auto for_eights = [&](const auto& each) {
      float v[8];
      HT_UNROLL
      for (uint32_t step = 0; step < kKept; ++step) {
        kept[step].widen(args.source, v);
        if (number(step) < count) each(places[step], v);
      }
      for (uint32_t step = kKept; number(step) < count; ++step) {
        Eight more;
        read(within(step), more);
        more.widen(args.source, v);
        each(within(step), v);
      }
    };

    Recipe recipe = args.recipe;
    if (args.amax != nullptr) {
      set_tensor_amax(std::bit_cast<float>(hw::load_global(args.amax)), &recipe);
    } else if (args.tensor_scale != nullptr && index == 0 && threads.rank() == 0) {
      hw::store_global(args.tensor_scale, recipe.tensor_scale);
    }
    BlockRange range;
    const bool given = args.given > 0;
    if (!given) {
      for_eights([&](const Within&, const float(&v)[8]) { range.add(v, recipe.asymmetric); });
      range.most = threads.reduce(range.most, [](float a, float b) { return hw::max_nan(a, b); });
    }
    if (recipe.asymmetric) {
      range.low = threads.reduce(range.low, [](float a, float b) { return hw::min(a, b); });
      range.up = threads.reduce(range.up, [](float a, float b) { return hw::max(a, b); });
    }
    if (!live) return;
    const ZeroPoint chosen = given ? given_scale(args.given) : range.scale(recipe);
    if (threads.rank() == 0 && (!given || index == 0)) {
      store_block_scale(args, recipe, p.faults, range, chosen, index, block.scale);
    }
    const int64_t pitch = code_offset(recipe.format, args.columns);
    uint8_t* codes = args.codes + first_row * pitch;
    for_eights([&](const Within& at, const float(&v)[8]) {
      const uint64_t eight =
          range.finite() ? encode_eight<kConvert>(recipe, v, chosen.scale.multiplier, chosen.zero)
                         : 0;
      store_codes(recipe.format, codes + at.row * pitch, left + int64_t{at.eight} * 8, columns,
                  eight);
    });
  }
};

}  // namespace halftone
