// Attention in E4M3 on Hopper: where rows, keys and their scales are. By tensor copies alone where
// all sequences have one length, or as the general form has them.
#pragma once
#include "ops/attention/sm90_fp8_layout.cuh"
#include "ops/attention/sm90_general_load.cuh"

namespace halftone::attention_sm90 {

// f32 scales of an operand: of sequence (or page), row and head; null: all 1.
struct OperandScales {
  const float* data;
  int64_t batch, row, head;  // strides in elements, 0 where all share one
  uint32_t shift;            // 2^this rows share one

  HT_DEVICE float of(int64_t at_batch, int64_t at_row, uint32_t at_head,
                     hw::Site site = hw::Site::current()) const {
    if (data == nullptr) return 1;
    return hw::load_global(data + at_batch * batch + (at_row >> shift) * row + at_head * head,
                           site);
  }
};

struct Fp8Scales {
  OperandScales q_scales, k_scales, v_scales;
  bool scaled_keys;  // K or V has a scale a row
};
// What shares a scale of K and of V: at least a head's keys, 128 rows, or one.
enum class KeyScaling { heads, blocks, rows };

struct Fp8Params : Params, Fp8Scales {};
struct Fp8GeneralParams : GeneralParams, Fp8Scales {};

// An instance for each kind of scale: what one needs would cost the others registers.
template <KeyScaling kOfKeys>
struct Fp8Dense : Dense {
  using Params = Fp8Params;
  static constexpr bool kBlocks = kOfKeys == KeyScaling::blocks;
  static constexpr bool kKeyScales = true;  // K may have them
  // Asked at run time where it is known, too: without branches around the scales ptxas loads all
  // of them at once, and spills what they displace.
  HT_DEVICE static bool by_row(const Params& p) {
    return kOfKeys == KeyScaling::rows && p.scaled_keys;
  }

  HT_DEVICE static float query_scale(const Params& p, const Work& work, int32_t row) {
    const int32_t last = p.range.queries - 1;
    return p.q_scales.of(work.t.sequence, row < last ? row : last, work.t.head);
  }
  // Of keys `first`, `first` + `step` and so on. The head, a division, is found once for all.
  template <uint32_t kCount>
  HT_DEVICE static void key_scales(const Params& p, const Work& work, const OperandScales& of,
                                   uint32_t first, uint32_t step, float (&scales)[kCount],
                                   hw::Site site = hw::Site::current()) {
    HT_UNROLL
    for (float& scale : scales) scale = 1;
    if (of.data == nullptr) return;
    const float* own = of.data + work.t.sequence * of.batch + work.t.head / p.group * of.head;
    const auto last = static_cast<uint32_t>(p.range.count - 1);
    HT_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) {
      const uint32_t key = first + i * step;
      scales[i] = hw::load_global(own + ((key < last ? key : last) >> of.shift) * of.row, site);
    }
  }

  // The first thread starts the copies.
  template <class Layout>
  struct Loader {
    const Params& p;

    template <class Producer>
    HT_DEVICE void copy(Producer& fill, const hw::TensorMap* map, hw::SharedAddress to,
                        const SharedTile& tile, uint32_t head, uint32_t row, uint32_t batch,
                        hw::Site site) const {
      if (hw::thread_index().x != 0) return;
      const pipe::Slot slot = fill.acquire(site);
      to = to + slot.stage * tile.bytes();
      HT_UNROLL
      for (uint32_t panel = 0; panel < tile.panels(); ++panel) {
        hw::tensor_load(
            to + panel * tile.panel_bytes(), map,
            {static_cast<int32_t>(panel * tile.panel_elements()), static_cast<int32_t>(head),
             static_cast<int32_t>(row), static_cast<int32_t>(batch)},
            slot.full, site);
      }
    }
    template <class Producer>
    HT_DEVICE void load_k(Producer& fill, hw::SharedAddress base, const Work& work, uint32_t n,
                          hw::Site site = hw::Site::current()) const {
      copy(fill, &p.k, base + Layout::kK, Layout::k_tile(), work.t.head / p.group,
           n * Layout::kKeys, work.t.sequence, site);
    }
    template <class Producer>
    HT_DEVICE void load_v(Producer& fill, hw::SharedAddress base, const Work& work, uint32_t n,
                          hw::Site site = hw::Site::current()) const {
      copy(fill, &p.v, base + Layout::kV, Layout::v_tile(), work.t.head / p.group,
           n * Layout::kKeys, work.t.sequence, site);
    }
    template <class Producer>
    HT_DEVICE void load_q(Producer& fill, hw::SharedAddress base, const Work& work, int32_t first,
                          hw::Site site = hw::Site::current()) const {
      copy(fill, &p.q, base, Layout::q_tile(), work.t.head, static_cast<uint32_t>(first),
           work.t.sequence, site);
    }
    HT_DEVICE void finish(hw::Site = hw::Site::current()) const {}
    template <class Producer>
    HT_DEVICE static void drain(Producer& fill) {
      if (hw::thread_index().x == 0) fill.drain();
    }
  };
};

// Of Q and K in bf16, all of whose scales but those of tensors are in the numbers. One instance is
// for V of any scales: without the branches of those of rows ptxas spills inside the loop.
struct Fp8Values : Fp8Dense<KeyScaling::rows> {
  static constexpr bool kKeyScales = false;
};

// Scales of blocks go the way of those of rows.
struct Fp8General : Masked {
  using Params = Fp8GeneralParams;
  static constexpr bool kBlocks = false, kKeyScales = true;
  HT_DEVICE static bool by_row(const Params& p) { return p.scaled_keys; }

  HT_DEVICE static float query_scale(const Params& p, const Work& work, int32_t row) {
    int64_t batch, at;
    uint32_t head;
    if (!work.find_query(row, batch, at, head)) return 1;
    return p.q_scales.of(batch, at, head);
  }
  template <uint32_t kCount>
  HT_DEVICE static void key_scales(const Params& p, const Work& work, const OperandScales& of,
                                   uint32_t first, uint32_t step, float (&scales)[kCount],
                                   hw::Site site = hw::Site::current()) {
    const uint32_t head = work.head / p.group;
    HT_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) {
      int32_t batch, row;
      const bool exists = work.find_key(static_cast<int32_t>(first + i * step), batch, row);
      scales[i] = exists ? of.of(batch, row, head, site) : 0;
    }
  }

  template <class Layout>
  struct Loader : General::Loader<Layout> {
    using General::Loader<Layout>::Loader;
    template <class Producer>
    HT_DEVICE static void drain(Producer& fill) {
      fill.drain();
    }
  };
};

}  // namespace halftone::attention_sm90
