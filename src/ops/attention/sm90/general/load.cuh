// Producer warps of the general form of attention on sm_90a: TMA loads of whole K/V boxes or pages,
// cp.async gathers of everything else. Gathered stages are published one stage late, so that two
// are in flight.
#pragma once
#include "hw/copy/cp_async.h"
#include "hw/fence.h"
#include "ops/attention/sm90/general/general.cuh"

namespace halftone::attention_sm90 {

// The producer warps. The arrival for a gathered stage follows once the copies of the next stage
// have been issued: two stages are in flight.
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
  // `extra()` stores what else belongs to the stage in shared memory.
  template <class Producer, class Extra>
  HT_DEVICE void load_k(Producer& fill, hw::SharedAddress base, const Work& work, uint32_t n,
                        Extra extra, hw::Site site) {
    keys(fill, base + Layout::kK, Layout::k_tile(), &p_.k, p_.k_rows, work, n, extra, site);
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

  // TMA loads of the mask of K/V tile n for the CTA's rows from `first_row` on, to every warpgroup
  // the mask of its 64 rows.
  HT_DEVICE void load_mask(hw::SharedAddress base, const Work& work, int32_t first_row, uint32_t n,
                           hw::Site site = hw::Site::current()) {
    flush(site);  // the consumer may need a pending stage before it releases the mask
    const uint32_t panels = (Layout::kKeys * p_.mask_bytes + 127) / 128;
    for (uint32_t w = 0; w < Layout::kWarpgroups; ++w) {
      const auto ring = Layout::mask_ring(base, w);
      const pipe::Slot slot{0, ring.full(0)};
      hw::mbarrier_wait(ring.empty(0), masks_ % 2 ^ 1, site);
      expect(slot, panels * Layout::kMaskPanel, site);
      const hw::SharedAddress to = Layout::mask_stage(base, w);
      const uint32_t panel = lane_ * Layout::kLoadWarps + thread_ / 32;
      if (panel >= panels) continue;
      // A dimension that is broadcast has index 0.
      const SoftcapMask& scores = p_.scores;
      const int32_t row = work.query(first_row) + static_cast<int32_t>(64 * w);
      hw::tensor_load(
          to + panel * Layout::kMaskPanel, &p_.mask,
          {static_cast<int32_t>(n * Layout::kKeys * p_.mask_bytes + panel * 128),
           scores.query == 0 ? 0 : row, scores.head == 0 ? 0 : static_cast<int32_t>(work.head),
           scores.batch == 0 ? 0 : static_cast<int32_t>(work.sequence)},
          slot.full, site);
    }
    ++masks_;
  }
  // Waits until all masks have been read.
  HT_DEVICE void wait_for_masks(hw::SharedAddress base, hw::Site site = hw::Site::current()) {
    for (uint32_t w = 0; w < Layout::kWarpgroups; ++w) {
      hw::mbarrier_wait(Layout::mask_ring(base, w).empty(0), masks_ % 2 ^ 1, site);
    }
  }

  // Waits for the pending gather and arrives for it.
  HT_DEVICE void flush(hw::Site site = hw::Site::current()) {
    if (!pending_) return;
    hw::cp_async_wait<0>(site);
    arrive_full(site);
    pending_ = false;
  }

 private:
  using Element = typename Layout::Element;
  static constexpr uint32_t kChunk = 16 / sizeof(Element);  // elements of 16 bytes

  // K/V tile n.
  template <class Producer, class Extra>
  HT_DEVICE void keys(Producer& fill, hw::SharedAddress to, const SharedTile& tile,
                      const hw::TensorMap* map, const Rows& rows, const Work& work, uint32_t n,
                      Extra extra, hw::Site site) {
    const pipe::Slot slot = fill.wait(site);
    extra();
    to = to + slot.stage * tile.bytes();
    const int32_t first = static_cast<int32_t>(n * Layout::kKeys);
    const bool use_tma =
        p_.key_box != 0 && first + static_cast<int32_t>(Layout::kKeys) <= work.range.count;
    if (use_tma) {
      expect(slot, tile.bytes(), site);
      // A box or page a thread, spread over the warps: one thread that issues several TMA loads
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
    if (!use_tma) {
      gather(
          to, tile, rows,
          [&](uint32_t r) { return work.key_row(rows, first + static_cast<int32_t>(r)); }, site);
    }
    commit(slot, !use_tma, site);
  }

  template <class Producer>
  HT_DEVICE void queries(Producer& fill, hw::SharedAddress to, const SharedTile& tile,
                         const Work& work, int32_t first, hw::Site site = hw::Site::current()) {
    const pipe::Slot slot = fill.wait(site);
    const bool use_tma = p_.query_boxes;
    if (use_tma && expect(slot, tile.bytes(), site) && lane_ == 0) {
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
    if (!use_tma) {
      gather(
          to, tile, p_.q_rows,
          [&](uint32_t r) { return work.query_row(first + static_cast<int32_t>(r)); }, site);
    }
    commit(slot, !use_tma, site);
  }

  // Every producer warp arrives; the first, which issues the TMA loads, with the expected bytes.
  HT_DEVICE bool expect(const pipe::Slot& slot, uint32_t bytes, hw::Site site) const {
    const bool starts = thread_ < 32;
    // No lane may still wait for the stage to be empty when it fills: the phase would pass.
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

  // Gathers the rows of a tile; `row(i)` is where row i begins, or null for zeros.
  template <class Row>
  HT_DEVICE void gather(hw::SharedAddress to, const SharedTile& tile, const Rows& rows, Row row,
                        hw::Site site) const {
    // Panel by panel: eight threads store 128 contiguous bytes.
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

  HT_DEVICE void commit(const pipe::Slot& slot, bool gathered, hw::Site site) {
    hw::cp_async_commit(site);
    if (pending_) {
      hw::cp_async_wait<1>(site);  // all but the copies of this stage
      arrive_full(site);
    }
    pending_full_ = slot.full, pending_ = gathered;
  }
  HT_DEVICE void arrive_full(hw::Site site) {
    hw::fence_proxy_async_shared(site);  // wgmma reads it through the async proxy
    hw::warp_sync(hw::kFullWarp, site);
    if (lane_ == 0) hw::mbarrier_arrive(pending_full_, site);
  }

  const GeneralParams& p_;
  uint32_t thread_, lane_;
  hw::Mbarrier pending_full_{};
  uint32_t masks_ = 0;    // mask tiles issued
  bool pending_ = false;  // the last stage was gathered and its arrival is pending
};

}  // namespace halftone::attention_sm90
