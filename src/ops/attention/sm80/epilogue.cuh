// The two ends of attention for all GPUs: which rows and keys a block has, and what becomes of
// finished rows, at once or from runs of keys that were computed apart.
#pragma once
#include "base/launch.h"
#include "ops/attention/sm80/softmax.cuh"

namespace halftone::attention_sm80 {

struct Output {
  uint8_t* data;
  int64_t batch, row, head;  // strides in elements
  Format format;
  bool pairs;  // two neighbouring elements lie where one access can write them
};

struct Params {
  Operand q, k, v;
  Output out;
  Mask mask;
  float* lse;  // [batch, heads, queries], or null
  int64_t lse_batch, lse_head, lse_row;
  const float* sinks;  // [heads], or null
  int64_t sink_stride;
  const int32_t* page_table;  // or null
  int64_t page_table_stride;
  uint32_t page_size, page_count;
  const int32_t *keys_in_use, *query_ends, *key_ends;  // seqused_k, cu_seqlens_q and _k, or null
  int32_t query_rows, key_rows;                        // of the tensors: no length leads beyond
  // Of runs of keys, [batch, key heads, splits, rows]: O, of row_stride f32, and what it is
  // relative to with its sum.
  float *partial_out, *partial_sums;
  uint32_t batch, heads, kv_heads, group;  // group: query heads that share a key head
  uint32_t head_dim, value_dim, partial_stride;
  uint32_t row_tiles, splits, split_keys;  // split_keys: of a run
  KeyRange range;                          // of the longest sequence
  float scale_log2, softcap;               // softmax scale and softcap, in units of log2
  float value_factor;                      // of O: what P was multiplied by
  AttentionRounding rounding;
};

// Keys whose P in NVFP4 share a second level: as on the CPU, whose chunks are these up to 256
// dimensions.
inline constexpr uint32_t kNvfp4Keys = 256;

HT_DEVICE int32_t within(int32_t x, int32_t most) { return x < 0 ? 0 : x < most ? x : most; }

// One sequence: lengths on the device lead to no row beyond those of the tensors and the plan.
struct Sequence {
  int32_t query_begin = 0, key_begin = 0;
  KeyRange range;

  HT_DEVICE Sequence(const Params& p, uint32_t b, hw::Site site = hw::Site::current())
      : range(p.range) {
    const auto ends = [&](const int32_t* table, int32_t rows, int32_t& begin, int32_t& count) {
      begin = within(hw::load_global(table + b, site), rows);
      count = within(hw::load_global(table + b + 1, site) - begin,
                     rows - begin < count ? rows - begin : count);
    };
    if (p.query_ends != nullptr) ends(p.query_ends, p.query_rows, query_begin, range.queries);
    if (p.key_ends != nullptr) ends(p.key_ends, p.key_rows, key_begin, range.count);
    if (p.keys_in_use != nullptr) {
      const int32_t room = p.key_rows - key_begin;
      range.count = within(hw::load_global(p.keys_in_use + b, site),
                           p.range.count < room ? p.range.count : room);
    }
  }
};

// Where a row's query is: in q and out as `place`, in its sequence as `query`.
struct QueryPlace {
  RowIndex place;
  uint32_t head;
  int32_t query;
};

// What a block does.
struct Block {
  uint32_t batch, kv_head, split;
  uint32_t first_row, rows;  // of a tile; rows of the sequence in all
  int32_t query_begin;
  uint32_t group;
  bool packed_queries;
  KeyRange range;
  KeyTiles tiles;  // those of the block's run
  Keys keys;
  float score_factor;  // of all its scores
  bool ruled;          // scores are more than a positive multiple of q . k

  // What scores are multiplied by on their way to P.
  HT_DEVICE float factor() const { return ruled ? 1 : score_factor; }
  HT_DEVICE QueryPlace query(const Params& p, uint32_t row) const {
    const auto query = static_cast<int32_t>(row / group);
    return {{packed_queries ? 0 : int64_t{batch}, query_begin + query},
            kv_head * p.group + row % group,
            query};
  }
  // In the partial results.
  HT_DEVICE uint64_t partial_row(const Params& p, uint32_t row) const {
    const uint64_t head = uint64_t{batch} * p.kv_heads + kv_head;
    return (head * p.splits + split) * (static_cast<uint32_t>(p.range.queries) * p.group) + row;
  }
};

// False: there are no rows. Later rows first: under a causal mask they are the longest.
HT_DEVICE bool locate(const Params& p, uint32_t tile_rows, uint32_t tile_keys, Block& block,
                      hw::Site site = hw::Site::current()) {
  uint32_t at = hw::block_index().x;
  const uint32_t tile = p.row_tiles - 1 - at % p.row_tiles;
  at /= p.row_tiles;
  block.split = at % p.splits, at /= p.splits;
  block.kv_head = at % p.kv_heads, block.batch = at / p.kv_heads;
  const Sequence s(p, block.batch, site);
  block.range = s.range, block.query_begin = s.query_begin, block.group = p.group;
  block.packed_queries = p.query_ends != nullptr;
  block.first_row = tile * tile_rows;
  block.rows = static_cast<uint32_t>(s.range.queries) * p.group;
  if (block.first_row >= block.rows) return false;

  const uint32_t end_row =
      block.first_row + tile_rows < block.rows ? block.first_row + tile_rows : block.rows;
  const auto first = static_cast<int32_t>(block.first_row / p.group);
  const auto last = static_cast<int32_t>((end_row - 1) / p.group);
  block.tiles = s.range.tiles(first, last - first + 1, static_cast<int32_t>(tile_keys));
  block.keys = {
      s.range.keys(first).first,
      s.range.keys(last).end,
      p.key_ends != nullptr ? 0 : block.batch,
      s.key_begin,
      p.page_table == nullptr ? nullptr : p.page_table + block.batch * p.page_table_stride,
      p.page_size,
      p.page_count};
  if (p.splits > 1) {
    const uint32_t run = p.split_keys / tile_keys, begin = block.split * run;
    if (block.tiles.first < begin) block.tiles.first = begin;
    if (block.tiles.end > begin + run) block.tiles.end = begin + run;
  }
  block.score_factor = hw::mul(hw::mul(p.scale_log2, factor_of(p.q, block.batch, site)),
                               factor_of(p.k, block.batch, site));
  block.ruled = p.k.scaling == Scales::row || p.q.scaling == Scales::row || p.softcap > 0 ||
                p.mask.data != nullptr || !(block.score_factor > 0);
  return true;
}

// Elements `column` and the next of a row, as far as they exist.
HT_DEVICE void store_pair(const Output& out, int64_t row, uint32_t column, uint32_t count, float x,
                          float y, hw::Site site = hw::Site::current()) {
  if (column >= count) return;
  const int64_t at = row + column;
  const bool both = column + 1 < count;
  if (out.format == Format::f32) {
    float* to = reinterpret_cast<float*>(out.data) + at;
    if (both && out.pairs) {
      hw::store_global(reinterpret_cast<hw::Vector<float, 2>*>(to), hw::Vector<float, 2>{{x, y}},
                       site);
      return;
    }
    hw::store_global(to, x, site);
    if (both) hw::store_global(to + 1, y, site);
    return;
  }
  const uint32_t pair = out.format == Format::bf16 ? hw::cvt_bf16x2(x, y) : hw::cvt_f16x2(x, y);
  uint16_t* to = reinterpret_cast<uint16_t*>(out.data) + at;
  if (both && out.pairs) {
    hw::store_global(reinterpret_cast<uint32_t*>(to), pair, site);
    return;
  }
  hw::store_global(to, static_cast<uint16_t>(pair), site);
  if (both) hw::store_global(to + 1, static_cast<uint16_t>(pair >> 16), site);
}

// A finished row: sum x 2^level is its divisor, which a sink joins as one more key of value 0.
// Returns what its O is to be multiplied by; `writer`: of the lanes that hold the row, the one that
// writes its logarithm. Not read where the row is empty: its O is 0.
struct Finished {
  float factor;
  bool empty;
};
HT_DEVICE Finished finish_row(const Params& p, uint32_t batch, uint32_t head, int32_t query,
                              float level, float sum, bool writer,
                              hw::Site site = hw::Site::current()) {
  const bool empty = sum == 0;
  float part = 1;
  if (empty) level = -kInfinity;
  if (p.sinks != nullptr) {
    const float sink = hw::mul(hw::load_global(p.sinks + head * p.sink_stride, site), kLog2e);
    const float top = hw::max(level, sink), now = top == -kInfinity ? 0 : top;
    part = hw::ex2_approx_ftz(hw::add(level, -now));
    sum = hw::add(hw::mul(sum, part), hw::ex2_approx_ftz(hw::add(sink, -now)));
    level = now;
  }
  if (p.lse != nullptr && writer) {
    const float lse = hw::mul(hw::add(level, hw::lg2_approx(sum)), kLn2);
    hw::store_global(p.lse + batch * p.lse_batch + head * p.lse_head + query * p.lse_row,
                     sum == 0 ? -kInfinity : lse, site);
  }
  const float values = hw::mul(p.value_factor, factor_of(p.v, batch, site));
  return {empty ? 0 : hw::mul(part / sum, values), empty};
}

// Joins the runs of keys of a row, in their order; a warp has a row.
struct Combine {
  using Params = attention_sm80::Params;
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1;

  static LaunchShape shape(const Params& p) {
    const uint64_t rows =
        uint64_t{p.batch} * p.kv_heads * p.group * static_cast<uint32_t>(p.range.queries);
    return {.grid = {static_cast<uint32_t>((rows + 3) / 4), 1, 1}, .block = {kThreads, 1, 1}};
  }

  HT_DEVICE static void run(const Params& p) {
    const auto rows_each = static_cast<uint32_t>(p.range.queries) * p.group;
    const uint32_t index = hw::block_index().x * 4 + hw::warp_index(), lane = hw::lane_index();
    Block block;
    block.batch = index / rows_each / p.kv_heads, block.kv_head = index / rows_each % p.kv_heads;
    if (block.batch >= p.batch) return;
    const Sequence s(p, block.batch);
    const uint32_t row = index % rows_each;
    if (row >= static_cast<uint32_t>(s.range.queries) * p.group) return;
    block.query_begin = s.query_begin, block.group = p.group;
    block.packed_queries = p.query_ends != nullptr;

    const auto sums_of = [&](uint32_t split) {
      block.split = split;
      const float* at = p.partial_sums + 2 * block.partial_row(p, row);
      return hw::load_global(reinterpret_cast<const hw::Vector<float, 2>*>(at));
    };
    float top = -kInfinity;
    HT_ROLLED
    for (uint32_t split = 0; split < p.splits; ++split) {
      const auto run = sums_of(split);
      if (run.at[1] != 0) top = hw::max(top, run.at[0]);
    }
    float sum = 0, o[4][2] = {};
    HT_ROLLED
    for (uint32_t split = 0; split < p.splits; ++split) {
      const auto run = sums_of(split);
      if (run.at[1] == 0) continue;
      const float weight = hw::ex2_approx_ftz(hw::add(run.at[0], -top));
      sum = hw::fma(run.at[1], weight, sum);
      const float* from = p.partial_out + block.partial_row(p, row) * p.partial_stride;
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t column = 64 * i + 2 * lane;
        if (column >= p.value_dim) continue;
        const auto pair =
            hw::load_global(reinterpret_cast<const hw::Vector<float, 2>*>(from + column));
        o[i][0] = hw::fma(pair.at[0], weight, o[i][0]);
        o[i][1] = hw::fma(pair.at[1], weight, o[i][1]);
      }
    }
    const QueryPlace at = block.query(p, row);
    const Finished end = finish_row(p, block.batch, at.head, at.query, top, sum, lane == 0);
    const int64_t out =
        at.place.outer * p.out.batch + at.place.row * p.out.row + at.head * p.out.head;
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      store_pair(p.out, out, 64 * i + 2 * lane, p.value_dim,
                 end.empty ? 0 : hw::mul(o[i][0], end.factor),
                 end.empty ? 0 : hw::mul(o[i][1], end.factor));
    }
  }
};

}  // namespace halftone::attention_sm80
