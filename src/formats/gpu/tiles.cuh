// Quantisation of tiles whose rows are whole pieces of 16 bytes: one row of any length, or several
// of a power of two of eights (128 x 128). A group of threads has a tile; each has the loads of
// eight pieces under way at a time, and keeps the last of them as they stand in memory until they
// become codes: a tile of up to 32,768 elements is read once. The bits are those of the CPU.
#pragma once
#include "formats/gpu/encode.cuh"
#include "hw/griddep.h"
#include "pipe/row_threads.h"

namespace halftone {

struct QuantizeTilesParams {
  QuantizeArgs args;
  FaultReporter faults;
  uint32_t count;         // tiles of all matrices
  uint32_t down, across;  // tiles of a matrix
  uint32_t high, wide;    // rows and columns of one
  uint32_t shift;         // 2^shift eights a row; kOneRow: tiles of one row
  uint32_t row_stride;    // bytes from row to row of a matrix of x
  uint32_t row_threads;   // of a tile; of one of several rows at least 2^shift
};

template <pipe::Access kAccess, bool kConvert>
struct QuantizeTilesGpu {
  using Params = QuantizeTilesParams;
  using Eight = pipe::Eight<kAccess>;
  static constexpr uint32_t kOneRow = 31;  // fewer than 2^31 eights: all in row 0
  static constexpr uint32_t kThreads = 256, kMinBlocks = 3;
  static constexpr bool kHalf = kAccess != pipe::Access::f32;
  static constexpr uint32_t kKept = kHalf ? 8 : 4;  // 32 registers
  static constexpr uint32_t kBytes = kHalf ? 2 : 4;

  // What a thread has of a tile: pieces at even distances.
  struct Pieces {
    const char* x = nullptr;                      // of the first one
    uint64_t step = 0;                            // bytes from one to the next
    uint32_t first = 0, distance = 0, count = 0;  // pieces of the tile

    HT_DEVICE bool live(uint32_t i) const { return first + i * distance < count; }
    HT_DEVICE void load(uint32_t chunk, Eight (&kept)[kKept]) const {
      const char* at = x + chunk * kKept * step;
      HT_UNROLL
      for (uint32_t i = 0; i < kKept; ++i, at += step) {
        kept[i] = {};
        if (live(chunk * kKept + i)) kept[i].load(Format::f32, at, {0, 4}, 8);
      }
    }
  };

  HT_DEVICE static void run(const Params& p) {
    hw::launch_dependents_and_wait();
    const QuantizeArgs& args = p.args;
    pipe::RowThreads threads(p.row_threads);
    const auto index = static_cast<uint32_t>(threads.row());
    const bool live = index < p.count;
    const uint32_t band = live ? index / p.across : 0, group = live ? index - band * p.across : 0;
    const uint32_t matrix = args.matrices == 1 ? 0 : band / p.down, top = band - matrix * p.down;
    const int64_t row = matrix * args.rows + int64_t{top} * p.high, left = int64_t{group} * p.wide;
    const int64_t rows = args.rows - int64_t{top} * p.high, columns = args.columns - left;
    // Of several rows a thread has one eight of each (1 << shift)-th; of one row, all in row 0.
    const uint32_t rank = threads.rank(), down = rank >> p.shift;
    const uint32_t eight = rank - (down << p.shift), row_step = p.row_threads >> p.shift;
    const uint32_t eights = static_cast<uint32_t>(columns < p.wide ? columns : p.wide) / 8;
    const bool one_row = p.shift == kOneRow;
    Pieces pieces;
    pieces.first = rank, pieces.distance = p.row_threads;
    if (live && eight < eights) {
      const auto high = rows < p.high ? static_cast<uint32_t>(rows) : p.high;
      pieces.count = one_row ? eights : high << p.shift;
    }
    pieces.x = args.x[row] + left * kBytes + (uint64_t{down} * p.row_stride + eight * (8 * kBytes));
    pieces.step =
        one_row ? uint64_t{p.row_threads} * (8 * kBytes) : uint64_t{row_step} * p.row_stride;
    const uint32_t chunks = (pieces.count + p.row_threads * kKept - 1) / (p.row_threads * kKept);

    Eight kept[kKept];
    ReadRange<kAccess> read;
    for (uint32_t chunk = chunks; chunk-- > 0;) {  // the first one stays
      pieces.load(chunk, kept);
      HT_UNROLL
      for (uint32_t i = 0; i < kKept; ++i) read.add(kept[i], args.recipe.asymmetric);
    }
    BlockRange range = read.range();
    range.most = threads.reduce(range.most, [](float a, float b) { return hw::max_nan(a, b); });
    if (args.recipe.asymmetric) {
      range.low = threads.reduce(range.low, [](float a, float b) { return hw::min(a, b); });
      range.up = threads.reduce(range.up, [](float a, float b) { return hw::max(a, b); });
    }
    if (!live) return;
    Recipe recipe = args.recipe;
    if (args.amax != nullptr) {
      set_tensor_amax(std::bit_cast<float>(hw::load_global(args.amax)), &recipe);
    } else if (args.tensor_scale != nullptr && index == 0 && threads.rank() == 0) {
      hw::store_global(args.tensor_scale, recipe.tensor_scale);
    }
    const ZeroPoint chosen = range.scale(recipe);
    if (threads.rank() == 0) {
      const bool linear = args.layout == ScaleLayout::linear;
      store_block_scale(args, recipe, p.faults, range, chosen, index,
                        linear ? index
                               : matrix * args.scale_bytes +
                                     scale_offset(args.layout, args.rows, p.across, top, group));
    }
    const auto pitch = static_cast<uint32_t>(code_offset(recipe.format, args.columns));
    uint8_t* const codes = args.codes + row * int64_t{pitch} + code_offset(recipe.format, left);
    for_elements_of(recipe.format, [&](auto format) {
      constexpr uint32_t kStored = bits_of(format.value);
      const uint64_t step =
          one_row ? uint64_t{p.row_threads} * kStored : uint64_t{row_step} * pitch;
      uint8_t* to = codes + (uint64_t{down} * pitch + eight * kStored);
      for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
        if (chunk > 0) pieces.load(chunk, kept);
        HT_UNROLL
        for (uint32_t i = 0; i < kKept; ++i, to += step) {
          if (!pieces.live(chunk * kKept + i)) continue;
          float x[8];
          kept[i].widen(args.source, x);
          const uint64_t code =
              encode_eight<format.value, kConvert>(x, chosen.scale.multiplier, chosen.zero);
          store_codes<format.value>(to, range.finite() ? code : 0);
        }
      }
    });
  }
};

}  // namespace halftone
