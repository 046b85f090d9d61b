// Dense source of attention on sm_90a: all sequences have one length and TMA takes every tensor,
// the fastest form. One producer thread issues TMA loads (multicast in clusters); tiles of rows are
// paired longest with shortest by a static persistent schedule.
#pragma once
#include "hw/copy/tma.h"
#include "ops/attention/sm90/softmax.cuh"
#include "pipe/schedule.h"

namespace halftone::attention_sm90 {

struct Params {
  hw::TensorMap q, k, v;  // [batch, length, heads, dim], dim fastest
  hw::TensorMap staged;   // the same of O, where an instance stages it
  uint16_t* out;
  float* lse;                            // [batch, heads, rows], or null
  const float* sinks;                    // [heads], or null
  int64_t out_batch, out_row, out_head;  // strides in elements
  int64_t lse_batch, lse_head, lse_row;
  int64_t sink_stride;
  uint32_t batch, heads, group;  // group: query heads a KV head
  uint32_t section;              // head and sequence pairs whose K and V share the L2
  uint32_t value_dim;
  KeyRange range;
  float scale_log2;  // softmax scale x log2(e)
};

// Where a row of O and its LSE go.
struct OutputRow {
  bool exists;
  uint32_t head;
  uint16_t* out;
  int64_t lse;  // offset of the LSE
};

// Sources without scales.
struct NoOperandScales {};

struct Dense {
  using Params = attention_sm90::Params;
  using Softmax = attention_sm90::Softmax;
  static constexpr bool kGeneral = false, kStagedMasks = false;
  static constexpr bool kOperandScales = false;  // per-tensor and per-row scales of S and O
  static constexpr bool kPerKeyScales = false;   // keys have scales, too
  static constexpr uint32_t kKeyBits = 16;       // of an element of Q and K
  using Schedule = pipe::PairedSchedule;         // all lengths are known: static

  template <class Layout>
  HT_DEVICE static Schedule schedule(const Params&, hw::SharedAddress) {
    return Schedule(hw::block_index().x / Layout::kCluster, hw::grid_size().x / Layout::kCluster);
  }

  // A Q tile: its sequence, head and rows.
  struct Work {
    const Params& p;
    const pipe::AttentionTile& t;

    HT_DEVICE Work(const Params& params, const pipe::AttentionTile& at) : p(params), t(at) {}
    HT_DEVICE KeyTiles tiles(int32_t row, int32_t rows, int32_t keys) const {
      return p.range.tiles(row, rows, keys);
    }
    HT_DEVICE KeyInterval keys(int32_t row) const { return p.range.keys(row); }
    HT_DEVICE OutputRow output_row(int32_t row) const {
      return {row < p.range.queries, t.head,
              p.out + t.sequence * p.out_batch + row * p.out_row + t.head * p.out_head,
              t.sequence * p.lse_batch + t.head * p.lse_head + row * p.lse_row};
    }
  };
  template <class Layout>
  HT_HOST_DEVICE static pipe::AttentionGrid tiles(const Params& p) {
    const uint32_t rows = Layout::kRows * Layout::kCluster;
    const uint32_t queries = static_cast<uint32_t>(p.range.queries);
    return {(queries + rows - 1) / rows, p.heads, p.batch, false, p.section};
  }
  template <class Layout>
  HT_DEVICE static NoOperandScales operand_scales(const Params&, const Work&, hw::SharedAddress,
                                                  int32_t, Softmax&) {
    return {};
  }
  HT_DEVICE static float score_scale(const Params& p) { return p.scale_log2; }

  // Issues the TMA loads of K/V tile n: this CTA's share of the keys, to every CTA of the cluster.
  template <class Layout, class Producer>
  HT_DEVICE static void load_keys(Producer& fill, const hw::TensorMap* map, hw::SharedAddress to,
                                  const SharedTile& tile, int32_t head, uint32_t n, int32_t batch,
                                  hw::Site site = hw::Site::current()) {
    constexpr uint32_t kShare = Layout::kKeys / Layout::kCluster;
    constexpr uint16_t kAllBlocks = (1 << Layout::kCluster) - 1;
    const uint32_t first = Layout::block_rank() * kShare;
    const pipe::Slot slot = fill.acquire(site);
    to = to + (slot.stage * tile.bytes() + first * tile.span());
    HT_UNROLL
    for (uint32_t panel = 0; panel < tile.panels(); ++panel) {
      const int32_t at[4] = {static_cast<int32_t>(panel * tile.panel_elements()), head,
                             static_cast<int32_t>(n * Layout::kKeys + first), batch};
      if constexpr (Layout::kCluster > 1) {
        hw::tensor_load_multicast(to + panel * tile.panel_bytes(), map, at, slot.full, kAllBlocks,
                                  site);
      } else {
        hw::tensor_load(to + panel * tile.panel_bytes(), map, at, slot.full, site);
      }
    }
  }

  // The producer: one thread.
  template <class Layout, class Kernel>
  HT_DEVICE static void load(const typename Kernel::Params& p, const typename Layout::Rings& rings,
                             hw::SharedAddress base, Schedule schedule) {
    if (hw::thread_index().x != 0) return;
    constexpr auto q_tile = Layout::q_tile();
    auto fill_q = rings.q.producer();
    auto fill_k = rings.k.producer();
    auto fill_v = rings.v.producer();
    for (pipe::AttentionTile t; schedule.next(tiles<Layout>(p), t);) {
      const KeyTiles keys = Kernel::key_tiles(typename Kernel::Work(p, t), t);
      if (keys.none()) continue;
      const int32_t head = static_cast<int32_t>(t.head / p.group);
      const int32_t batch = static_cast<int32_t>(t.sequence);
      const auto load_k = [&](uint32_t n, hw::Site site = hw::Site::current()) {
        load_keys<Layout>(fill_k, &p.k, base + Layout::kK, Layout::k_tile(), head, n, batch, site);
      };
      load_k(keys.end - 1);
      const pipe::Slot q = fill_q.acquire();
      const uint32_t block = t.query * Layout::kCluster + Layout::block_rank();
      HT_UNROLL
      for (uint32_t panel = 0; panel < q_tile.panels(); ++panel) {
        hw::tensor_load(
            base + panel * q_tile.panel_bytes(), &p.q,
            {static_cast<int32_t>(panel * q_tile.panel_elements()), static_cast<int32_t>(t.head),
             static_cast<int32_t>(block * Layout::kRows), batch},
            q.full);
      }
      for (uint32_t n = keys.end; n-- > keys.first;) {
        if (n > keys.first) load_k(n - 1);
        load_keys<Layout>(fill_v, &p.v, base + Layout::kV, Layout::v_tile(), head, n, batch);
      }
    }
    fill_q.drain();
    fill_k.drain();
    fill_v.drain();
  }
};

}  // namespace halftone::attention_sm90
