// Attention on Hopper for every layout: lengths and pages in the memory of the GPU, strides and
// alignments that no tensor copy takes, rows of several heads in a tile, keys split over blocks.
//
// A tile of keys that is wholly within its sequence comes by tensor copies where the strides (and
// the page size) allow; any other is gathered by the threads of the loading warps, which put zeros
// where a sequence ends: what lies behind it in memory, and may be infinite, never meets the tensor
// cores.
//
// Rows of a tile: query row / pack of head row % pack, counted from the first head of the tile. A
// few queries of all heads that share keys fill a tile together and read the keys once.
#pragma once
#include "hw/cp_async.h"
#include "hw/fence.h"
#include "hw/memory.h"
#include "ops/attention/sm90_dense.cuh"
#include "ops/attention/sm90_scores.cuh"
#include "ops/attention/sm90_store.cuh"

namespace halftone::attention_sm90 {

// [batch or page, row, head, dim] for threads to read.
struct Rows {
  const uint16_t* data;
  int64_t batch, row, head;  // strides in elements
  uint32_t dim;
  bool aligned;  // every row begins at a multiple of 16 bytes
};

struct GeneralParams : Params {
  Rows q_rows, k_rows, v_rows;
  const int32_t* cu_queries;  // [batch + 1], or null: sequences begin at
                              // multiples of the batch stride
  const int32_t* cu_keys;
  const int32_t* used_keys;        // [batch], or null
  const int32_t* pages;            // [batch, any], or null
  int64_t pages_stride;            //
  int32_t query_rows, key_rows;    // of the packed tensors
  uint32_t page_size, page_count;  //
  uint32_t key_box;                // rows of a tensor copy of keys, 0: threads gather all
  bool query_boxes;                // tensor copies of queries
  uint32_t pack;                   // heads in a tile
  uint32_t splits, split_tiles;    // of the keys
  ScoreRules scores;
  uint32_t* counter;       // of tiles begun, 0 between launches
  bool out_by_elements;    // rows that no 16-byte access may write
  SplitSum* partial_sums;  // [splits, batch, heads, queries]
  float* partial_values;   // the same of rows of O
  int64_t partial_stride;  // of such a row, a multiple of 4
};

HT_HOST_DEVICE int32_t clamp(int32_t x, int32_t low, int32_t high) {
  return x < low ? low : x > high ? high : x;
}

struct General {
  using Params = GeneralParams;
  static constexpr bool kGeneral = true, kMasks = false;
  static constexpr bool kScaled = false;  // rows have scales of their own
  using Schedule = pipe::DynamicSchedule;

  template <class Layout>
  HT_DEVICE static Schedule schedule(const Params& p, hw::SharedAddress base) {
    return Schedule(base + Layout::kSchedule, p.counter, hw::block_index().x, hw::grid_size().x);
  }

  // A tile of rows in the problem. Lengths come from memory, unchecked before: whatever they are,
  // nothing outside the tensors is touched.
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
        first_query = cut(p.cu_queries, p.query_rows, range.queries);
      }
      if (p.cu_keys != nullptr) {
        first_key = cut(p.cu_keys, p.key_rows, range.count);
      }
      if (p.used_keys != nullptr) {
        const int32_t room = p.cu_keys == nullptr ? p.range.count : p.key_rows - first_key;
        const int32_t used = hw::load_global(p.used_keys + sequence);
        range.count = clamp(used, 0, room < p.range.count ? room : p.range.count);
      }
    }
    // Shortens `length` to that of the sequence among `rows` packed ones; where it begins.
    HT_DEVICE int32_t cut(const int32_t* cu, int32_t rows, int32_t& length) const {
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
    HT_DEVICE Place place(int32_t row) const {
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
    HT_DEVICE void shape(float (&s)[kCount], int32_t row, uint32_t n, hw::Site site) const {
      p.scores.scale_all(s);
      if constexpr (kMasks) {
        int64_t rows[2];
        HT_UNROLL
        for (int32_t half = 0; half < 2; ++half) {
          // Rows that do not exist read what the last one does.
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
    HT_DEVICE const uint16_t* query_row(int32_t row) const {
      int64_t batch, at;
      uint32_t h;
      if (!find_query(row, batch, at, h)) return nullptr;
      return p.q_rows.data + batch * p.q_rows.batch + at * p.q_rows.row + h * p.q_rows.head;
    }
    // The batch or page that key `key` is in, and its row there.
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
    HT_DEVICE const uint16_t* key_row(const Rows& rows, int32_t key) const {
      int32_t batch, row;
      if (!find_key(key, batch, row)) return nullptr;
      return rows.data + batch * rows.batch + row * rows.row + int64_t{head / p.group} * rows.head;
    }
  };
  template <class Layout>
  HT_HOST_DEVICE static pipe::AttentionGrid tiles(const Params& p) {
    const uint32_t rows = static_cast<uint32_t>(p.range.queries) * p.pack;
    const bool longest_first = p.range.right >= 0;  // later rows see more keys
    return {(rows + Layout::kRows - 1) / Layout::kRows, p.heads / p.pack * p.splits, p.batch,
            longest_first, p.section};
  }
  template <class Layout>
  HT_DEVICE static NoScales row_scales(const Params&, const Work&, hw::SharedAddress, int32_t) {
    return {};
  }
  HT_DEVICE static float score_scale(const Params& p) {
    return p.scores.given ? 1.0f : p.scale_log2;
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
      loader.load_k(fill_k, base, work, keys.end - 1);
      loader.load_q(fill_q, base, work, static_cast<int32_t>(t.query * Layout::kRows));
      for (uint32_t n = keys.end; n-- > keys.first;) {
        if (n > keys.first) loader.load_k(fill_k, base, work, n - 1);
        loader.load_v(fill_v, base, work, n);
      }
      // The next tile may come late, or see no key: nothing waits for it in the loader's hands.
      loader.finish();
    }
    fill_q.drain();
    fill_k.drain();
    fill_v.drain();
  }
};

struct Masked : General {
  static constexpr bool kMasks = true;
};

// The loading warps. What threads have copied is handed over once the copies after it are on their
// way: two stages are in flight.
template <class Layout>
class General::Loader {
 public:
  HT_DEVICE explicit Loader(const GeneralParams& p)
      : p_(p), thread_(hw::thread_index().x), lane_(hw::lane_index()) {}

  template <class Producer>
  HT_DEVICE void load_k(Producer& fill, hw::SharedAddress base, const Work& work, uint32_t n,
                        hw::Site site = hw::Site::current()) {
    keys<Layout::kHeadDim>(fill, base + Layout::kK, &p_.k, p_.k_rows, work, n, site);
  }
  template <class Producer>
  HT_DEVICE void load_v(Producer& fill, hw::SharedAddress base, const Work& work, uint32_t n,
                        hw::Site site = hw::Site::current()) {
    keys<Layout::kValueDim>(fill, base + Layout::kV, &p_.v, p_.v_rows, work, n, site);
  }
  template <class Producer>
  HT_DEVICE void load_q(Producer& fill, hw::SharedAddress base, const Work& work, int32_t first,
                        hw::Site site = hw::Site::current()) {
    queries(fill, base, work, first, site);
  }

  // Hands over what is still on its way.
  HT_DEVICE void finish(hw::Site site = hw::Site::current()) {
    if (!copied_) return;
    hw::cp_async_wait<0>(site);
    hand_over(site);
    copied_ = false;
  }

 private:
  static constexpr uint32_t kLine = 128,
                            kChunk = 8;  // bytes, and 16-bit elements of 16 bytes

  // Tile n of K or V, of kColumns columns.
  template <uint32_t kColumns, class Producer>
  HT_DEVICE void keys(Producer& fill, hw::SharedAddress to, const hw::TensorMap* map,
                      const Rows& rows, const Work& work, uint32_t n,
                      hw::Site site = hw::Site::current()) {
    constexpr uint32_t kPanelBytes = Layout::kKeys * kLine;
    const pipe::Slot slot = fill.wait(site);
    to = to + slot.stage * (kPanelBytes * kColumns / Layout::kPanel);
    const int32_t first = static_cast<int32_t>(n * Layout::kKeys);
    const bool engine =
        p_.key_box != 0 && first + static_cast<int32_t>(Layout::kKeys) <= work.range.count;
    if (engine && expect(slot, kPanelBytes * kColumns / Layout::kPanel, site)) {
      // A box or page for each lane.
      for (uint32_t i = lane_ * p_.key_box; i < Layout::kKeys; i += 32 * p_.key_box) {
        int32_t row;
        const int32_t batch = work.batch_of(first + static_cast<int32_t>(i), row);
        HT_UNROLL
        for (uint32_t panel = 0; panel < kColumns / Layout::kPanel; ++panel) {
          hw::tensor_load(to + (panel * kPanelBytes + i * kLine), map,
                          {static_cast<int32_t>(panel * Layout::kPanel),
                           static_cast<int32_t>(work.head / p_.group), row, batch},
                          slot.full, site);
        }
      }
    }
    if (!engine) {
      gather<Layout::kKeys, kColumns>(
          to, rows, [&](uint32_t r) { return work.key_row(rows, first + static_cast<int32_t>(r)); },
          site);
    }
    filled(slot, !engine, site);
  }

  template <class Producer>
  HT_DEVICE void queries(Producer& fill, hw::SharedAddress to, const Work& work, int32_t first,
                         hw::Site site = hw::Site::current()) {
    constexpr uint32_t kPanelBytes = Layout::kRows * kLine;
    const pipe::Slot slot = fill.wait(site);
    const bool engine = p_.query_boxes;
    if (engine && expect(slot, Layout::kQBytes, site) && lane_ == 0) {
      // Rows of the next sequence come along and are not written.
      const int32_t batch = p_.cu_queries == nullptr ? static_cast<int32_t>(work.sequence) : 0;
      HT_UNROLL
      for (uint32_t panel = 0; panel < Layout::kHeadDim / Layout::kPanel; ++panel) {
        hw::tensor_load(
            to + panel * kPanelBytes, &p_.q,
            {static_cast<int32_t>(panel * Layout::kPanel), static_cast<int32_t>(work.head),
             work.first_query + work.query(first), batch},
            slot.full, site);
      }
    }
    if (!engine) {
      gather<Layout::kRows, Layout::kHeadDim>(
          to, p_.q_rows,
          [&](uint32_t r) { return work.query_row(first + static_cast<int32_t>(r)); }, site);
    }
    filled(slot, !engine, site);
  }

  // Every loading warp arrives; the first one, which is to start the copies, says for how much.
  HT_DEVICE bool expect(const pipe::Slot& slot, uint32_t bytes, hw::Site site) const {
    const bool starts = thread_ < 32;
    // No lane may still be waiting for the stage to be left when it fills: the phase would pass.
    hw::warp_sync(hw::kFullWarp, site);
    if (lane_ == 0) {
      if (starts) {
        hw::mbarrier_arrive_expect_tx(slot.full, bytes, site);
      } else {
        hw::mbarrier_arrive(slot.full, site);
      }
    }
    hw::warp_sync(hw::kFullWarp, site);
    return starts;
  }

  // kRows rows of kColumns columns; `row(i)` is where row i begins, or null for zeros.
  template <uint32_t kRows, uint32_t kColumns, class Row>
  HT_DEVICE void gather(hw::SharedAddress to, const Rows& rows, Row row, hw::Site site) const {
    constexpr uint32_t kChunks = kColumns / kChunk, kOfPanel = kLine / 16;
    for (uint32_t i = thread_; i < kRows * kChunks; i += Layout::kLoadWarps * 32) {
      const uint32_t r = i / kChunks, chunk = i % kChunks, column = chunk * kChunk;
      const uint16_t* from = row(r);
      const uint32_t left = from == nullptr || column >= rows.dim ? 0 : rows.dim - column;
      from = left == 0 ? rows.data : from + column;
      const uint32_t count = left < kChunk ? left : kChunk;
      const hw::SharedAddress at =
          to + (chunk / kOfPanel * kRows * kLine +
                tile::chunk_offset(tile::Swizzle::b128, r, chunk % kOfPanel));
      if (rows.aligned) {
        hw::cp_async_zero_fill<16>(at, from, count * 2, site);
      } else {
        hw::Vector<uint16_t, kChunk> x{};
        HT_UNROLL
        for (uint32_t e = 0; e < kChunk; ++e) {
          if (e < count) x[e] = hw::load_global(from + e, site);
        }
        hw::store_shared(at, x, site);
      }
    }
  }

  HT_DEVICE void filled(const pipe::Slot& slot, bool copied, hw::Site site) {
    hw::cp_async_commit(site);
    if (copied_) {
      hw::cp_async_wait<1>(site);  // all but the copies of this stage
      hand_over(site);
    }
    full_ = slot.full, copied_ = copied;
  }
  HT_DEVICE void hand_over(hw::Site site) {
    hw::fence_proxy_async_shared(site);  // the tensor cores read it
    hw::warp_sync(hw::kFullWarp, site);
    if (lane_ == 0) hw::mbarrier_arrive(full_, site);
  }

  const GeneralParams& p_;
  uint32_t thread_, lane_;
  hw::Mbarrier full_{};
  bool copied_ = false;  // the stage filled last, by threads: not handed over yet
};

}  // namespace halftone::attention_sm90
