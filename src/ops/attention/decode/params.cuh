// Attention of one query token: what a kernel is told, and what a block of it does.
#pragma once
#include "ops/attention/sm80/epilogue.cuh"
#include "pipe/divisor.h"

namespace halftone::attention_decode {

using attention_sm80::kInfinity;
using attention_sm80::Operand;
using attention_sm80::Scales;

inline constexpr uint32_t kRows = 8;  // heads of a block, a tile of rows

struct Params : attention_sm80::Params {
  pipe::Divisor page_divisor;
  int32_t batch_rows;  // of K and V a sequence, where they are not packed or paged
  uint32_t* arrived;   // [batch, key heads, row tiles]: 0 between runs
  bool settled;        // all but the last key of a sequence may be read before the kernel's turn
};

// A block has a tile of the rows of one key head, and a run of the keys of one sequence.
struct Work {
  uint32_t batch, kv_head, row_tile, rows;  // rows that exist
  int32_t query_begin;
  uint32_t split, splits;  // those that have keys
  int32_t begin, end;      // keys of the block
  int32_t last;            // behind the last key that the query sees
  int32_t first;           // row of key 0 where keys are not in pages
  const int32_t* pages;    // or null
  float score_factor;

  // Of the partial results.
  HT_DEVICE uint64_t tile(const Params& p) const {
    return (uint64_t{batch} * p.kv_heads + kv_head) * p.row_tiles + row_tile;
  }
  HT_DEVICE uint32_t head(const Params& p, uint32_t row) const {
    return kv_head * p.group + row_tile * kRows + row;
  }

  // False: nothing to do.
  HT_DEVICE bool locate(const Params& p, uint32_t tile_keys, hw::Site site = hw::Site::current()) {
    const hw::Index3 block = hw::block_index();
    kv_head = block.x % p.kv_heads, row_tile = block.x / p.kv_heads;
    split = block.y, batch = block.z;
    const attention_sm80::Sequence s(p, batch, site);
    if (s.range.queries <= 0) return false;
    query_begin = s.query_begin;
    const uint32_t left = p.group - row_tile * kRows;
    rows = left < kRows ? left : kRows;
    const KeyInterval seen = s.range.keys(0);
    const int32_t count = seen.end > seen.first ? seen.end - seen.first : 0;
    const auto runs = static_cast<int32_t>(p.splits), some = static_cast<int32_t>(tile_keys);
    auto run = static_cast<int32_t>(p.split_keys);
    if (run == 0) run = ((count + runs - 1) / runs + some - 1) / some * some;
    splits = count == 0 ? 1 : static_cast<uint32_t>((count + run - 1) / run);
    if (split >= splits) return false;
    begin = seen.first + static_cast<int32_t>(split) * run;
    last = seen.first + count;
    end = split + 1 < splits ? begin + run : last;
    first = s.key_begin;
    if (p.key_ends == nullptr) first += static_cast<int32_t>(batch) * p.batch_rows;
    pages = p.page_table == nullptr ? nullptr : p.page_table + batch * p.page_table_stride;
    score_factor =
        hw::mul(hw::mul(p.scale_log2, factor_of(p.q, batch, site)), factor_of(p.k, batch, site));
    return true;
  }

  // The row of the pool, counted over pages or sequences, of a key; negative: none.
  HT_DEVICE int32_t find(const Params& p, int32_t key, hw::Site site = hw::Site::current()) const {
    if (key >= end) return -1;
    if (pages == nullptr) return first + key;
    const auto j = static_cast<uint32_t>(key);
    const uint32_t index = p.page_divisor.divide(j);
    const auto page = static_cast<uint32_t>(hw::load_global(pages + index, site));
    if (page >= p.page_count) return -1;
    return static_cast<int32_t>(page * p.page_size + (j - index * p.page_size));
  }
  HT_DEVICE float row_scale(const Operand& x, int32_t row,
                            hw::Site site = hw::Site::current()) const {
    if (x.scaling != Scales::row || row < 0) return 1;
    const uint8_t* at = x.scales + row * x.scale_row_bytes + kv_head * x.scale_head_bytes;
    return hw::load_global(reinterpret_cast<const float*>(at), site);
  }
};

}  // namespace halftone::attention_decode
