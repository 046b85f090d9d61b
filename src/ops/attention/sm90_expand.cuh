// Attention on Hopper over quantised keys: the general form, whose loading warps expand codes
// exactly to bf16. The products are those of bf16.
//
// Q, K and V may each be fp8, int8, mxfp8, mxfp4 or nvfp4, or bf16 as it is. Block scales are in
// the expanded numbers; scales of tensors and of rows of Q multiply S, those of rows of K its
// columns; those of rows of V multiply P before it is rounded, so they travel with K.
#pragma once
#include "hw/bits.h"
#include "hw/pair.h"
#include "ops/attention/sm80_operand.cuh"
#include "ops/attention/sm90_general_load.cuh"

namespace halftone::attention_sm90 {

using attention_sm80::Operand;
using attention_sm80::Scales;

struct ExpandingParams : GeneralParams {
  Operand q_codes, k_codes, v_codes;
};

// The 16 numbers of a unit, in pairs of bf16.
struct ExpandedUnit {
  uint32_t pairs[8];
};

// Codes of E4M3 and a factor that is 1 or a power of two.
HT_DEVICE ExpandedUnit expand_fp8(const uint32_t (&codes)[4], float factor) {
  ExpandedUnit unit;
  HT_UNROLL
  for (uint32_t i = 0; i < 8; ++i) {
    const auto two = static_cast<uint16_t>(codes[i / 2] >> 16 * (i % 2));
    const uint32_t halves = hw::cvt_f16x2_fp8x2<hw::Type::e4m3>(two);
    const float low = hw::cvt_f32_f16(static_cast<uint16_t>(halves & 0xffff));
    const float high = hw::cvt_f32_f16(static_cast<uint16_t>(halves >> 16));
    unit.pairs[i] = hw::cvt_bf16x2(hw::mul(low, factor), hw::mul(high, factor));
  }
  return unit;
}

// Codes of E2M1: the magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6 by two tables of the bytes of bf16.
HT_DEVICE ExpandedUnit expand_fp4(const uint32_t (&codes)[2], float factor) {
  const uint32_t factors = hw::cvt_bf16x2(factor, factor);
  ExpandedUnit unit;
  HT_UNROLL
  for (uint32_t i = 0; i < 4; ++i) {  // of 4 codes
    const uint32_t four = codes[i / 2] >> 16 * (i % 2) & 0xffff, select = four & 0x7777;
    const uint32_t high = hw::prmt(0x3f3f3f00, 0x40404040, select);
    const uint32_t low = hw::prmt(0xc0800000, 0xc0804000, select);
    HT_UNROLL
    for (uint32_t j = 0; j < 2; ++j) {
      const uint32_t two = four >> 8 * j;
      const uint32_t signs = (two << 12 & 0x8000) | (two << 24 & 0x80000000);
      const uint32_t pair = hw::prmt(low, high, j == 0 ? 0x5140 : 0x7362);
      unit.pairs[2 * i + j] = hw::mul_pair<hw::Type::bf16x2>(pair | signs, factors);
    }
  }
  return unit;
}

HT_DEVICE ExpandedUnit expand_int8(const uint32_t (&codes)[4]) {
  ExpandedUnit unit;
  const auto number = [&](uint32_t i) {
    return static_cast<float>(static_cast<int8_t>(codes[i / 4] >> 8 * (i % 4)));
  };
  HT_UNROLL
  for (uint32_t i = 0; i < 8; ++i) unit.pairs[i] = hw::cvt_bf16x2(number(2 * i), number(2 * i + 1));
  return unit;
}

struct Expanding : General {
  using Params = ExpandingParams;
  static constexpr bool kScaled = true;

  // The scales of a tile of rows.
  template <class Layout>
  struct RowScales {
    hw::SharedAddress base;
    float row[2], value;
    bool keys, values;

    HT_DEVICE RowScales(const Params& p, const Work& work, hw::SharedAddress memory, int32_t first)
        : base(memory + Layout::kScales),
          keys(p.k_codes.scaling == Scales::row),
          values(p.v_codes.scaling == Scales::row) {
      const float all = hw::mul(attention_sm80::factor_of(p.q_codes, work.sequence),
                                attention_sm80::factor_of(p.k_codes, work.sequence));
      value = attention_sm80::factor_of(p.v_codes, work.sequence);
      HT_UNROLL
      for (int32_t half = 0; half < 2; ++half) {
        row[half] = all;
        attention_sm80::Place at;
        uint32_t head;
        if (p.q_codes.scaling != Scales::row) continue;
        if (!work.find_query(first + 8 * half, at.outer, at.row, head)) continue;
        const uint8_t* scale = attention_sm80::scales_of(p.q_codes, at, head);
        row[half] = hw::mul(all, hw::load_global(reinterpret_cast<const float*>(scale)));
      }
    }
    template <uint32_t kCount>
    HT_DEVICE void scores(float (&s)[kCount], uint32_t stage, hw::Site site) const {
      HT_UNROLL
      for (uint32_t i = 0; i < kCount; ++i) s[i] = hw::mul(s[i], row[i / 2 % 2]);
      if (keys) scale_columns(s, base + stage * Layout::kScaleBytes, site);
    }
    template <uint32_t kCount>
    HT_DEVICE void weights(float (&s)[kCount], uint32_t stage, hw::Site site) const {
      if (values) scale_columns(s, base + (stage * Layout::kScaleBytes + Layout::kKeys * 4), site);
    }
    template <uint32_t kCount>
    HT_DEVICE void results(float (&o)[kCount]) const {
      HT_UNROLL
      for (float& each : o) each = hw::mul(each, value);
    }
  };

  template <class Layout>
  HT_DEVICE static RowScales<Layout> row_scales(const Params& p, const Work& work,
                                                hw::SharedAddress base, int32_t row) {
    return {p, work, base, row};
  }

  template <class Layout>
  class Loader;
  template <class Layout, class Kernel>
  HT_DEVICE static void load(const Params& p, const typename Layout::Rings& rings,
                             hw::SharedAddress base, Schedule schedule) {
    load_by<Layout, Kernel>(Loader<Layout>(p), p, rings, base, schedule);
  }
};

template <class Layout>
class Expanding::Loader : public General::Loader<Layout> {
  using Plain = General::Loader<Layout>;

 public:
  HT_DEVICE explicit Loader(const ExpandingParams& p) : Plain(p), p_(p) {}

  template <class Producer>
  HT_DEVICE void load_k(Producer& fill, hw::SharedAddress base, const Work& work, uint32_t n,
                        hw::Site site = hw::Site::current()) {
    expand<Layout::kKeys, Layout::kHeadDim>(
        fill, base + Layout::kK, p_.k_codes, p_.k_rows.dim, key_rows(p_.k_codes, work, n),
        [&](uint32_t stage) { store_scales(base, work, n, stage); }, site);
  }
  template <class Producer>
  HT_DEVICE void load_v(Producer& fill, hw::SharedAddress base, const Work& work, uint32_t n,
                        hw::Site site = hw::Site::current()) {
    if (p_.v_codes.format == Format::bf16) return Plain::load_v(fill, base, work, n, site);
    expand<Layout::kKeys, Layout::kValueDim>(
        fill, base + Layout::kV, p_.v_codes, p_.v_rows.dim, key_rows(p_.v_codes, work, n),
        [](uint32_t) {}, site);
  }
  // A tile has rows of one head: query_length is at least that of a pack.
  template <class Producer>
  HT_DEVICE void load_q(Producer& fill, hw::SharedAddress base, const Work& work, int32_t first,
                        hw::Site site = hw::Site::current()) {
    if (p_.q_codes.format == Format::bf16) return Plain::load_q(fill, base, work, first, site);
    attention_sm80::Place at;
    uint32_t head;
    work.find_query(first, at.outer, at.row, head);
    const CodeRows rows{attention_sm80::data_of(p_.q_codes, at, head),
                        attention_sm80::scales_of(p_.q_codes, at, head),
                        work.range.queries - first};
    expand<Layout::kRows, Layout::kHeadDim>(
        fill, base, p_.q_codes, p_.q_rows.dim,
        [&](uint32_t r, CodeRow& row) { return rows.find(p_.q_codes, r, row); }, [](uint32_t) {},
        site);
  }

 private:
  // Where a row's codes and block scales begin.
  struct CodeRow {
    const uint8_t *data, *scales;
  };
  // Rows one after the other.
  struct CodeRows {
    const uint8_t *data, *scales;
    int32_t count;
    HT_DEVICE bool find(const Operand& x, uint32_t r, CodeRow& row) const {
      row = {data + r * x.row_bytes, scales + r * x.scale_row_bytes};
      return static_cast<int32_t>(r) < count;
    }
  };
  HT_DEVICE static bool find_key(const Work& work, int32_t key, attention_sm80::Place& at) {
    int32_t outer, row;
    if (!work.find_key(key, outer, row)) return false;
    at = {outer, row};
    return true;
  }
  // The rows of a tile of keys: a tile's first key exists, the others of its batch follow it.
  HT_DEVICE static auto key_rows(const Operand& x, const Work& work, uint32_t n) {
    const uint32_t head = work.head / work.p.group;
    const auto first = static_cast<int32_t>(n * Layout::kKeys);
    attention_sm80::Place at{0, 0};
    find_key(work, first, at);
    const CodeRows rows{attention_sm80::data_of(x, at, head),
                        attention_sm80::scales_of(x, at, head), work.range.count - first};
    return [&x, &work, head, first, rows](uint32_t r, CodeRow& row) {
      if (work.p.pages == nullptr) return rows.find(x, r, row);
      attention_sm80::Place own;
      if (!find_key(work, first + static_cast<int32_t>(r), own)) return false;
      row = {attention_sm80::data_of(x, own, head), attention_sm80::scales_of(x, own, head)};
      return true;
    };
  }
  HT_DEVICE void store_scales(hw::SharedAddress base, const Work& work, uint32_t n,
                              uint32_t stage) const {
    const uint32_t thread = hw::thread_index().x;
    if (thread >= Layout::kKeys) return;
    attention_sm80::Place at;
    const auto key = static_cast<int32_t>(n * Layout::kKeys + thread);
    const bool exists = find_key(work, key, at);
    const auto scale = [&](const Operand& x) {
      if (x.scaling != Scales::row || !exists) return 0.0f;
      return hw::load_global(reinterpret_cast<const float*>(
          attention_sm80::scales_of(x, at, work.head / work.p.group)));
    };
    const hw::SharedAddress to = base + (Layout::kScales + stage * Layout::kScaleBytes);
    hw::store_shared(to + thread * 4, scale(p_.k_codes));
    hw::store_shared(to + (Layout::kKeys + thread) * 4, scale(p_.v_codes));
  }

  // kRows rows of kColumns columns. A thread takes units of 16 columns at one place of the row, or
  // three; 8 threads take those of 8 rows, whose places in shared memory are in different banks.
  template <uint32_t kRows, uint32_t kColumns, class Producer, class Find, class More>
  HT_DEVICE void expand(Producer& fill, hw::SharedAddress to, const Operand& x, uint32_t dim,
                        Find find, More more, hw::Site site) {
    constexpr uint32_t kLine = 128, kUnits = kColumns / 16, kGroups = Layout::kLoadWarps * 4;
    constexpr uint32_t kAcross = kUnits % 16 == 0 ? 16 : kUnits % 8 == 0 ? 8 : 4;
    constexpr uint32_t kDown = kGroups / kAcross * 8;  // rows of a pass
    constexpr uint32_t kPasses = kRows / kDown, kBatch = kPasses % 4 == 0   ? 4
                                                         : kPasses % 3 == 0 ? 3
                                                                            : 2;
    static_assert(kUnits % kAcross == 0 && kRows % kDown == 0 && kPasses % kBatch == 0);
    this->finish(site);
    const pipe::Slot slot = fill.wait(site);
    to = to + slot.stage * (kRows * kColumns * 2);
    const uint32_t group = hw::thread_index().x / 8;
    const uint32_t first_row = group / kAcross * 8 + hw::thread_index().x % 8;
    const bool nibbles = pipe::has_nibbles(x.format), scaled = x.scaling == Scales::block;
    HT_ROLLED
    for (uint32_t unit = group % kAcross; unit < kUnits; unit += kAcross) {
      const bool inside = unit * 16 < dim;
      const uint32_t scale_at = x.format == Format::nvfp4 ? unit : unit / 2;
      HT_ROLLED
      for (uint32_t row = first_row; row < kRows; row += kBatch * kDown) {
        uint32_t codes[kBatch][4] = {}, scale[kBatch] = {};
        HT_UNROLL
        for (uint32_t b = 0; b < kBatch; ++b) {
          CodeRow from;
          if (!find(row + b * kDown, from) || !inside) continue;
          if (nibbles) {
            const auto two = hw::load_global(
                reinterpret_cast<const hw::Vector<uint32_t, 2>*>(from.data + unit * 8), site);
            codes[b][0] = two.at[0], codes[b][1] = two.at[1];
          } else {
            const auto four =
                hw::load_global(reinterpret_cast<const hw::Words4*>(from.data + unit * 16), site);
            HT_UNROLL
            for (uint32_t w = 0; w < 4; ++w) codes[b][w] = four.at[w];
          }
          if (scaled) scale[b] = hw::load_global(from.scales + scale_at, site);
        }
        HT_UNROLL
        for (uint32_t b = 0; b < kBatch; ++b) {
          const ExpandedUnit y = numbers(x.format, codes[b], scale[b]);
          HT_UNROLL
          for (uint32_t c = 0; c < 2; ++c) {
            const uint32_t chunk = 2 * unit + c;
            hw::store_shared(
                to + (chunk / 8 * kRows * kLine +
                      tile::chunk_offset(tile::Swizzle::b128, row + b * kDown, chunk % 8)),
                hw::Words4{
                    {y.pairs[4 * c], y.pairs[4 * c + 1], y.pairs[4 * c + 2], y.pairs[4 * c + 3]}},
                site);
          }
        }
      }
    }
    more(slot.stage);
    hw::fence_proxy_async_shared(site);  // the tensor cores read it
    hw::warp_sync(hw::kFullWarp, site);
    if (hw::lane_index() == 0) fill.commit(slot, site);
  }
  HT_DEVICE static ExpandedUnit numbers(Format format, const uint32_t (&codes)[4], uint32_t scale) {
    if (format == Format::nvfp4 || format == Format::mxfp4) {
      const uint32_t two[2] = {codes[0], codes[1]};
      return expand_fp4(two, format == Format::nvfp4 ? pipe::decode_code(Format::fp8_e4m3, scale)
                                                     : decode_ue8m0(static_cast<uint8_t>(scale)));
    }
    if (format == Format::int8) return expand_int8(codes);
    return expand_fp8(codes,
                      format == Format::mxfp8 ? decode_ue8m0(static_cast<uint8_t>(scale)) : 1);
  }

  const ExpandingParams& p_;
};

}  // namespace halftone::attention_sm90
