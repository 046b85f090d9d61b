// Codes of rows of 16-bit elements that a kernel makes itself (norms, gates). Each thread keeps the
// eights it has made, rounded, in shared memory, so that one loop for each usual format, over two
// of them at a time, finds the scales and encodes, however many there are; an eight's group is in
// neighbouring lanes, or is the row.
#pragma once
#include "formats/gpu/encode.cuh"
#include "hw/warp.h"
#include "pipe/row_pieces.h"

namespace halftone {

struct RowCodesArgs {
  QuantizeArgs to;
  FaultReporter faults;
  uint32_t lanes = 0;        // neighbouring ones that share a group; 0: a row has one scale
  uint32_t group_shift = 0;  // a group has 2^group_shift elements
  GroupPlaces places;
};

// The arguments for rows of format `made`; false where scales are of other blocks than whole rows
// or groups of 16 to 256 elements, are adaptive, or `made` has 32 bits.
bool take_row_codes(const QuantizeArgs&, Format made, Stream&, RowCodesArgs*);

template <pipe::Access kAccess, bool kConvert>
class RowCodes {
 public:
  using Piece = pipe::Piece<kAccess>;
  static_assert(Piece::kElements == 8, "elements have 16 bits");
  static constexpr uint32_t kShared = pipe::RowThreads::kSharedBytes;  // where eights begin
  static constexpr uint32_t shared_bytes(uint32_t pieces, uint32_t block_threads) {
    return kShared + 16 * pieces * block_threads;
  }

  HT_DEVICE explicit RowCodes(const RowCodesArgs& args)
      : args_(args),
        slots_(hw::shared_memory_base() + kShared + 16 * hw::thread_index().x),
        apart_(16 * hw::block_size().x) {
    const QuantizeArgs& to = args.to;
    if (to.tensor_scale != nullptr && hw::block_index().x == 0 && hw::thread_index().x == 0) {
      hw::store_global(to.tensor_scale, to.recipe.tensor_scale);
    }
  }

  HT_DEVICE void keep(uint32_t k, const Piece& made) {
    hw::store_shared(slots_ + k * apart_, made.words);
  }

  // Of row `row`, whose first element is number `first` of all, the `pieces` that were kept, an
  // even number; those `at` does not have are not the row's. All threads of the block call it.
  HT_DEVICE void store(pipe::RowThreads& threads, int64_t row, int64_t first,
                       const pipe::PiecePlaces& at, uint32_t pieces) {
    const Recipe& recipe = args_.to.recipe;
    constexpr bool kInt4 = false;  // rare for what is made at run time
    for_kind_of<kInt4>(recipe.format, recipe.scale_format, recipe.asymmetric, [&](auto kind) {
      using Kind = decltype(kind);
      const Recipe fixed = kind.of(recipe);
      args_.lanes == 0 ? store_row<Kind>(fixed, threads, row, first, at, pieces)
                       : store_groups<Kind>(fixed, threads, first, at, pieces);
    });
  }

 private:
  using Eight = pipe::Eight<kAccess>;
  // Pieces at a time, whose loads, shuffles and divisions wait beside each other.
  static constexpr uint32_t kAhead = 2;

  template <class Kind>
  HT_DEVICE void store_row(const Recipe& recipe, pipe::RowThreads& threads, int64_t row,
                           int64_t first, const pipe::PiecePlaces& at, uint32_t pieces) {
    ReadRange<kAccess> read;
    for (uint32_t k = 0; k < pieces; k += kAhead) {
      HT_UNROLL
      for (uint32_t i = 0; i < kAhead; ++i) read.add(kept(at, k + i), recipe.asymmetric);
    }
    BlockRange range = read.range();
    range.most = threads.reduce(range.most, [](float a, float b) { return hw::max_nan(a, b); });
    if (recipe.asymmetric) {
      range.low = threads.reduce(range.low, [](float a, float b) { return hw::min(a, b); });
      range.up = threads.reduce(range.up, [](float a, float b) { return hw::max(a, b); });
    }
    const ZeroPoint chosen = scale_of<Kind>(recipe, range);
    if (threads.rank() == 0 && at.end > 0) {
      store_scale_of(recipe, range, chosen, static_cast<uint32_t>(row));
    }
    for (uint32_t k = 0; k < pieces; k += kAhead) {
      HT_UNROLL
      for (uint32_t i = 0; i < kAhead; ++i) {
        encode<Kind>(recipe, kept(at, k + i), chosen, range.finite(), at, k + i, first);
      }
    }
  }

  template <class Kind>
  HT_DEVICE void store_groups(const Recipe& recipe, const pipe::RowThreads& threads, int64_t first,
                              const pipe::PiecePlaces& at, uint32_t pieces) {
    for (uint32_t k = 0; k < pieces; k += kAhead) {
      Eight eights[kAhead];
      BlockRange ranges[kAhead];
      HT_UNROLL
      for (uint32_t i = 0; i < kAhead; ++i) {
        eights[i] = kept(at, k + i);
        ReadRange<kAccess> read;
        read.add(eights[i], recipe.asymmetric);
        ranges[i] = read.range();
      }
      for (uint32_t d = args_.lanes / 2; d > 0; d /= 2) {
        HT_UNROLL
        for (BlockRange& range : ranges) {
          range.most = hw::max_nan(range.most, hw::shuffle_xor(range.most, d));
          if (!recipe.asymmetric) continue;
          range.low = hw::min(range.low, hw::shuffle_xor(range.low, d));
          range.up = hw::max(range.up, hw::shuffle_xor(range.up, d));
        }
      }
      HT_UNROLL
      for (uint32_t i = 0; i < kAhead; ++i) {
        const ZeroPoint chosen = scale_of<Kind>(recipe, ranges[i]);
        if ((threads.rank() & (args_.lanes - 1)) == 0 && at.has(k + i)) {
          const int64_t element = first + at[k + i] / 2;
          store_scale_of(recipe, ranges[i], chosen,
                         static_cast<uint32_t>(element >> args_.group_shift));
        }
        encode<Kind>(recipe, eights[i], chosen, ranges[i].finite(), at, k + i, first);
      }
    }
  }

  HT_DEVICE Eight kept(const pipe::PiecePlaces& at, uint32_t k) const {
    hw::Words4 words = {};
    if (at.has(k)) words = hw::load_shared<hw::Words4>(slots_ + k * apart_);
    return std::bit_cast<Eight>(words);
  }
  template <class Kind>
  HT_DEVICE ZeroPoint scale_of(const Recipe& recipe, const BlockRange& range) const {
    if constexpr (Kind::kElement == Element::e2m1 && Kind::kScale == Format::fp8_e4m3 && kConvert) {
      return {range.finite() ? nvfp4_scale<kConvert>(recipe, range.most) : poisoned_scale(recipe),
              0};
    } else {
      return range.scale(recipe);
    }
  }
  HT_DEVICE void store_scale_of(const Recipe& recipe, const BlockRange& range,
                                const ZeroPoint& chosen, uint32_t group) const {
    store_block_scale(args_.to, recipe, args_.faults, range, chosen, group,
                      args_.places.at(args_.to, group));
  }
  // A block that holds a NaN or an infinity has codes of 0.
  template <class Kind>
  HT_DEVICE void encode(const Recipe& recipe, const Eight& eight, const ZeroPoint& chosen,
                        bool finite, const pipe::PiecePlaces& at, uint32_t k, int64_t first) const {
    if (!at.has(k)) return;
    float x[8];
    eight.widen(Piece::kFormat, x);
    const uint64_t codes =
        encode_eight_of<Kind, kConvert>(recipe, x, chosen.scale.multiplier, chosen.zero);
    store_eight(recipe.format, args_.to.codes, first + at[k] / 2, finite ? codes : 0);
  }

  const RowCodesArgs& args_;
  hw::SharedAddress slots_;
  uint32_t apart_;
};

}  // namespace halftone
