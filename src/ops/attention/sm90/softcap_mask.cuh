// Softcap, mask tensors and scales that are not positive, applied to S in registers, for attention
// on sm_90a. Everything else (causal, windows, chunks) is an interval of keys (softmax.cuh).
#pragma once
#include "hw/memory.h"
#include "hw/mufu.h"
#include "ops/attention/sm90/softmax.cuh"

namespace halftone::attention_sm90 {

enum class MaskKind : uint32_t { none, boolean, f32, f16, bf16 };

struct SoftcapMask {
  bool active;  // else none of this is read
  float scale_log2;
  float softcap_log2;      // softcap x log2(e), 0: none
  float softcap_exponent;  // 2 log2(e) scale / softcap
  MaskKind mask_kind;
  const void* mask;
  int64_t batch, head, query,
      key;  // strides of the mask in elements, 0 where shared

  // Scores become exponents of 2: scale and softcap.
  template <uint32_t kCount>
  HT_DEVICE void scale_scores(float (&s)[kCount]) const {
    if (softcap_log2 != 0) {
      softcap(s);
    } else {
      HT_UNROLL
      for (uint32_t i = 0; i < kCount; ++i) s[i] = hw::mul(s[i], scale_log2);
    }
  }
  HT_DEVICE int64_t mask_row(uint32_t sequence, uint32_t at_head, int32_t at_query) const {
    return sequence * batch + at_head * head + at_query * query;
  }
  // Adds the mask values of the thread's two rows from tile column `column` on; keys from `count`
  // on do not exist.
  template <uint32_t kCount>
  HT_DEVICE void add_mask(float (&s)[kCount], int64_t (&rows)[2], int32_t column, int32_t count,
                          hw::Site site) const {
    if (mask_kind == MaskKind::none) return;
    column += static_cast<int32_t>(hw::lane_index() % 4 * 2);
    rows[0] += column * key, rows[1] += column * key;
    // A few values at a time: their loads are in flight together, and no more addresses are alive.
    constexpr uint32_t kBatch = 4;
    static_assert(kCount % kBatch == 0, "whole batches");
    HT_UNROLL
    for (uint32_t i = 0; i < kCount; i += kBatch) {
      int64_t at[kBatch];
      float term[kBatch] = {};
      HT_UNROLL
      for (uint32_t e = 0; e < kBatch; ++e) {
        // Keys that do not exist read the value of an existing one.
        const int32_t j = static_cast<int32_t>(e / 4 * 8 + e % 2);
        at[e] = rows[e / 2 % 2] + (column + j < count ? j : -column) * key;
      }
      switch (mask_kind) {
        case MaskKind::none:
          break;
        case MaskKind::boolean:
          read<uint8_t>(at, term, site, [](uint8_t x) { return x != 0 ? 0 : -kInfinity; });
          break;
        case MaskKind::f32:
          read<float>(at, term, site, [](float x) { return x; });
          break;
        case MaskKind::f16:
          read<uint16_t>(at, term, site, [](uint16_t x) { return hw::cvt_f32_f16(x); });
          break;
        case MaskKind::bf16:
          read<uint16_t>(at, term, site, [](uint16_t x) { return hw::cvt_f32_bf16(x); });
          break;
      }
      HT_UNROLL
      for (uint32_t e = 0; e < kBatch; ++e) {
        add(term[e], s[i + e]);
      }
      column += 8;
      rows[0] += 8 * key, rows[1] += 8 * key;
    }
  }

  // The same with mask values in shared memory: swizzled panels of 128-byte lines, a line for each
  // of the warpgroup's rows, or one for all.
  template <uint32_t kCount>
  HT_DEVICE void add_staged(float (&s)[kCount], hw::SharedAddress stage, uint32_t panel_bytes,
                            hw::Site site) const {
    const uint32_t lane = hw::lane_index();
    const uint32_t row = query == 0 ? 0 : hw::warp_index() % 4 * 16 + lane / 4;
    const Lines lines{stage + row * 128, query == 0 ? 0 : 8 * 128U, row % 8, panel_bytes};
    switch (mask_kind) {
      case MaskKind::none:
        break;
      case MaskKind::boolean:
        lines.each<uint8_t>(s, site, [](uint8_t x, float& score) {
          if (x == 0) score = -kInfinity;
        });
        break;
      case MaskKind::f32:
        lines.each<float>(s, site, [](float x, float& score) { add(x, score); });
        break;
      case MaskKind::f16:
        lines.each<uint16_t>(s, site,
                             [](uint16_t x, float& score) { add(hw::cvt_f32_f16(x), score); });
        break;
      case MaskKind::bf16:
        lines.each<uint16_t>(s, site,
                             [](uint16_t x, float& score) { add(hw::cvt_f32_bf16(x), score); });
        break;
    }
  }

 private:
  // -inf masks the key, whatever its score.
  HT_DEVICE static void add(float term, float& score) {
    score = term == -kInfinity ? term : hw::fma(term, kLog2e, score);
  }
  // Where the mask values of a thread's two rows lie.
  struct Lines {
    hw::SharedAddress first;
    uint32_t second;   // bytes to the other row
    uint32_t swizzle;  // of the 16-byte chunks of both
    uint32_t panel_bytes;

    // f(mask value, score) for each of the thread's scores: columns 8 j + lane % 4 * 2, and the
    // next.
    template <class T, uint32_t kCount, class F>
    HT_DEVICE void each(float (&s)[kCount], hw::Site site, F f) const {
      constexpr uint32_t kSize = sizeof(T);
      const uint32_t own = hw::lane_index() % 4 * 2 * kSize;
      // Lines begin at multiples of 128: another chunk is an exclusive or away.
      const hw::SharedAddress base = first + ((own / 16 ^ swizzle) * 16 + own % 16);
      HT_UNROLL
      for (uint32_t i = 0; i < kCount; i += 4) {
        const uint32_t at = i * 2 * kSize;
        const hw::SharedAddress place =
            hw::SharedAddress{base.value ^ at % 128 / 16 * 16} + (at / 128 * panel_bytes + at % 16);
        HT_UNROLL
        for (uint32_t half = 0; half < 2; ++half) {
          const auto terms = load<T>(place + half * second, site);
          f(terms.x, s[i + 2 * half]);
          f(terms.y, s[i + 2 * half + 1]);
        }
      }
    }
    template <class T>
    struct Pair {
      T x, y;
    };
    template <class T>
    HT_DEVICE Pair<T> load(hw::SharedAddress at, hw::Site site) const {
      if constexpr (sizeof(T) < 4) {
        const auto both = hw::load_shared<hw::Vector<T, 2>>(at, site);
        return {both[0], both[1]};
      } else {
        // Odd rows have the chunks of even ones swapped, and both would hit one bank: odd rows read
        // the second value first.
        const uint32_t odd = swizzle % 2;
        const T one = hw::load_shared<T>(at + odd * 4, site);
        const T other = hw::load_shared<T>(at + (odd ^ 1) * 4, site);
        return odd == 0 ? Pair<T>{one, other} : Pair<T>{other, one};
      }
    }
  };

  // softcap tanh(x / softcap) x log2(e), where tanh(y) = 1 - 2 / (1 + exp(2 y)). Exponentials and
  // reciprocals of a tile take longest, so four scores share a reciprocal: of their product, which
  // cannot overflow because exponents are clamped at 2^30, where tanh is 1 in FP32. ex2 and rcp
  // within 2 ulp and seven roundings are 20 units of 2^-24 of the cap at most; tanh.approx would be
  // 2^-11. A NaN stays one and leaves its neighbours alone: a mask may hide it yet.
  template <uint32_t kCount>
  HT_DEVICE void softcap(float (&s)[kCount]) const {
    static_assert(kCount % 4 == 0, "whole fours");
    constexpr float kOne = 0x1p30f;  // tanh is 1 from here on
    HT_UNROLL
    for (uint32_t i = 0; i < kCount; i += 4) {
      float d[4];
      HT_UNROLL
      for (uint32_t e = 0; e < 4; ++e) {
        d[e] = hw::add(1, hw::min(hw::ex2_approx_ftz(hw::mul(s[i + e], softcap_exponent)), kOne));
      }
      const float pair[2] = {hw::mul(d[0], d[1]), hw::mul(d[2], d[3])};
      const float all = hw::rcp_approx_ftz(hw::mul(pair[0], pair[1]));
      HT_UNROLL
      for (uint32_t e = 0; e < 4; ++e) {
        const float inverse = hw::mul(hw::mul(all, pair[1 - e / 2]), d[e ^ 1]);
        const float capped = hw::fma(inverse, -2 * softcap_log2, softcap_log2);
        s[i + e] = s[i + e] == s[i + e] ? capped : s[i + e];
      }
    }
  }

  template <class T, uint32_t kCount, class Value>
  HT_DEVICE void read(const int64_t (&at)[kCount], float (&term)[kCount], hw::Site site,
                      Value value) const {
    T code[kCount];
    HT_UNROLL
    for (uint32_t e = 0; e < kCount; ++e) {
      code[e] = hw::load_global(static_cast<const T*>(mask) + at[e], site);
    }
    HT_UNROLL
    for (uint32_t e = 0; e < kCount; ++e) term[e] = value(code[e]);
  }
};

}  // namespace halftone::attention_sm90
