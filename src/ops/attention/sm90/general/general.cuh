// General source of attention on sm_90a, for every layout: variable lengths and paged KV read on
// the GPU, strides and alignments that TMA does not take, PackGQA and split-KV. Four producer warps
// issue TMA loads or gather rows by cp.async; tiles come from a dynamic schedule.
//
// A K/V tile that is wholly within its sequence comes by TMA where strides (and page size) allow;
// any other is gathered by the producer warps, which write zeros past the end of the sequence: what
// lies behind it in memory, and may be infinite or NaN, never meets the tensor cores.
//
// PackGQA: row r of a tile is query r / pack of head r % pack, counted from the tile's first head.
// Few queries of all heads that share K and V fill a tile together and read the keys once.
#pragma once
#include "hw/memory.h"
#include "ops/attention/sm90/dense/dense.cuh"
#include "ops/attention/sm90/epilogue.cuh"
#include "ops/attention/sm90/softcap_mask.cuh"

namespace halftone::attention_sm90 {

// [batch or page, row, head, dim] for threads to read.
struct Rows {
  const uint8_t* data;
  int64_t batch, row, head;  // strides in bytes
  uint32_t dim;              // elements of a row
  bool aligned;              // every row begins at a multiple of 16 bytes
};

struct GeneralParams : Params {
  Rows q_rows, k_rows, v_rows;
  const int32_t* cu_queries;  // cu_seqlens_q, [batch + 1]; null: sequences begin at multiples of
                              // the batch stride
  const int32_t* cu_keys;
  const int32_t* used_keys;        // seqused_k, [batch], or null
  const int32_t* pages;            // page table, [batch, pages], or null
  int64_t pages_stride;            //
  int32_t query_rows, key_rows;    // of the packed tensors
  uint32_t page_size, page_count;  //
  uint32_t key_box;                // rows of a TMA box of K and V, 0: threads gather all
  bool query_boxes;                // Q comes by TMA
  uint32_t pack;                   // PackGQA: heads in a tile
  uint32_t splits, split_tiles;    // split-KV
  SoftcapMask scores;
  hw::TensorMap mask;         // as bytes, [batch, head, query, key], where it is staged
  uint32_t mask_bytes;        // of a mask value
  uint32_t* counter;          // of the dynamic schedule, 0 between launches
  bool out_by_elements;       // rows of O that no 16-byte access may write
  SplitStats* partial_stats;  // [splits, batch, heads, queries]
  float* partial_out;         // [splits, batch, heads, queries, value_dim] of O
  int64_t partial_stride;     // of such a row, a multiple of 4
};

HT_HOST_DEVICE int32_t clamp(int32_t x, int32_t low, int32_t high) {
  return x < low ? low : x > high ? high : x;
}

struct General {
  using Params = GeneralParams;
  static constexpr bool kGeneral = true, kMasks = false, kStagedMasks = false;
  using Softmax = attention_sm90::Softmax;
  static constexpr bool kOperandScales = false, kPerKeyScales = false;  // as in Dense
  static constexpr uint32_t kKeyBits = 16;
  using Schedule = pipe::DynamicSchedule;

  template <class Layout>
  HT_DEVICE static Schedule schedule(const Params& p, hw::SharedAddress base) {
    return Schedule(base + Layout::kSchedule, p.counter, hw::block_index().x, hw::grid_size().x);
  }

  // A Q tile: its sequence, heads, rows and split. Lengths come from GPU memory, unchecked before:
  // whatever they are, nothing outside the tensors is accessed.
  struct Work {
    const Params& p;
    uint32_t sequence, head, split;  // head: the first of the tile
    int32_t first_query = 0, first_key = 0;
    KeyRange range;

    HT_DEVICE Work(const Params& params, const pipe::AttentionTile& t)
        : p(params),
          sequence(t.sequence),
          head(t.head / params.splits * params.pack),
          split(t.head % params.splits),
          range(params.range) {
      if (p.cu_queries != nullptr) {
        first_query = clip_sequence(p.cu_queries, p.query_rows, range.queries);
      }
      if (p.cu_keys != nullptr) {
        first_key = clip_sequence(p.cu_keys, p.key_rows, range.count);
      }
      if (p.used_keys != nullptr) {
        const int32_t room = p.cu_keys == nullptr ? p.range.count : p.key_rows - first_key;
        const int32_t used = hw::load_global(p.used_keys + sequence);
        range.count = clamp(used, 0, room < p.range.count ? room : p.range.count);
      }
    }
    // Clamps `length` to that of the sequence among `rows` packed rows; returns where it begins.
    HT_DEVICE int32_t clip_sequence(const int32_t* cu, int32_t rows, int32_t& length) const {
      const int32_t first = clamp(hw::load_global(cu + sequence), 0, rows);
      const int32_t end = clamp(hw::load_global(cu + sequence + 1), first, rows);
      if (end - first < length) length = end - first;
      return first;
    }
    HT_DEVICE int32_t query(int32_t row) const { return row / static_cast<int32_t>(p.pack); }
    HT_DEVICE KeyTiles tiles(int32_t row, int32_t rows, int32_t keys) const {
      const int32_t first = query(row), last = query(row + rows - 1);
      if (first >= range.queries) return {0, 0, 0, 0};
      KeyTiles t = range.tiles(first, last - first + 1, keys);
      if (p.splits > 1) {
        const uint32_t begin = split * p.split_tiles, end = begin + p.split_tiles;
        if (t.first < begin) t.first = begin;
        if (t.end > end) t.end = end;
        if (t.first >= t.end) return {0, 0, 0, 0};
      }
      return t;
    }
    HT_DEVICE KeyInterval keys(int32_t row) const { return range.keys(query(row)); }
    HT_DEVICE OutputRow output_row(int32_t row) const {
      const int32_t i = query(row);
      const uint32_t h = head + static_cast<uint32_t>(row) % p.pack;
      return {i < range.queries, h,
              p.out + sequence * p.out_batch + (first_query + i) * p.out_row + h * p.out_head,
              sequence * p.lse_batch + h * p.lse_head + i * p.lse_row};
    }
    HT_DEVICE int64_t partial_row(int32_t row) const {
      const uint32_t h = head + static_cast<uint32_t>(row) % p.pack;
      return ((int64_t{split} * p.batch + sequence) * p.heads + h) * p.range.queries + query(row);
    }
    template <bool kMasks, uint32_t kCount>
    HT_DEVICE void softcap_and_mask(float (&s)[kCount], int32_t row, uint32_t n,
                                    hw::Site site) const {
      p.scores.scale_scores(s);
      if constexpr (kMasks) {
        int64_t rows[2];
        HT_UNROLL
        for (int32_t half = 0; half < 2; ++half) {
          // Rows that do not exist read the mask of the last one.
          const int32_t i = query(row + 8 * half);
          const uint32_t h = head + static_cast<uint32_t>(row + 8 * half) % p.pack;
          rows[half] = p.scores.mask_row(sequence, h, i < range.queries ? i : range.queries - 1);
        }
        p.scores.add_mask(s, rows, static_cast<int32_t>(n * kCount * 2), range.count, site);
      }
    }
    // Where row `row` of the tile is; false: it does not exist.
    HT_DEVICE bool find_query(int32_t row, int64_t& batch, int64_t& at, uint32_t& of_head) const {
      const int32_t i = query(row);
      of_head = head + static_cast<uint32_t>(row) % p.pack;
      batch = p.cu_queries == nullptr ? sequence : 0, at = first_query + i;
      return i < range.queries;
    }
    HT_DEVICE const uint8_t* query_row(int32_t row) const {
      int64_t batch, at;
      uint32_t h;
      if (!find_query(row, batch, at, h)) return nullptr;
      return p.q_rows.data + batch * p.q_rows.batch + at * p.q_rows.row + h * p.q_rows.head;
    }
    // The batch index or page that key `key` is in, and its row there.
    HT_DEVICE int32_t batch_of(int32_t key, int32_t& row) const {
      row = first_key + key;
      if (p.pages == nullptr) return p.cu_keys == nullptr ? static_cast<int32_t>(sequence) : 0;
      const uint32_t page = static_cast<uint32_t>(key) / p.page_size;
      row = static_cast<int32_t>(static_cast<uint32_t>(key) % p.page_size);
      return hw::load_global(p.pages + sequence * p.pages_stride + page);
    }
    HT_DEVICE bool find_key(int32_t key, int32_t& batch, int32_t& row) const {
      if (key >= range.count) return false;
      batch = batch_of(key, row);
      return p.pages == nullptr || static_cast<uint32_t>(batch) < p.page_count;
    }
    HT_DEVICE const uint8_t* key_row(const Rows& rows, int32_t key) const {
      int32_t batch, row;
      if (!find_key(key, batch, row)) return nullptr;
      return rows.data + batch * rows.batch + row * rows.row + int64_t{head / p.group} * rows.head;
    }
  };
  template <class Layout>
  HT_HOST_DEVICE static pipe::AttentionGrid tiles(const Params& p) {
    const uint32_t rows = static_cast<uint32_t>(p.range.queries) * p.pack;
    const bool longest_first = p.range.right >= 0;  // causal: more keys are visible to later rows
    return {(rows + Layout::kRows - 1) / Layout::kRows, p.heads / p.pack * p.splits, p.batch,
            longest_first, p.section};
  }
  template <class Layout>
  HT_DEVICE static NoOperandScales operand_scales(const Params&, const Work&, hw::SharedAddress,
                                                  int32_t, Softmax&) {
    return {};
  }
  HT_DEVICE static float score_scale(const Params& p) {
    return p.scores.active ? 1.0f : p.scale_log2;
  }

  template <class Layout>
  class Loader;
  template <class Layout, class Kernel>
  HT_DEVICE static void load(const Params& p, const typename Layout::Rings& rings,
                             hw::SharedAddress base, Schedule schedule) {
    load_by<Layout, Kernel>(Loader<Layout>(p), p, rings, base, schedule);
  }
  template <class Layout, class Kernel, class Loading, class Parameters>
  HT_DEVICE static void load_by(Loading loader, const Parameters& p,
                                const typename Layout::Rings& rings, hw::SharedAddress base,
                                Schedule schedule) {
    auto fill_q = rings.q.producer();
    auto fill_k = rings.k.producer();
    auto fill_v = rings.v.producer();
    const auto lead = [&] {
      if (hw::thread_index().x == 0) schedule.lead(tiles<Layout>(p));
    };
    for (pipe::AttentionTile t; schedule.next(tiles<Layout>(p), t); lead()) {
      const Work work(p, t);
      const KeyTiles keys = Kernel::key_tiles(work, t);
      if (keys.none()) continue;
      const auto first = static_cast<int32_t>(t.query * Layout::kRows);
      loader.load_k(fill_k, base, work, keys.end - 1);
      loader.load_q(fill_q, base, work, first);
      if constexpr (Layout::kMasked) loader.load_mask(base, work, first, keys.end - 1);
      for (uint32_t n = keys.end; n-- > keys.first;) {
        if (n > keys.first) loader.load_k(fill_k, base, work, n - 1);
        loader.load_v(fill_v, base, work, n);
        if constexpr (Layout::kMasked) {
          if (n > keys.first) loader.load_mask(base, work, first, n - 1);
        }
      }
      // Arrives for the last V now: the next Q tile may come late or have no visible key.
      loader.flush();
    }
    fill_q.drain();
    fill_k.drain();
    fill_v.drain();
    if constexpr (Layout::kMasked) loader.wait_for_masks(base);
  }
};

// Mask tensors loaded by TMA, for rows of one head.
struct StagedMask : General {
  static constexpr bool kMasks = true, kStagedMasks = true;
};

// Mask tensors read by the consumer threads.
struct Masked : General {
  static constexpr bool kMasks = true;
};

}  // namespace halftone::attention_sm90
