// Dequantisation before attention on sm_90a: rows of Q, K and V in FP8, INT8, MXFP8, MXFP4 or NVFP4
// become contiguous rows of BF16 in the plan's workspace, with block scales multiplied in; pages
// become consecutive rows. A thread dequantises 8 elements of four rows. A per-row scale that is a
// power of two is multiplied in, too, exactly: the attention kernel finds 1 in its place, and skips
// tiles of such scales.
//
// Every K/V tile is read by every Q tile. Dequantising once costs 5 bytes an element of an 8-bit
// format, written and read again included; in the producer warps of each CTA it took three times as
// long as the MMAs themselves.
#pragma once
#include "hw/thread.h"
#include "ops/attention/sm90/dequant/formats.cuh"

namespace halftone::attention_sm90 {

// [outer, rows, heads, 8 x chunks].
struct DequantiseRows {
  Operand from;
  hw::Words4* to;
  float* scales;  // [outer, rows, heads]: per-row scales that are not multiplied in; else null
  uint32_t rows, heads, chunks;
  const int32_t* pages;  // page table, [outer, any], or null
  const int32_t* used;   // seqused_k, [outer], or null
  // How CTAs share an outer: each has `width` chunks of all heads, in `lanes` rows at a time, so
  // that a thread divides only once.
  uint32_t width, lanes, across, down;
  HT_HOST_DEVICE uint32_t blocks_of_outer() const { return across * down; }
};

struct DequantiseParams {
  DequantiseRows operands[3];
  uint32_t blocks[3];
  int64_t pages_stride;
  uint32_t page_size, page_count;
};

struct Dequantise {
  using Params = DequantiseParams;
  static constexpr uint32_t kThreads = 256, kMinBlocks = 4;
  // Rows of a thread, all loaded before the first is dequantised: of 8-bit formats 32 KB in flight
  // a multiprocessor, what hides the latency of memory at its full rate.
  static constexpr uint32_t kRows = 4;

  // Divides the rows of an operand among CTAs.
  static void share(DequantiseRows& x) {
    const uint32_t columns = x.heads * x.chunks;
    x.width = columns < kThreads ? columns : kThreads;
    x.lanes = kThreads / x.width, x.across = (columns + x.width - 1) / x.width;
    x.down = (x.rows + x.lanes * kRows - 1) / (x.lanes * kRows);
  }

  HT_DEVICE static void run(const Params& p) {
    const DequantiseRows& x = p.operands[hw::block_index().y];
    const uint32_t block = hw::block_index().x;
    if (block >= p.blocks[hw::block_index().y]) return;
    const uint32_t outer = block / x.blocks_of_outer(), part = block % x.blocks_of_outer();
    const uint32_t lane = hw::thread_index().x / x.width;
    const uint32_t column = part % x.across * x.width + hw::thread_index().x % x.width;
    const uint32_t head = column / x.chunks, chunk = column % x.chunks;
    const uint32_t first = part / x.across * (x.lanes * kRows) + lane;
    if (lane >= x.lanes || head >= x.heads) return;
    uint32_t end = x.rows;
    if (x.used != nullptr) {
      const int32_t used = hw::load_global(x.used + outer);
      if (used < static_cast<int32_t>(end)) end = used < 0 ? 0 : static_cast<uint32_t>(used);
    }
    hw::Words4 packed[kRows];
    uint32_t scales[kRows];
    float row_scales[kRows];
    HT_UNROLL
    for (uint32_t i = 0; i < kRows; ++i) {
      const uint32_t row = first + i * x.lanes;
      packed[i] = {}, scales[i] = 0, row_scales[i] = 1;
      if (row >= end) continue;
      attention_sm80::RowIndex at{outer, row};
      if (x.pages != nullptr) {
        at = {hw::load_global(x.pages + outer * p.pages_stride + row / p.page_size),
              row % p.page_size};
      }
      // A page that does not exist is of zeros.
      const bool exists = x.pages == nullptr || static_cast<uint64_t>(at.outer) < p.page_count;
      const uint8_t* from = attention_sm80::scales_of(x.from, at, head);
      if (x.scales != nullptr) {
        const float scale = exists ? hw::load_global(reinterpret_cast<const float*>(from)) : 0;
        const bool folded = foldable(scale);
        if (folded) row_scales[i] = scale;
        if (chunk == 0) {
          hw::store_global(x.scales + (int64_t{outer} * x.rows + row) * x.heads + head,
                           folded ? 1 : scale);
        }
      }
      if (!exists) continue;
      scales[i] = attention_sm80::encoded_scale(x.from, from, chunk / 2);
      load(x.from.format, attention_sm80::data_of(x.from, at, head), chunk, packed[i].at);
    }
    const int64_t columns = int64_t{x.heads} * x.chunks;
    HT_UNROLL
    for (uint32_t i = 0; i < kRows; ++i) {
      const uint32_t row = first + i * x.lanes;
      if (row >= end) continue;
      const uint32_t two[2] = {packed[i].at[0], packed[i].at[1]};
      hw::store_global(x.to + ((int64_t{outer} * x.rows + row) * columns + column),
                       x.from.format == Format::bf16
                           ? packed[i]
                           : dequantise_chunk(x.from.format, two, scales[i], row_scales[i]));
    }
  }

  HT_DEVICE static void load(Format format, const uint8_t* row, uint32_t chunk,
                             uint32_t (&packed)[4]) {
    constexpr auto kCache = hw::Cache::no_allocate;  // read once
    using Pair = hw::Vector<uint32_t, 2>;
    if (format == Format::bf16) {
      const auto four =
          hw::load_global<hw::Words4, kCache>(reinterpret_cast<const hw::Words4*>(row) + chunk);
      HT_UNROLL
      for (uint32_t w = 0; w < 4; ++w) packed[w] = four.at[w];
    } else if (pipe::has_nibbles(format)) {
      packed[0] = hw::load_global<uint32_t, kCache>(reinterpret_cast<const uint32_t*>(row) + chunk);
    } else {
      const auto two = hw::load_global<Pair, kCache>(reinterpret_cast<const Pair*>(row) + chunk);
      packed[0] = two[0], packed[1] = two[1];
    }
  }
};

}  // namespace halftone::attention_sm90
