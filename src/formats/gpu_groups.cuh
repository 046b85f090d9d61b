// Quantisation of groups of 16 to 512 neighbours of a row, or of anything by a largest element that
// is known: a thread takes two times sixteen elements, has their loads under way before it looks
// for a maximum, and shares its groups with neighbouring lanes alone.
#pragma once
#include "formats/gpu_encode.cuh"
#include "hw/thread.h"
#include "hw/warp.h"

namespace halftone {

struct QuantizeGroupsParams {
  QuantizeArgs args;
  FaultReporter faults;
  uint32_t count;           // sixteens in all
  uint32_t sixteens;        // of a row
  uint32_t lanes;           // of a group: a power of two up to 32
  bool dense;               // rows follow each other without gaps
  const uint32_t* largest;  // bits of each matrix's largest |x|, a NaN above everything; or null
};

template <pipe::Access kAccess, bool kConvert>
struct QuantizeGroupsGpu {
  using Params = QuantizeGroupsParams;
  static constexpr uint32_t kThreads = 256;
  static constexpr uint32_t kMinBlocks = kAccess == pipe::Access::f32 ? 3 : 4;
  static constexpr uint32_t kSixteens = 2;  // of a thread

  HT_DEVICE static void run(const Params& p) {
    const QuantizeArgs& args = p.args;
    const uint32_t first = hw::block_index().x * kThreads * kSixteens + hw::thread_index().x;
    // A thread's two accesses share their sectors: the second one finds them in the L1.
    pipe::Eight<kAccess> low[kSixteens], high[kSixteens];
    HT_UNROLL
    for (uint32_t i = 0; i < kSixteens; ++i) {
      const uint32_t n = first + i * kThreads;
      if (n >= p.count) continue;
      if (p.dense) {  // one row of them all
        const int64_t column = int64_t{n} * 16, end = column + 16;
        low[i].load(args.source, args.x.base, {column, column + 4}, end);
        high[i].load(args.source, args.x.base, {column + 8, column + 12}, end);
        continue;
      }
      const uint32_t row = n / p.sixteens;
      const int64_t column = int64_t{n - row * p.sixteens} * 16;
      const char* x = args.x[row];
      low[i].load(args.source, x, {column, column + 4}, args.columns);
      high[i].load(args.source, x, {column + 8, column + 12}, args.columns);
    }
    Recipe recipe = args.recipe;
    if (args.amax != nullptr) {
      set_tensor_amax(std::bit_cast<float>(hw::load_global(args.amax)), &recipe);
    } else if (args.tensor_scale != nullptr && first == 0) {
      hw::store_global(args.tensor_scale, recipe.tensor_scale);
    }
    HT_UNROLL
    for (uint32_t i = 0; i < kSixteens; ++i) {
      float x[2][8];
      low[i].widen(args.source, x[0]);
      high[i].widen(args.source, x[1]);
      encode(p, recipe, first + i * kThreads, x);
    }
  }

  HT_DEVICE static void encode(const Params& p, const Recipe& recipe, uint32_t n,
                               const float (&x)[2][8]) {
    const QuantizeArgs& args = p.args;
    BlockRange range;
    if (p.largest == nullptr) {
      range.add(x[0], recipe.asymmetric);
      range.add(x[1], recipe.asymmetric);
      for (uint32_t d = p.lanes / 2; d > 0; d /= 2) {
        range.most = hw::max_nan(range.most, hw::shuffle_xor(range.most, d));
        if (!recipe.asymmetric) continue;
        range.low = hw::min(range.low, hw::shuffle_xor(range.low, d));
        range.up = hw::max(range.up, hw::shuffle_xor(range.up, d));
      }
    }
    if (n >= p.count) return;
    if (p.largest != nullptr) {
      const auto matrix = static_cast<uint32_t>(n / p.sixteens / args.rows);
      range.most = std::bit_cast<float>(hw::load_global(p.largest + matrix));
    }
    const ZeroPoint chosen = range.scale(recipe);
    if (p.largest == nullptr && n % p.lanes == 0) {
      const uint32_t group = n / p.lanes;
      store_block_scale(args, p.faults, range, chosen, group, scale_place(p, group));
    }
    const float multiplier = chosen.scale.multiplier;
    uint64_t codes[2] = {};
    if (range.finite()) {
      codes[0] = encode_eight<kConvert>(recipe, x[0], multiplier, chosen.zero);
      codes[1] = encode_eight<kConvert>(recipe, x[1], multiplier, chosen.zero);
    }
    if (is_four_bits(recipe.format)) {
      const hw::Vector<uint32_t, 2> words{
          {static_cast<uint32_t>(codes[0]), static_cast<uint32_t>(codes[1])}};
      hw::store_global(reinterpret_cast<hw::Vector<uint32_t, 2>*>(args.codes) + n, words);
    } else {
      const hw::Words4 words{
          {static_cast<uint32_t>(codes[0]), static_cast<uint32_t>(codes[0] >> 32),
           static_cast<uint32_t>(codes[1]), static_cast<uint32_t>(codes[1] >> 32)}};
      hw::store_global(reinterpret_cast<hw::Words4*>(args.codes) + n, words);
    }
  }

  // Of the group's scale, over all matrices.
  HT_DEVICE static int64_t scale_place(const Params& p, uint32_t group) {
    const QuantizeArgs& args = p.args;
    if (args.layout == ScaleLayout::linear) return group;
    const uint32_t groups = p.sixteens / p.lanes, row = group / groups;
    const auto rows = static_cast<uint32_t>(args.rows), matrix = row / rows;
    return matrix * args.scale_bytes +
           scale_offset(args.layout, args.rows, groups, row - matrix * rows, group - row * groups);
  }
};

}  // namespace halftone
