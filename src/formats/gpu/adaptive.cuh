// Quantisation with adaptive scales on GPUs: half a warp a block of elements that share a scale, of
// any shape and alignment. It encodes the block with the recipe's scale and with its alternatives
// and keeps the one with the least squared error, in FP64. A lane has every sixteenth element of a
// row, as a lane of the CPU's vectors has: sums are added in the CPU's order, so that neither the
// errors nor what is chosen by them differ by a bit.
#pragma once
#include "formats/gpu/encode.cuh"
#include "hw/griddep.h"
#include "hw/thread.h"
#include "hw/warp.h"
#include "pipe/elements.h"

namespace halftone {

struct QuantizeAdaptiveParams {
  QuantizeArgs args;
  FaultReporter faults;
  int64_t down, across;  // blocks of a matrix
};

struct QuantizeAdaptiveGpu {
  using Params = QuantizeAdaptiveParams;
  static constexpr uint32_t kThreads = 256, kMinBlocks = 2;
  static constexpr uint32_t kLanes = 16;  // of a block

  // Elements of x [rows, columns] at `x`; lanes of both blocks of a warp walk as far, since they
  // meet in shuffles.
  struct Block {
    const char* x;
    int64_t row_stride;
    int64_t rows, columns;  // those that there are; 0: none
    int64_t most_rows, most_columns;
    Format source;
    uint32_t lane;

    // Calls each(value, column, there) for this lane's elements of a row.
    template <class Each>
    HT_DEVICE void for_row(int64_t row, const Each& each) const {
      const char* at = x + row * row_stride;
      const auto bytes = static_cast<int64_t>(pipe::bytes_of(source));
      for (int64_t column = lane; column < most_columns + lane; column += kLanes) {
        const bool there = row < rows && column < columns;
        each(there ? pipe::load_element(source, at + column * bytes) : 0.0f, column, there);
      }
    }
  };

  template <class T, class Join>
  HT_DEVICE static T join(T value, const Join& with) {
    for (uint32_t distance = kLanes / 2; distance > 0; distance /= 2) {
      value = with(value, hw::shuffle_xor(value, distance));
    }
    return value;
  }
  HT_DEVICE static double sum(double value) {
    for (uint32_t distance = kLanes / 2; distance > 0; distance /= 2) {
      const auto bits = std::bit_cast<uint64_t>(value);
      const uint32_t low = hw::shuffle_xor(static_cast<uint32_t>(bits), distance);
      const uint32_t high = hw::shuffle_xor(static_cast<uint32_t>(bits >> 32), distance);
      value += std::bit_cast<double>(uint64_t{high} << 32 | low);
    }
    return value;
  }

  // As FormatKernels::squared_error of each row, added in the order of the rows.
  template <Format kFormat>
  HT_DEVICE static double squared_error(const Block& block, const ZeroPoint& scale,
                                        float tensor_scale) {
    double all = 0;
    for (int64_t row = 0; row < block.most_rows; ++row) {
      double of_lane = 0;
      block.for_row(row, [&](float value, int64_t, bool there) {
        if (!there) return;
        const uint8_t code = encode_element(kFormat, value * scale.scale.multiplier, scale.zero);
        const double decoded = static_cast<double>(decode_element(kFormat, code, scale.zero)) *
                               static_cast<double>(scale.scale.value) *
                               static_cast<double>(tensor_scale);
        const double difference = static_cast<double>(value) - decoded;
        of_lane += difference * difference;
      });
      all += sum(of_lane);
    }
    return all;
  }

  template <Format kFormat>
  HT_DEVICE static ZeroPoint best_scale(const Recipe& recipe, const Block& block,
                                        const BlockRange& range) {
    const ZeroPoint first = range.scale(recipe);
    ZeroPoint best = first;
    double least = squared_error<kFormat>(block, first, recipe.tensor_scale);
    const bool searched = range.finite() && magnitude(range.most) != 0;
    for (int i = 0; i < alternatives(recipe); ++i) {
      ZeroPoint other{{}, kInt4Zero};
      if (recipe.asymmetric) {
        other = asymmetric_scale(recipe, range.low * scale_factor(i), range.up * scale_factor(i));
      } else {
        other.scale = alternative(recipe, first.scale, i);
      }
      const double error = squared_error<kFormat>(block, other, recipe.tensor_scale);
      if (searched && error < least) least = error, best = other;
    }
    return best;
  }

  template <Format kFormat>
  HT_DEVICE static void encode(const Block& block, const ZeroPoint& scale, bool finite,
                               uint8_t* codes, int64_t pitch) {
    for (int64_t row = 0; row < block.most_rows; ++row) {
      block.for_row(row, [&](float value, int64_t column, bool there) {
        uint32_t code =
            finite ? encode_element(kFormat, value * scale.scale.multiplier, scale.zero) : 0;
        uint8_t* to = codes + row * pitch;
        if constexpr (bits_of(kFormat) == 6) {
          static_assert(kLanes % 4 == 0, "four neighbours fill three bytes");
          HT_UNROLL
          for (uint32_t d = 1; d < 4; ++d) {
            const uint32_t next = hw::shuffle_down(code & 63, d);
            if (there && column % 4 == 0) code |= next << 6 * d;
          }
          for (uint32_t i = 0; there && column % 4 == 0 && i < 3; ++i) {
            hw::store_global(to + code_offset(kFormat, column) + i,
                             static_cast<uint8_t>(code >> 8 * i));
          }
        } else if constexpr (bits_of(kFormat) == 4) {
          code = there ? code & 15 : 0;  // the high half of an odd last byte is 0
          code |= hw::shuffle_down(code, 1) << 4;
          if (there && column % 2 == 0) {
            hw::store_global(to + column / 2, static_cast<uint8_t>(code));
          }
        } else if (there) {
          hw::store_global(to + column, static_cast<uint8_t>(code));
        }
      });
    }
  }

  HT_DEVICE static void run(const Params& p) {
    hw::launch_dependents_and_wait();
    const QuantizeArgs& args = p.args;
    const uint32_t thread = hw::thread_index().x;
    const int64_t index = int64_t{hw::block_index().x} * (kThreads / kLanes) + thread / kLanes;
    const BlockPlace place(args, index, p.down, p.across);
    const auto least = [](int64_t a, int64_t b) { return a < b ? a : b; };
    const int64_t bytes = pipe::bytes_of(args.source);
    Block block;
    block.x = args.x[place.first_row] + place.left * bytes;
    block.row_stride = args.x.inner == 1 ? args.x.outer_stride : args.x.inner_stride;
    block.rows = place.live ? place.rows : 0;
    block.columns = place.end - place.left;
    block.most_rows = least(place.high, args.rows);
    block.most_columns = least(place.wide, args.columns);
    block.source = args.source, block.lane = thread % kLanes;

    Recipe recipe = args.recipe;
    if (args.amax != nullptr) {
      set_tensor_amax(std::bit_cast<float>(hw::load_global(args.amax)), &recipe);
    } else if (args.tensor_scale != nullptr && index == 0 && block.lane == 0) {
      hw::store_global(args.tensor_scale, recipe.tensor_scale);
    }
    BlockRange range;
    for (int64_t row = 0; row < block.rows; ++row) {
      block.for_row(row, [&](float value, int64_t, bool) {
        range.most = hw::max_nan(range.most, fabsf(value));
        range.low = hw::min(range.low, value), range.up = hw::max(range.up, value);
      });
    }
    range.most = join(range.most, [](float a, float b) { return hw::max_nan(a, b); });
    range.low = join(range.low, [](float a, float b) { return hw::min(a, b); });
    range.up = join(range.up, [](float a, float b) { return hw::max(a, b); });

    for_elements_of(recipe.format, [&](auto format) {
      const ZeroPoint chosen = best_scale<format.value>(recipe, block, range);
      if (place.live && block.lane == 0) {
        store_block_scale(args, recipe, p.faults, range, chosen, index, place.scale);
      }
      const int64_t pitch = code_offset(recipe.format, args.columns);
      encode<format.value>(
          block, chosen, range.finite(),
          args.codes + place.first_row * pitch + code_offset(recipe.format, place.left), pitch);
    });
  }
};

}  // namespace halftone
