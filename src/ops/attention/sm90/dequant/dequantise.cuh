// Before attention on Hopper over quantised operands: rows of codes become rows of bf16, side by
// side in memory, with their block scales in the numbers; pages become rows one after the other. A
// row's scale that is a power of two is in the numbers, too, exactly: the kernel that multiplies
// them finds 1 in its place, and passes over tiles of such.
//
// A tile of keys is multiplied by every tile of queries. Expanding it once costs 5 bytes an element
// of an 8-bit format, written and read again included; in the loading warps of each block it took
// three times as long as the products themselves.
#pragma once
#include "hw/thread.h"
#include "ops/attention/sm90/dequant/formats.cuh"

namespace halftone::attention_sm90 {

// [outer, rows, heads, 8 eights].
struct WideRows {
  Operand from;
  hw::Words4* to;
  float* scales;  // [outer, rows, heads]: those of rows, less what is in the numbers; else null
  uint32_t rows, heads, eights;
  const int32_t* pages;  // [outer, any], or null: what a row of the table names
  const int32_t* used;   // [outer], or null: rows that are wanted
  // How blocks share an outer: each has `width` of the eights of all heads, in `lanes` rows at a
  // time; so a thread divides but once.
  uint32_t width, lanes, across, down;
  HT_HOST_DEVICE uint32_t blocks_of_outer() const { return across * down; }
};

struct DequantiseParams {
  WideRows operands[3];
  uint32_t blocks[3];
  int64_t pages_stride;
  uint32_t page_size, page_count;
};

struct Widen {
  using Params = DequantiseParams;
  static constexpr uint32_t kThreads = 256, kMinBlocks = 4;
  // Of a thread, all under way before the first is expanded: of 8-bit formats 32 KB a
  // multiprocessor, what hides the latency of memory at its full rate.
  static constexpr uint32_t kRows = 4;

  // Of operands, the one of `rows` to be shared out.
  static void share(WideRows& x) {
    const uint32_t columns = x.heads * x.eights;
    x.width = columns < kThreads ? columns : kThreads;
    x.lanes = kThreads / x.width, x.across = (columns + x.width - 1) / x.width;
    x.down = (x.rows + x.lanes * kRows - 1) / (x.lanes * kRows);
  }

  HT_DEVICE static void run(const Params& p) {
    const WideRows& x = p.operands[hw::block_index().y];
    const uint32_t block = hw::block_index().x;
    if (block >= p.blocks[hw::block_index().y]) return;
    const uint32_t outer = block / x.blocks_of_outer(), part = block % x.blocks_of_outer();
    const uint32_t lane = hw::thread_index().x / x.width;
    const uint32_t column = part % x.across * x.width + hw::thread_index().x % x.width;
    const uint32_t head = column / x.eights, eight = column % x.eights;
    const uint32_t first = part / x.across * (x.lanes * kRows) + lane;
    if (lane >= x.lanes || head >= x.heads) return;
    uint32_t end = x.rows;
    if (x.used != nullptr) {
      const int32_t used = hw::load_global(x.used + outer);
      if (used < static_cast<int32_t>(end)) end = used < 0 ? 0 : static_cast<uint32_t>(used);
    }
    hw::Words4 codes[kRows];
    uint32_t scales[kRows];
    float factors[kRows];
    HT_UNROLL
    for (uint32_t i = 0; i < kRows; ++i) {
      const uint32_t row = first + i * x.lanes;
      codes[i] = {}, scales[i] = 0, factors[i] = 1;
      if (row >= end) continue;
      attention_sm80::Place at{outer, row};
      if (x.pages != nullptr) {
        at = {hw::load_global(x.pages + outer * p.pages_stride + row / p.page_size),
              row % p.page_size};
      }
      // A page that does not exist is of zeros.
      const bool exists = x.pages == nullptr || static_cast<uint64_t>(at.outer) < p.page_count;
      const uint8_t* from = attention_sm80::scales_of(x.from, at, head);
      if (x.scales != nullptr) {
        const float scale = exists ? hw::load_global(reinterpret_cast<const float*>(from)) : 0;
        const bool inside = in_the_numbers(scale);
        if (inside) factors[i] = scale;
        if (eight == 0) {
          hw::store_global(x.scales + (int64_t{outer} * x.rows + row) * x.heads + head,
                           inside ? 1 : scale);
        }
      }
      if (!exists) continue;
      scales[i] = attention_sm80::scale_code(x.from, from, eight / 2);
      load(x.from.format, attention_sm80::data_of(x.from, at, head), eight, codes[i].at);
    }
    const int64_t columns = int64_t{x.heads} * x.eights;
    HT_UNROLL
    for (uint32_t i = 0; i < kRows; ++i) {
      const uint32_t row = first + i * x.lanes;
      if (row >= end) continue;
      const uint32_t two[2] = {codes[i].at[0], codes[i].at[1]};
      hw::store_global(x.to + ((int64_t{outer} * x.rows + row) * columns + column),
                       x.from.format == Format::bf16
                           ? codes[i]
                           : expand_eight(x.from.format, two, scales[i], factors[i]));
    }
  }

  HT_DEVICE static void load(Format format, const uint8_t* row, uint32_t eight,
                             uint32_t (&codes)[4]) {
    constexpr auto kCache = hw::Cache::no_allocate;  // read once
    using Pair = hw::Vector<uint32_t, 2>;
    if (format == Format::bf16) {
      const auto four =
          hw::load_global<hw::Words4, kCache>(reinterpret_cast<const hw::Words4*>(row) + eight);
      HT_UNROLL
      for (uint32_t w = 0; w < 4; ++w) codes[w] = four.at[w];
    } else if (pipe::has_nibbles(format)) {
      codes[0] = hw::load_global<uint32_t, kCache>(reinterpret_cast<const uint32_t*>(row) + eight);
    } else {
      const auto two = hw::load_global<Pair, kCache>(reinterpret_cast<const Pair*>(row) + eight);
      codes[0] = two[0], codes[1] = two[1];
    }
  }
};

}  // namespace halftone::attention_sm90
