// Dense and general sources of attention on sm_90a over operands that dequantise.cuh has converted
// to BF16, with the per-key scales that remain.
//
// Scales of keys lie strided in memory, where TMA does not reach them: threads load those of a
// stage, in the dense form of an otherwise idle producer warp, and arrive on the stage's barrier as
// TMA does. There are twice as many scale slots as K stages, so that a stage is released as soon as
// S is there: who fills slot i + 4 has waited for stage i + 2, which is released by those who are
// done with slot i.
#pragma once
#include "hw/vote.h"
#include "ops/attention/sm90/dequant/formats.cuh"
#include "ops/attention/sm90/general/load.cuh"

namespace halftone::attention_sm90 {

struct DequantisedParams : Params {
  QuantisedOperands quantised;
};

struct Dequantised : Dense {
  using Params = DequantisedParams;
  static constexpr bool kOperandScales = true, kPerKeyScales = true;

  struct Work : Dense::Work {
    uint32_t sequence, head;

    HT_DEVICE Work(const Params& params, const pipe::AttentionTile& at)
        : Dense::Work(params, at), sequence(at.sequence), head(at.head) {}
    HT_DEVICE bool find_query(int32_t row, int64_t& batch, int64_t& at, uint32_t& of_head) const {
      batch = sequence, at = row, of_head = head;
      return row < p.range.queries;
    }
  };

  template <class Layout>
  HT_DEVICE static PerKeyScales<Layout> operand_scales(const Params& p, const Work& work,
                                                       hw::SharedAddress base, int32_t row,
                                                       Softmax& softmax) {
    return {p.quantised, work, base, row, softmax, true};
  }

  template <class Layout, class Kernel>
  HT_DEVICE static void load(const Params& p, const typename Layout::Rings& rings,
                             hw::SharedAddress base, Schedule schedule) {
    if (hw::warp_index() == 1) {
      load_scales<Layout, Kernel>(p, rings, base, schedule);
    } else {
      Dense::load<Layout, Kernel>(p, rings, base, schedule);
    }
  }

 private:
  template <class Layout, class Kernel>
  HT_DEVICE static void load_scales(const Params& p, const typename Layout::Rings& rings,
                                    hw::SharedAddress base, Schedule schedule) {
    using Scales = PerKeyScales<Layout>;
    // Half of the lanes load those of K, half those of V, of 16 keys at a time.
    constexpr uint32_t kEach = Layout::kKeys / 16;
    const uint32_t key = hw::lane_index() % 16;
    const bool values = hw::lane_index() >= 16;
    const Operand& x = values ? p.quantised.v : p.quantised.k;
    const uint32_t own = (values ? Layout::kScalesOfV : 0) + scale_offset(key);
    const bool any = Scales::has_rows(p.quantised.k) || Scales::has_rows(p.quantised.v);
    auto fill = rings.k.producer();
    uint32_t slot = 0;
    for (pipe::AttentionTile t; schedule.next(tiles<Layout>(p), t);) {
      const Work work(p, t);
      const KeyTiles keys = Kernel::key_tiles(work, t);
      const uint8_t* of_head =
          attention_sm80::scales_of(x, {work.sequence, 0}, work.head / p.group);
      for (uint32_t n = keys.end; n-- > keys.first;) {
        // Keys past the end have masked scores and P = 0: any finite scale does.
        float scales[kEach];
        HT_UNROLL
        for (uint32_t i = 0; i < kEach; ++i) {
          scales[i] = 1;
          const uint32_t at = n * Layout::kKeys + i * 16 + key;
          if (!Scales::has_rows(x) || static_cast<int32_t>(at) >= p.range.count) continue;
          scales[i] = hw::load_global(Scales::scale_at(x, of_head, at));
        }
        const pipe::Slot stage = fill.wait();
        const hw::SharedAddress to =
            base + (Layout::kScales + slot++ % Layout::kScaleSlots * Layout::kScaleBytes);
        bool ones = true;
        HT_UNROLL
        for (uint32_t i = 0; i < kEach; ++i) {
          if (any) hw::store_shared(to + own + i * 64, scales[i]);
          ones = ones && scales[i] == 1;
        }
        const uint32_t of_lanes = hw::vote_ballot(ones);
        if (key == 0) {
          const uint32_t half = values ? of_lanes >> 16 : of_lanes & 0xffff;
          hw::store_shared(to + (Layout::kOnes + (values ? 4 : 0)), uint32_t{half == 0xffff});
        }
        hw::warp_sync();
        if (hw::lane_index() == 0) fill.commit(stage);
      }
    }
  }
};

// Q and K in E4M3 as they are: S by 8-bit MMAs, all scales applied to S.
struct NativeFp8Qk : Dequantised {
  static constexpr uint32_t kKeyBits = 8;
};

struct DequantisedGeneralParams : GeneralParams {
  QuantisedOperands quantised;  // keys are not paged any more
};

struct DequantisedGeneral : General {
  using Params = DequantisedGeneralParams;
  static constexpr bool kOperandScales = true, kPerKeyScales = true;

  template <class Layout>
  HT_DEVICE static PerKeyScales<Layout> operand_scales(const Params& p, const Work& work,
                                                       hw::SharedAddress base, int32_t row,
                                                       Softmax& softmax) {
    return {p.quantised, work, base, row, softmax, !p.scores.active};
  }

  template <class Layout>
  class Loader : public General::Loader<Layout> {
    using Plain = General::Loader<Layout>;

   public:
    HT_DEVICE explicit Loader(const Params& p) : Plain(p), quantised_(p.quantised) {}

    template <class Producer>
    HT_DEVICE void load_k(Producer& fill, hw::SharedAddress base, const Work& work, uint32_t n,
                          hw::Site site = hw::Site::current()) {
      const hw::SharedAddress to =
          base + (Layout::kScales + slot_++ % Layout::kScaleSlots * Layout::kScaleBytes);
      const uint32_t thread = hw::thread_index().x, head = work.head / work.p.group;
      const auto key = static_cast<int32_t>(n * Layout::kKeys + thread);
      static_assert(Layout::kKeys <= Layout::kLoadWarps * 32, "a thread for each key");
      const bool own = thread < Layout::kKeys, exists = own && key < work.range.count;
      const attention_sm80::RowIndex at{work.p.cu_keys == nullptr ? work.sequence : 0,
                                        work.first_key + key};
      const auto fetch = [&](const Operand& x) {
        if (!exists || !PerKeyScales<Layout>::has_rows(x)) return 0.0f;
        return hw::load_global(
            reinterpret_cast<const float*>(attention_sm80::scales_of(x, at, head)), site);
      };
      const float of_key = fetch(quantised_.k), of_value = fetch(quantised_.v);
      const auto store = [&] {
        if (!own) return;
        hw::store_shared(to + scale_offset(thread), of_key, site);
        hw::store_shared(to + (Layout::kScalesOfV + scale_offset(thread)), of_value, site);
      };
      Plain::load_k(fill, base, work, n, store, site);
    }

   private:
    const QuantisedOperands& quantised_;
    uint32_t slot_ = 0;  // of the scales of the next K
  };
  template <class Layout, class Kernel>
  HT_DEVICE static void load(const Params& p, const typename Layout::Rings& rings,
                             hw::SharedAddress base, Schedule schedule) {
    load_by<Layout, Kernel>(Loader<Layout>(p), p, rings, base, schedule);
  }
};

}  // namespace halftone::attention_sm90
