// The loading warps of the general form of attention on Hopper: tensor copies and gathered rows.
#pragma once
#include "hw/copy/cp_async.h"
#include "hw/fence.h"
#include "ops/attention/sm90/general/general.cuh"

namespace halftone::attention_sm90 {

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
    load_k(
        fill, base, work, n, [] {}, site);
  }
  // `more()` puts what else belongs to the stage into shared memory.
  template <class Producer, class More>
  HT_DEVICE void load_k(Producer& fill, hw::SharedAddress base, const Work& work, uint32_t n,
                        More more, hw::Site site) {
    keys(fill, base + Layout::kK, Layout::k_tile(), &p_.k, p_.k_rows, work, n, more, site);
  }
  template <class Producer>
  HT_DEVICE void load_v(Producer& fill, hw::SharedAddress base, const Work& work, uint32_t n,
                        hw::Site site = hw::Site::current()) {
    keys(
        fill, base + Layout::kV, Layout::v_tile(), &p_.v, p_.v_rows, work, n, [] {}, site);
  }
  template <class Producer>
  HT_DEVICE void load_q(Producer& fill, hw::SharedAddress base, const Work& work, int32_t first,
                        hw::Site site = hw::Site::current()) {
    queries(fill, base, Layout::q_tile(), work, first, site);
  }

  // The terms of tile n of the keys for the block's rows from `first_row` on, to every warpgroup
  // those of its 64.
  HT_DEVICE void load_mask(hw::SharedAddress base, const Work& work, int32_t first_row, uint32_t n,
                           hw::Site site = hw::Site::current()) {
    finish(site);  // what is waited for may need what is on its way
    const uint32_t panels = (Layout::kKeys * p_.mask_bytes + 127) / 128;
    for (uint32_t w = 0; w < Layout::kWarpgroups; ++w) {
      const auto ring = Layout::mask_ring(base, w);
      const pipe::Slot slot{0, ring.full(0)};
      hw::mbarrier_wait(ring.empty(0), masks_ % 2 ^ 1, site);
      expect(slot, panels * Layout::kMaskPanel, site);
      const hw::SharedAddress to = Layout::mask_stage(base, w);
      const uint32_t panel = lane_ * Layout::kLoadWarps + thread_ / 32;
      if (panel >= panels) continue;
      // What all heads, sequences or queries share has one index there.
      const ScoreRules& rules = p_.scores;
      const int32_t row = work.query(first_row) + static_cast<int32_t>(64 * w);
      hw::tensor_load(
          to + panel * Layout::kMaskPanel, &p_.mask,
          {static_cast<int32_t>(n * Layout::kKeys * p_.mask_bytes + panel * 128),
           rules.query == 0 ? 0 : row, rules.head == 0 ? 0 : static_cast<int32_t>(work.head),
           rules.batch == 0 ? 0 : static_cast<int32_t>(work.sequence)},
          slot.full, site);
    }
    ++masks_;
  }
  // Until all have been read.
  HT_DEVICE void wait_for_masks(hw::SharedAddress base, hw::Site site = hw::Site::current()) {
    for (uint32_t w = 0; w < Layout::kWarpgroups; ++w) {
      hw::mbarrier_wait(Layout::mask_ring(base, w).empty(0), masks_ % 2 ^ 1, site);
    }
  }

  // Hands over what is still on its way.
  HT_DEVICE void finish(hw::Site site = hw::Site::current()) {
    if (!copied_) return;
    hw::cp_async_wait<0>(site);
    hand_over(site);
    copied_ = false;
  }

 private:
  using Element = typename Layout::Element;
  static constexpr uint32_t kChunk = 16 / sizeof(Element);  // elements of 16 bytes

  // Tile n of K or V.
  template <class Producer, class More>
  HT_DEVICE void keys(Producer& fill, hw::SharedAddress to, const SharedTile& tile,
                      const hw::TensorMap* map, const Rows& rows, const Work& work, uint32_t n,
                      More more, hw::Site site) {
    const pipe::Slot slot = fill.wait(site);
    more();
    to = to + slot.stage * tile.bytes();
    const int32_t first = static_cast<int32_t>(n * Layout::kKeys);
    const bool engine =
        p_.key_box != 0 && first + static_cast<int32_t>(Layout::kKeys) <= work.range.count;
    if (engine) {
      expect(slot, tile.bytes(), site);
      // A box or page for each thread, and to every warp its share: one that starts several copies
      // does so one after the other.
      const uint32_t own = lane_ * Layout::kLoadWarps + thread_ / 32;
      for (uint32_t i = own * p_.key_box; i < Layout::kKeys;
           i += Layout::kLoadWarps * 32 * p_.key_box) {
        int32_t row;
        const int32_t batch = work.batch_of(first + static_cast<int32_t>(i), row);
        HT_UNROLL
        for (uint32_t panel = 0; panel < tile.panels(); ++panel) {
          hw::tensor_load(to + (panel * tile.panel_bytes() + i * tile.span()), map,
                          {static_cast<int32_t>(panel * tile.panel_elements()),
                           static_cast<int32_t>(work.head / p_.group), row, batch},
                          slot.full, site);
        }
      }
    }
    if (!engine) {
      gather(
          to, tile, rows,
          [&](uint32_t r) { return work.key_row(rows, first + static_cast<int32_t>(r)); }, site);
    }
    filled(slot, !engine, site);
  }

  template <class Producer>
  HT_DEVICE void queries(Producer& fill, hw::SharedAddress to, const SharedTile& tile,
                         const Work& work, int32_t first, hw::Site site = hw::Site::current()) {
    const pipe::Slot slot = fill.wait(site);
    const bool engine = p_.query_boxes;
    if (engine && expect(slot, tile.bytes(), site) && lane_ == 0) {
      // Rows of the next sequence come along and are not written.
      const int32_t batch = p_.cu_queries == nullptr ? static_cast<int32_t>(work.sequence) : 0;
      HT_UNROLL
      for (uint32_t panel = 0; panel < tile.panels(); ++panel) {
        hw::tensor_load(
            to + panel * tile.panel_bytes(), &p_.q,
            {static_cast<int32_t>(panel * tile.panel_elements()), static_cast<int32_t>(work.head),
             work.first_query + work.query(first), batch},
            slot.full, site);
      }
    }
    if (!engine) {
      gather(
          to, tile, p_.q_rows,
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

  // The lines of a tile; `row(i)` is where row i begins, or null for zeros.
  template <class Row>
  HT_DEVICE void gather(hw::SharedAddress to, const SharedTile& tile, const Rows& rows, Row row,
                        hw::Site site) const {
    // Panel by panel: eight threads store 128 bytes that lie side by side.
    const uint32_t chunks = tile.span() / 16, of_panel = tile.lines() * chunks;
    for (uint32_t i = thread_; i < tile.panels() * of_panel; i += Layout::kLoadWarps * 32) {
      const uint32_t panel = i / of_panel, r = i % of_panel / chunks, chunk = i % chunks;
      const uint32_t column = (panel * chunks + chunk) * kChunk;
      const uint8_t* at = row(r);
      const uint32_t left = at == nullptr || column >= rows.dim ? 0 : rows.dim - column;
      const auto* from = reinterpret_cast<const Element*>(left == 0 ? rows.data : at);
      if (left != 0) from += column;
      const uint32_t count = left < kChunk ? left : kChunk;
      const hw::SharedAddress place =
          to + (panel * tile.panel_bytes() + tile::chunk_offset(tile.swizzle, r, chunk));
      if (rows.aligned) {
        hw::cp_async_zero_fill<16>(place, from, count * sizeof(Element), site);
      } else {
        hw::Vector<Element, kChunk> x{};
        HT_UNROLL
        for (uint32_t e = 0; e < kChunk; ++e) {
          if (e < count) x[e] = hw::load_global(from + e, site);
        }
        hw::store_shared(place, x, site);
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
  uint32_t masks_ = 0;   // tiles of masks asked for
  bool copied_ = false;  // the stage filled last, by threads: not handed over yet
};

}  // namespace halftone::attention_sm90
