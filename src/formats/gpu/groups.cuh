// Quantisation of groups of 16 to 512 neighbours of a row, or of anything by a largest element that
// is known: a thread takes two times sixteen elements, has their loads under way before it looks
// for a maximum, and shares its groups with neighbouring lanes alone.
#pragma once
#include "formats/gpu/encode.cuh"
#include "hw/griddep.h"
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
  pipe::Divisor group;      // sixteens
  GroupPlaces places;
};

template <pipe::Access kAccess, bool kConvert>
struct QuantizeGroupsGpu {
  using Params = QuantizeGroupsParams;
  using Eight = pipe::Eight<kAccess>;
  static constexpr uint32_t kThreads = 256;
  static constexpr uint32_t kMinBlocks = kAccess == pipe::Access::f32 ? 3 : 5;
  static constexpr uint32_t kSixteens = 2;  // of a thread

  HT_DEVICE static void run(const Params& p) {
    hw::launch_dependents_and_wait();
    const QuantizeArgs& args = p.args;
    const uint32_t first = hw::block_index().x * kThreads * kSixteens + hw::thread_index().x;
    // A thread's two accesses share their sectors: the second one finds them in the L1.
    Eight low[kSixteens], high[kSixteens];
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
    if (p.largest != nullptr || args.given > 0) {
      HT_UNROLL
      for (uint32_t i = 0; i < kSixteens; ++i) {
        encode_known(p, recipe, first + i * kThreads, low[i], high[i]);
      }
      return;
    }
    for_kind_of(recipe.format, recipe.scale_format, recipe.asymmetric, [&](auto kind) {
      HT_UNROLL
      for (uint32_t i = 0; i < kSixteens; ++i) {
        encode<decltype(kind)>(p, kind.of(recipe), first + i * kThreads, low[i], high[i]);
      }
    });
  }

  // With the scale of the matrix, or of all, whose place other kernels fill.
  HT_DEVICE static void encode_known(const Params& p, const Recipe& recipe, uint32_t n,
                                     const Eight& low, const Eight& high) {
    const QuantizeArgs& args = p.args;
    if (n >= p.count) return;
    BlockRange range;
    if (p.largest != nullptr) {
      const auto rows = static_cast<uint32_t>(args.rows);
      const uint32_t matrix = args.matrices == 1 ? 0 : n / p.sixteens / rows;
      range.most = std::bit_cast<float>(hw::load_global(p.largest + matrix));
    }
    const ZeroPoint chosen = args.given > 0 ? given_scale(args.given) : range.scale(recipe);
    if (args.given > 0 && n == 0) store_block_scale(args, recipe, p.faults, range, chosen, 0, 0);
    for_elements_of(recipe.format, [&](auto format) {
      using Kind = FixedKind<format.value, Format::f32>;
      store<Kind>(p, recipe, n, low, high, chosen, range.finite());
    });
  }

  template <class Kind>
  HT_DEVICE static void encode(const Params& p, const Recipe& recipe, uint32_t n, const Eight& low,
                               const Eight& high) {
    ReadRange<kAccess> read;
    read.add(low, recipe.asymmetric);
    read.add(high, recipe.asymmetric);
    BlockRange range = read.range();
    for (uint32_t d = p.lanes / 2; d > 0; d /= 2) {
      range.most = hw::max_nan(range.most, hw::shuffle_xor(range.most, d));
      if (!recipe.asymmetric) continue;
      range.low = hw::min(range.low, hw::shuffle_xor(range.low, d));
      range.up = hw::max(range.up, hw::shuffle_xor(range.up, d));
    }
    if (n >= p.count) return;
    ZeroPoint chosen;
    if constexpr (Kind::kElement == Element::e2m1 && Kind::kScale == Format::fp8_e4m3 && kConvert) {
      chosen = {range.finite() ? nvfp4_scale<kConvert>(recipe, range.most) : poisoned_scale(recipe),
                0};
    } else {
      chosen = range.scale(recipe);
    }
    if ((n & (p.lanes - 1)) == 0) {
      const uint32_t group = p.group.divide(n);
      store_block_scale(p.args, recipe, p.faults, range, chosen, group, p.places.at(p.args, group));
    }
    if constexpr (Kind::kElement == Element::e2m1 && Kind::kScale == Format::fp8_e4m3) {
      if (range.most * chosen.scale.multiplier < 7) {
        return store<Kind, true>(p, recipe, n, low, high, chosen, range.finite());
      }
    }
    store<Kind>(p, recipe, n, low, high, chosen, range.finite());
  }

  // A block that holds a NaN or an infinity has codes of 0. kBounded: of encode_e2m1_eight.
  template <class Kind, bool kBounded = false>
  HT_DEVICE static void store(const Params& p, const Recipe& recipe, uint32_t n, const Eight& low,
                              const Eight& high, const ZeroPoint& chosen, bool finite) {
    const QuantizeArgs& args = p.args;
    const Eight* const eights[2] = {&low, &high};
    uint64_t codes[2];
    HT_UNROLL
    for (uint32_t i = 0; i < 2; ++i) {
      constexpr bool kPowerOfTwo = Kind::kElement == Element::e2m1 && Kind::kScale == Format::ue8m0;
      if constexpr (kPowerOfTwo && kAccess == pipe::Access::bf16) {
        codes[i] =
            encode_e2m1_pairs(std::bit_cast<hw::Words4>(*eights[i]), chosen.scale.multiplier);
      } else {
        float x[8];
        eights[i]->widen(args.source, x);
        codes[i] = encode_eight_of<Kind, kConvert, kBounded>(recipe, x, chosen.scale.multiplier,
                                                             chosen.zero);
      }
      if (!finite) codes[i] = 0;
    }
    if (bits_of(recipe.format) == 4) {
      store_codes<Format::int8>(args.codes + int64_t{n} * 8, codes[1] << 32 | codes[0]);
    } else if (bits_of(recipe.format) == 6) {
      const uint32_t words[3] = {
          static_cast<uint32_t>(codes[0]),
          static_cast<uint32_t>(codes[0] >> 32) | static_cast<uint32_t>(codes[1]) << 16,
          static_cast<uint32_t>(codes[1] >> 16)};
      HT_UNROLL
      for (uint32_t i = 0; i < 3; ++i) {
        hw::store_global(reinterpret_cast<uint32_t*>(args.codes) + (uint64_t{n} * 3 + i), words[i]);
      }
    } else {
      const hw::Words4 words{
          {static_cast<uint32_t>(codes[0]), static_cast<uint32_t>(codes[0] >> 32),
           static_cast<uint32_t>(codes[1]), static_cast<uint32_t>(codes[1] >> 32)}};
      hw::store_global(reinterpret_cast<hw::Words4*>(args.codes) + n, words);
    }
  }
};

}  // namespace halftone
