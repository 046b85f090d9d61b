// Parameters, work assignment, epilogue and split-KV combine of attention on sm_80 and later: which
// rows and keys a CTA has, and how finished rows are written, at once or from the partials of
// several splits.
#pragma once
#include "base/launch.h"
#include "ops/attention/sm80/softmax.cuh"

namespace halftone::attention_sm80 {

struct Output {
  uint8_t* data;
  int64_t batch, row, head;  // strides in elements
  Format format;
  bool pairs;  // two neighbouring elements can be written by one access
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
  const int32_t *used_keys, *cu_queries, *cu_keys;  // seqused_k, cu_seqlens_q and _k, or null
  int32_t query_rows, key_rows;                     // of the tensors: no length leads beyond
  // Split-KV partials, [batch, KV heads, splits, rows]: unnormalised O of partial_stride FP32, and
  // its reference exponent and sum.
  float *partial_out, *partial_stats;
  uint32_t batch, heads, kv_heads, group;  // group: query heads a KV head
  uint32_t head_dim, value_dim, partial_stride;
  uint32_t row_tiles, splits, split_keys;  // split_keys: keys of a split
  KeyRange range;                          // of the longest sequence
  float scale_log2, softcap;               // softmax scale and softcap, in base-2 exponents
  float value_factor;                      // factor of O: undoes the scaling of P
  AttentionRounding rounding;
};

// Keys whose P in NVFP4 share a second-level scale: as on the CPU, whose chunks are these up to
// head size 256.
inline constexpr uint32_t kNvfp4Keys = 256;

HT_DEVICE int32_t clamp_length(int32_t x, int32_t most) { return x < 0 ? 0 : x < most ? x : most; }

// One sequence: lengths on the device lead to no row beyond those of the tensors and the plan.
struct Sequence {
  int32_t query_begin = 0, key_begin = 0;
  KeyRange range;

  HT_DEVICE Sequence(const Params& p, uint32_t b, hw::Site site = hw::Site::current())
      : range(p.range) {
    const auto clip = [&](const int32_t* table, int32_t rows, int32_t& begin, int32_t& count) {
      begin = clamp_length(hw::load_global(table + b, site), rows);
      count = clamp_length(hw::load_global(table + b + 1, site) - begin,
                           rows - begin < count ? rows - begin : count);
    };
    if (p.cu_queries != nullptr) clip(p.cu_queries, p.query_rows, query_begin, range.queries);
    if (p.cu_keys != nullptr) clip(p.cu_keys, p.key_rows, key_begin, range.count);
    if (p.used_keys != nullptr) {
      const int32_t room = p.key_rows - key_begin;
      range.count = clamp_length(hw::load_global(p.used_keys + b, site),
                                 p.range.count < room ? p.range.count : room);
    }
  }
};

// Where a row's query is: in q and out as `at`, in its sequence as `query`.
struct QueryIndex {
  RowIndex index;
  uint32_t head;
  int32_t query;
};

// Work of a CTA.
struct Work {
  uint32_t batch, kv_head, split;
  uint32_t first_row, rows;  // first_row: of the tile; rows: of the sequence in all
  int32_t query_begin;
  uint32_t group;
  bool packed_queries;
  KeyRange range;
  KeyTiles tiles;  // those of the CTA's split
  Keys keys;
  float score_factor;  // of all its scores
  bool score_mod;      // scores are more than a positive multiple of q . k

  // What scores are multiplied by in the softmax.
  HT_DEVICE float factor() const { return score_mod ? 1 : score_factor; }
  HT_DEVICE QueryIndex query(const Params& p, uint32_t row) const {
    const auto query = static_cast<int32_t>(row / group);
    return {{packed_queries ? 0 : int64_t{batch}, query_begin + query},
            kv_head * p.group + row % group,
            query};
  }
  // Index of the partial results.
  HT_DEVICE uint64_t partial_row(const Params& p, uint32_t row) const {
    const uint64_t head = uint64_t{batch} * p.kv_heads + kv_head;
    return (head * p.splits + split) * (static_cast<uint32_t>(p.range.queries) * p.group) + row;
  }
};

// False: there are no rows. Later rows first: under a causal mask they are the longest.
HT_DEVICE bool locate(const Params& p, uint32_t tile_rows, uint32_t tile_keys, Work& work,
                      hw::Site site = hw::Site::current()) {
  uint32_t at = hw::block_index().x;
  const uint32_t tile = p.row_tiles - 1 - at % p.row_tiles;
  at /= p.row_tiles;
  work.split = at % p.splits, at /= p.splits;
  work.kv_head = at % p.kv_heads, work.batch = at / p.kv_heads;
  const Sequence s(p, work.batch, site);
  work.range = s.range, work.query_begin = s.query_begin, work.group = p.group;
  work.packed_queries = p.cu_queries != nullptr;
  work.first_row = tile * tile_rows;
  work.rows = static_cast<uint32_t>(s.range.queries) * p.group;
  if (work.first_row >= work.rows) return false;

  const uint32_t end_row =
      work.first_row + tile_rows < work.rows ? work.first_row + tile_rows : work.rows;
  const auto first = static_cast<int32_t>(work.first_row / p.group);
  const auto last = static_cast<int32_t>((end_row - 1) / p.group);
  work.tiles = s.range.tiles(first, last - first + 1, static_cast<int32_t>(tile_keys));
  work.keys = {s.range.keys(first).first,
               s.range.keys(last).end,
               p.cu_keys != nullptr ? 0 : work.batch,
               s.key_begin,
               p.page_table == nullptr ? nullptr : p.page_table + work.batch * p.page_table_stride,
               p.page_size,
               p.page_count};
  if (p.splits > 1) {
    const uint32_t split_tiles = p.split_keys / tile_keys, begin = work.split * split_tiles;
    if (work.tiles.first < begin) work.tiles.first = begin;
    if (work.tiles.end > begin + split_tiles) work.tiles.end = begin + split_tiles;
  }
  work.score_factor = hw::mul(hw::mul(p.scale_log2, factor_of(p.q, work.batch, site)),
                              factor_of(p.k, work.batch, site));
  work.score_mod = p.k.scaling == Scales::row || p.q.scaling == Scales::row || p.softcap > 0 ||
                   p.mask.data != nullptr || !(work.score_factor > 0);
  return true;
}

// Stores elements `column` and the next of a row, as far as they exist.
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

// Finishes a row: its divisor is sum x 2^max_log2, which a sink joins as one more key of value 0.
// Returns the factor of O; `writer`: of the lanes that hold the row, the one that writes LSE. Where
// all keys are masked O is 0, not read.
struct OutputScale {
  float factor;
  bool empty;
};
HT_DEVICE OutputScale finalize_row(const Params& p, uint32_t batch, uint32_t head, int32_t query,
                                   float max_log2, float sum, bool writer,
                                   hw::Site site = hw::Site::current()) {
  const bool empty = sum == 0;
  float rescale = 1;
  if (empty) max_log2 = -kInfinity;
  if (p.sinks != nullptr) {
    const float sink = hw::mul(hw::load_global(p.sinks + head * p.sink_stride, site), kLog2e);
    const float new_max = hw::max(max_log2, sink), reference = new_max == -kInfinity ? 0 : new_max;
    rescale = hw::ex2_approx_ftz(hw::add(max_log2, -reference));
    sum = hw::add(hw::mul(sum, rescale), hw::ex2_approx_ftz(hw::add(sink, -reference)));
    max_log2 = reference;
  }
  if (p.lse != nullptr && writer) {
    const float lse = hw::mul(hw::add(max_log2, hw::lg2_approx(sum)), kLn2);
    hw::store_global(p.lse + batch * p.lse_batch + head * p.lse_head + query * p.lse_row,
                     sum == 0 ? -kInfinity : lse, site);
  }
  const float values = hw::mul(p.value_factor, factor_of(p.v, batch, site));
  return {empty ? 0 : hw::mul(rescale / sum, values), empty};
}

// Split-KV combine: merges the splits of a row, in order; a warp has a row.
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
    Work work;
    work.batch = index / rows_each / p.kv_heads, work.kv_head = index / rows_each % p.kv_heads;
    if (work.batch >= p.batch) return;
    const Sequence s(p, work.batch);
    const uint32_t row = index % rows_each;
    if (row >= static_cast<uint32_t>(s.range.queries) * p.group) return;
    work.query_begin = s.query_begin, work.group = p.group;
    work.packed_queries = p.cu_queries != nullptr;

    const auto stats_of = [&](uint32_t split) {
      work.split = split;
      const float* at = p.partial_stats + 2 * work.partial_row(p, row);
      return hw::load_global(reinterpret_cast<const hw::Vector<float, 2>*>(at));
    };
    float row_max = -kInfinity;
    HT_ROLLED
    for (uint32_t split = 0; split < p.splits; ++split) {
      const auto stats = stats_of(split);
      if (stats.at[1] != 0) row_max = hw::max(row_max, stats.at[0]);
    }
    float sum = 0, o[4][2] = {};
    HT_ROLLED
    for (uint32_t split = 0; split < p.splits; ++split) {
      const auto stats = stats_of(split);
      if (stats.at[1] == 0) continue;
      const float rescale = hw::ex2_approx_ftz(hw::add(stats.at[0], -row_max));
      sum = hw::fma(stats.at[1], rescale, sum);
      const float* from = p.partial_out + work.partial_row(p, row) * p.partial_stride;
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t column = 64 * i + 2 * lane;
        if (column >= p.value_dim) continue;
        const auto pair =
            hw::load_global(reinterpret_cast<const hw::Vector<float, 2>*>(from + column));
        o[i][0] = hw::fma(pair.at[0], rescale, o[i][0]);
        o[i][1] = hw::fma(pair.at[1], rescale, o[i][1]);
      }
    }
    const QueryIndex at = work.query(p, row);
    const OutputScale scale =
        finalize_row(p, work.batch, at.head, at.query, row_max, sum, lane == 0);
    const int64_t out =
        at.index.outer * p.out.batch + at.index.row * p.out.row + at.head * p.out.head;
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      store_pair(p.out, out, 64 * i + 2 * lane, p.value_dim,
                 scale.empty ? 0 : hw::mul(o[i][0], scale.factor),
                 scale.empty ? 0 : hw::mul(o[i][1], scale.factor));
    }
  }
};

}  // namespace halftone::attention_sm80
