// Parameters of the decode attention kernel, and which heads and keys a CTA has.
#pragma once
#include "ops/attention/sm80/epilogue.cuh"
#include "pipe/divisor.h"

namespace halftone::attention_decode {

using attention_sm80::kInfinity;
using attention_sm80::Operand;
using attention_sm80::Scales;

inline constexpr uint32_t kRows = 8;  // query heads of a CTA, the rows of its tile

struct Params : attention_sm80::Params {
  pipe::Divisor page_divisor;
  int32_t batch_rows;  // of K and V a sequence, where they are not packed or paged
  uint32_t* arrived;  // [batch, KV heads, row tiles]: CTAs that have stored a split, 0 between runs
  // PDL: all but the last key of a sequence may be read before griddepcontrol.wait.
  bool prefetch_cache;
};

// Work of a CTA: a tile of the query heads of one KV head, and one split of the keys of one
// sequence.
struct Work {
  uint32_t batch, kv_head, row_tile, rows;  // rows that exist
  int32_t query_begin;
  uint32_t split, splits;  // splits that have keys
  int32_t begin, end;      // keys of the split
  int32_t last;            // end of the visible keys
  int32_t first;           // row of key 0 where keys are not in pages
  const int32_t* pages;    // or null
  float score_factor;

  // Index of the partial results.
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
    const KeyInterval visible = s.range.keys(0);
    const int32_t count = visible.end > visible.first ? visible.end - visible.first : 0;
    const auto max_splits = static_cast<int32_t>(p.splits),
               tile_len = static_cast<int32_t>(tile_keys);
    auto split_len = static_cast<int32_t>(p.split_keys);
    if (split_len == 0)
      split_len = ((count + max_splits - 1) / max_splits + tile_len - 1) / tile_len * tile_len;
    splits = count == 0 ? 1 : static_cast<uint32_t>((count + split_len - 1) / split_len);
    if (split >= splits) return false;
    begin = visible.first + static_cast<int32_t>(split) * split_len;
    last = visible.first + count;
    end = split + 1 < splits ? begin + split_len : last;
    first = s.key_begin;
    if (p.cu_keys == nullptr) first += static_cast<int32_t>(batch) * p.batch_rows;
    pages = p.page_table == nullptr ? nullptr : p.page_table + batch * p.page_table_stride;
    score_factor =
        hw::mul(hw::mul(p.scale_log2, factor_of(p.q, batch, site)), factor_of(p.k, batch, site));
    return true;
  }

  // The row of a key in the pool of all pages or sequences; negative: none.
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
