// Sources of E4M3 attention on sm_90a: where rows, keys and their FP32 scales are. Dense by TMA
// alone where all sequences have one length, or as the general form loads them.
#pragma once
#include "ops/attention/sm90/fp8/layout.cuh"
#include "ops/attention/sm90/general/load.cuh"

namespace halftone::attention_sm90 {

// FP32 scales of an operand, of [sequence or page, row, head]; null: all 1.
struct TensorScales {
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
  TensorScales q_scales, k_scales, v_scales;
  bool scaled_keys;  // K or V has per-row scales
};
// What shares a scale of K and of V: all keys of a head (or more), 128 keys, or one.
enum class KeyScaling { heads, blocks, rows };

struct Fp8Params : Params, Fp8Scales {};
struct Fp8GeneralParams : GeneralParams, Fp8Scales {};

// An instance for each kind of scale: what one needs would cost the others registers.
template <KeyScaling kOfKeys>
struct Fp8Dense : Dense {
  using Params = Fp8Params;
  static constexpr bool kBlockScales = kOfKeys == KeyScaling::blocks;
  static constexpr bool kRowScales = kOfKeys == KeyScaling::rows;
  static constexpr bool kKeyScales = true;  // K may have scales
  // Tested at run time even where it is known: without branches around the scales ptxas loads all
  // of them at once, and spills what they displace.
  HT_DEVICE static bool by_row(const Params& p) { return kRowScales && p.scaled_keys; }

  HT_DEVICE static float query_scale(const Params& p, const Work& work, int32_t row) {
    const int32_t last = p.range.queries - 1;
    return p.q_scales.of(work.t.sequence, row < last ? row : last, work.t.head);
  }
  // The KV head. A division goes through the special-function unit, so it is computed once outside
  // loops over keys.
  HT_DEVICE static uint32_t key_head(const Params& p, const Work& work) {
    return pipe::uniform(work.t.head / p.group);
  }
  // Scales of keys `first`, `first` + `step` and so on.
  template <uint32_t kCount>
  HT_DEVICE static void key_scales(const Params& p, const Work& work, uint32_t key_head,
                                   const TensorScales& of, uint32_t first, uint32_t step,
                                   float (&scales)[kCount], hw::Site site = hw::Site::current()) {
    HT_UNROLL
    for (float& scale : scales) scale = 1;
    if (of.data == nullptr) return;
    const float* own = of.data + work.t.sequence * of.batch + key_head * of.head;
    const auto last = static_cast<uint32_t>(p.range.count - 1);
    HT_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) {
      const uint32_t key = first + i * step;
      scales[i] = hw::load_global(own + ((key < last ? key : last) >> of.shift) * of.row, site);
    }
  }

  // One thread issues the TMA loads of Q and K, one of another warp those of V.
  template <class Layout>
  struct Loader {
    static constexpr uint32_t kCopiesKeys = 0, kCopiesValues = 32;
    const Params& p;
    uint32_t key_head = 0;  // of the Q tile

    template <class Producer>
    HT_DEVICE void copy(Producer& fill, const hw::TensorMap* map, hw::SharedAddress to,
                        const SharedTile& tile, uint32_t head, uint32_t row, uint32_t batch,
                        hw::Site site) const {
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
      if (hw::thread_index().x != kCopiesKeys) return;
      copy(fill, &p.k, base + Layout::kK, Layout::k_tile(), key_head, n * Layout::kKeys,
           work.t.sequence, site);
    }
    template <class Producer>
    HT_DEVICE void load_v(Producer& fill, hw::SharedAddress base, const Work& work, uint32_t n,
                          hw::Site site = hw::Site::current()) const {
      if (hw::thread_index().x != kCopiesValues) return;
      copy(fill, &p.v, base + Layout::kV, Layout::v_tile(), key_head, n * Layout::kKeys,
           work.t.sequence, site);
    }
    template <class Producer>
    HT_DEVICE void load_q(Producer& fill, hw::SharedAddress base, const Work& work, int32_t first,
                          hw::Site site = hw::Site::current()) const {
      if (hw::thread_index().x != kCopiesKeys) return;
      copy(fill, &p.q, base, Layout::q_tile(), work.t.head, static_cast<uint32_t>(first),
           work.t.sequence, site);
    }
    HT_DEVICE void flush(hw::Site = hw::Site::current()) const {}
    template <class QProducer, class KProducer, class VProducer>
    HT_DEVICE static void drain(QProducer& q, KProducer& k, VProducer& v) {
      if (hw::thread_index().x == kCopiesKeys) q.drain(), k.drain();
      if (hw::thread_index().x == kCopiesValues) v.drain();
    }
  };
};

// For Q and K in BF16: all their scales except per-tensor ones are already in the values.
template <KeyScaling kOfValues>
struct Fp8Values : Fp8Dense<kOfValues> {
  static constexpr bool kKeyScales = false;
};

// Per-block scales are handled as per-row ones.
struct Fp8General : Masked {
  using Params = Fp8GeneralParams;
  static constexpr bool kBlockScales = false, kRowScales = true, kKeyScales = true;
  HT_DEVICE static bool by_row(const Params& p) { return p.scaled_keys; }

  HT_DEVICE static float query_scale(const Params& p, const Work& work, int32_t row) {
    int64_t batch, at;
    uint32_t head;
    if (!work.find_query(row, batch, at, head)) return 1;
    return p.q_scales.of(batch, at, head);
  }
  HT_DEVICE static uint32_t key_head(const Params& p, const Work& work) {
    return pipe::uniform(work.head / p.group);
  }
  template <uint32_t kCount>
  HT_DEVICE static void key_scales(const Params&, const Work& work, uint32_t key_head,
                                   const TensorScales& of, uint32_t first, uint32_t step,
                                   float (&scales)[kCount], hw::Site site = hw::Site::current()) {
    HT_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) {
      int32_t batch, row;
      const bool exists = work.find_key(static_cast<int32_t>(first + i * step), batch, row);
      scales[i] = exists ? of.of(batch, row, key_head, site) : 0;
    }
  }

  template <class Layout>
  struct Loader : General::Loader<Layout> {
    using General::Loader<Layout>::Loader;
    template <class QProducer, class KProducer, class VProducer>
    HT_DEVICE static void drain(QProducer& q, KProducer& k, VProducer& v) {
      q.drain(), k.drain(), v.drain();
    }
  };
};

}  // namespace halftone::attention_sm90
