// Quantisation with adaptive scales on GPUs, of groups of 16 to 128 neighbours in whole rows: a
// lane a scale. Each lane encodes the whole group with the recipe's scale or with one of its
// alternatives and adds up the squared error in FP64, as a lane's sixteen partial sums, in the
// order of the CPU's; the scale with the least of them encodes. Other blocks: gpu_adaptive.cuh.
#pragma once
#include "formats/gpu/encode.cuh"
#include "hw/convert/convert.h"
#include "hw/griddep.h"
#include "hw/thread.h"
#include "hw/warp.h"

namespace halftone {

struct QuantizeAdaptiveGroupsParams {
  QuantizeArgs args;
  FaultReporter faults;
  uint32_t count;       // groups in all
  uint32_t lanes;       // of a group, a power of two: as many as scales, or more
  uint32_t row_groups;  // of a row
  GroupPlaces places;
};

template <pipe::Access kAccess>
struct QuantizeAdaptiveGroupsGpu {
  using Params = QuantizeAdaptiveGroupsParams;
  using Eight = pipe::Eight<kAccess>;
  static constexpr uint32_t kThreads = 256, kMinBlocks = 3;

  // A group's elements, eight by eight.
  struct Group {
    const char* x;
    Format source;
    int64_t first, columns;  // of the row
    uint32_t eights;

    HT_DEVICE void load(uint32_t i, float (&v)[8]) const {
      Eight eight;
      const int64_t column = first + i * 8;
      eight.load(source, x, {column, column + 4}, columns);
      eight.widen(source, v);
    }
  };

  // Exactly decode_element.
  template <Format kFormat>
  HT_DEVICE static float decode(uint32_t code, int zero) {
    if constexpr (element_of(kFormat) == Element::e2m1) {  // of f16 the exponents are 14 less
      return hw::cvt_f32_f16(static_cast<uint16_t>((code & 7) << 9 | (code & 8) << 12)) * 0x1p14f;
    } else {
      return decode_element(kFormat, static_cast<uint8_t>(code), zero);
    }
  }

  // Halves joined, as vectors are: unrolled by its types, so that the parts stay in registers.
  template <uint32_t kCount>
  HT_DEVICE static double sum(const double (&part)[kCount]) {
    if constexpr (kCount == 1) {
      return part[0];
    } else {
      double joined[kCount / 2];
      HT_UNROLL
      for (uint32_t k = 0; k < kCount / 2; ++k) joined[k] = part[k] + part[k + kCount / 2];
      return sum(joined);
    }
  }

  // As FormatKernels::squared_error.
  template <Format kFormat>
  HT_DEVICE static double squared_error(const Group& group, const ZeroPoint& scale,
                                        float tensor_scale) {
    constexpr uint32_t kBits = bits_of(kFormat);
    double partial[16] = {};
    for (uint32_t i = 0; i < group.eights; i += 2) {
      HT_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        float v[8];
        group.load(i + half, v);
        const uint64_t codes = encode_eight<kFormat, false>(v, scale.scale.multiplier, scale.zero);
        HT_UNROLL
        for (uint32_t k = 0; k < 8; ++k) {
          const auto code = static_cast<uint32_t>(codes >> kBits * k) & ((1u << kBits) - 1);
          const double decoded = static_cast<double>(decode<kFormat>(code, scale.zero)) *
                                 static_cast<double>(scale.scale.value) *
                                 static_cast<double>(tensor_scale);
          const double difference = static_cast<double>(v[k]) - decoded;
          partial[8 * half + k] += difference * difference;
        }
      }
    }
    return sum(partial);
  }

  // Scale number `i`: the recipe's own, and the alternatives behind it.
  HT_DEVICE static ZeroPoint scale_of(const Recipe& recipe, const BlockRange& range, uint32_t i) {
    const ZeroPoint own = range.scale(recipe);
    if (i == 0) return own;
    const auto other = static_cast<int>(i - 1);
    if (recipe.asymmetric) {
      const float factor = scale_factor(other);
      return asymmetric_scale(recipe, range.low * factor, range.up * factor);
    }
    return {alternative(recipe, own.scale, other), kInt4Zero};
  }

  // The first of the scales with the least error; the recipe's own where its error is none.
  HT_DEVICE static uint32_t best_of(double error, uint32_t lane, uint32_t lanes) {
    if (error != error) error = lane == 0 ? -1.0 : HUGE_VAL;
    uint32_t best = lane;
    for (uint32_t d = lanes / 2; d > 0; d /= 2) {
      const auto bits = std::bit_cast<uint64_t>(error);
      const uint32_t low = hw::shuffle_xor(static_cast<uint32_t>(bits), d);
      const uint32_t high = hw::shuffle_xor(static_cast<uint32_t>(bits >> 32), d);
      const auto other = std::bit_cast<double>(uint64_t{high} << 32 | low);
      const uint32_t index = hw::shuffle_xor(best, d);
      if (other < error || (other == error && index < best)) error = other, best = index;
    }
    return best;
  }

  HT_DEVICE static void run(const Params& p) {
    hw::launch_dependents_and_wait();
    const QuantizeArgs& args = p.args;
    const uint32_t index = hw::block_index().x * kThreads + hw::thread_index().x;
    const uint32_t lane = index & (p.lanes - 1), number = index / p.lanes;
    const bool live = number < p.count;
    Recipe recipe = args.recipe;
    if (args.amax != nullptr) {
      set_tensor_amax(std::bit_cast<float>(hw::load_global(args.amax)), &recipe);
    } else if (args.tensor_scale != nullptr && index == 0) {
      hw::store_global(args.tensor_scale, recipe.tensor_scale);
    }
    const uint32_t row = live ? number / p.row_groups : 0;
    const uint32_t of_row = live ? number - row * p.row_groups : 0;
    const Group group{args.x[row], args.source, of_row * recipe.group, args.columns,
                      static_cast<uint32_t>(recipe.group) / 8};
    BlockRange range;
    for (uint32_t i = 0; i < group.eights; ++i) {
      float v[8];
      group.load(i, v);
      range.add(v, recipe.asymmetric);
    }
    for_elements_of(recipe.format, [&](auto format) {
      const bool searched = range.finite() && magnitude(range.most) != 0;
      double error = HUGE_VAL;
      if (searched && lane <= static_cast<uint32_t>(alternatives(recipe))) {
        error =
            squared_error<format.value>(group, scale_of(recipe, range, lane), recipe.tensor_scale);
      }
      const uint32_t best = best_of(error, lane, p.lanes);
      if (!live) return;
      const ZeroPoint chosen = scale_of(recipe, range, searched ? best : 0);
      if (lane == 0) {
        store_block_scale(args, recipe, p.faults, range, chosen, number, p.places.at(args, number));
      }
      for (uint32_t i = lane; i < group.eights; i += p.lanes) {
        float v[8];
        group.load(i, v);
        const uint64_t codes =
            encode_eight<format.value, false>(v, chosen.scale.multiplier, chosen.zero);
        store_eight(format.value, args.codes, (int64_t{number} * group.eights + i) * 8,
                    range.finite() ? codes : 0);
      }
    });
  }
};

}  // namespace halftone
