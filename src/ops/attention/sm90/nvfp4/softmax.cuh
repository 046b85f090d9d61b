// Attention on Hopper with P in NVFP4 of two levels (attention.h has the rule), over operands that
// sm90_dequantise.cuh has expanded: P is rounded to codes times a scale for 16 keys, which are
// numbers of bf16, and multiplied as such.
//
// A tile of keys is what shares the second level. Its P are relative to its own largest score,
// above or below that of the tiles before, so O is rescaled either way. The largest score of each
// 16 keys is found before that of the tile, so that a scale waits for no other P than the largest.
#pragma once
#include "ops/attention/sm90/dequant/operands.cuh"

namespace halftone::attention_sm90 {

// What P are multiplied by: codes are at most 6 and scales 448.
inline constexpr float kNvfp4PScale = 2688;

// The E2M1 number nearest to x >= 0, ties to even: to one fraction bit, and no finer than halves.
// c, the power of two below, is brought where a unit in the last place is c / 2.
HT_DEVICE float round_to_e2m1(float x) {
  constexpr float kPlace = 0x1.8p22f;
  const float power = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7f800000);
  const float c = hw::max(power, 1);
  return hw::min(hw::fma(c, -kPlace, hw::fma(c, kPlace, x)), 6);
}

HT_DEVICE float round_to_e4m3(float x) {
  const uint32_t halves = hw::cvt_f16x2_fp8x2<hw::Type::e4m3>(hw::cvt_fp8x2<hw::Type::e4m3>(x, 0));
  return hw::cvt_f32_f16(static_cast<uint16_t>(halves & 0xffff));
}

// RN(2688 / scale) for each scale there is, by the approximation and one step; 0 for 0.
HT_DEVICE float nvfp4_inverse(float scale) {
  const float inverse = hw::rcp_approx_ftz(scale), near = hw::mul(inverse, kNvfp4PScale);
  const float exact = hw::fma(hw::fma(-near, scale, kNvfp4PScale), inverse, near);
  return scale == 0 ? 0 : exact;
}

// A thread's part of its warp's 16 rows, as Softmax. Exponents of 2.
struct Nvfp4Softmax {
  float scale[2];  // softmax scale x log2(e), positive
  float level[2];  // what O, as the sum, is relative to; -inf before any key
  float most[2];   // the largest score so far
  float sum[2];    // of this thread's P that are not rounded

  HT_DEVICE explicit Nvfp4Softmax(float scale_log2) {
    scale[0] = scale[1] = scale_log2;
    level[0] = level[1] = most[0] = most[1] = -kInfinity;
    sum[0] = sum[1] = 0;
  }
  // The scores become P, rounded. `rescale`: what O is to be multiplied by, exactly 1 where a row
  // sees nothing of the tile.
  template <bool, uint32_t kCount>  // it has one order
  HT_DEVICE void step(float (&s)[kCount], float (&rescale)[2],
                      hw::Site site = hw::Site::current()) {
    constexpr uint32_t kBlocks = kCount / 8;  // of 16 keys, four of which are this thread's
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      float top[kBlocks], tile = -kInfinity;
      HT_UNROLL
      for (uint32_t b = 0; b < kBlocks; ++b) {
        const float* own = s + 8 * b + 2 * half;
        top[b] = hw::max(hw::max(own[0], own[1]), hw::max(own[4], own[5]));
        top[b] = hw::max(top[b], hw::shuffle_xor(top[b], 1, 4, hw::kFullWarp, site));
        top[b] = hw::max(top[b], hw::shuffle_xor(top[b], 2, 4, hw::kFullWarp, site));
        tile = hw::max(tile, top[b]);
      }
      tile = hw::mul(tile, scale[half]);
      most[half] = hw::max(most[half], tile);
      // Far below what was seen, where O would grow beyond f32, a tile weighs nothing: less than
      // 2^-60.
      constexpr float kFar = 60;
      const bool nothing = tile < hw::add(most[half], -kFar);
      const float before = level[half];
      if (!nothing) level[half] = tile;
      // A row that has seen no key yet is relative to 0: its P are exp(-inf) = 0.
      const float now = level[half] == -kInfinity ? 0 : level[half];
      rescale[half] = hw::ex2_approx_ftz(hw::add(before, -now));
      const float shift = nothing ? -kInfinity : -now;
      const auto weight = [&](float score) {
        return hw::ex2_approx_ftz(hw::fma(score, scale[half], shift));
      };
      float part = 0;
      HT_UNROLL
      for (uint32_t b = 0; b < kBlocks; ++b) {
        const float of_block = round_to_e4m3(hw::mul(weight(top[b]), 448));
        const float inverse = nvfp4_inverse(of_block);
        HT_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
          float& x = s[8 * b + 4 * (i / 2) + 2 * half + i % 2];
          x = weight(x);
          part = hw::add(part, x);
          x = hw::mul(round_to_e2m1(hw::mul(x, inverse)), of_block);
        }
      }
      sum[half] = hw::fma(sum[half], rescale[half], part);
    }
  }
  HT_DEVICE float row_level(uint32_t half) const { return level[half]; }
  HT_DEVICE float row_sum(uint32_t half, hw::Site site = hw::Site::current()) const {
    return sum_of_quad(sum[half], site);
  }
};

// The scales of a thread's two rows, of tensors and of rows of Q: keys have none beside their
// numbers.
struct Nvfp4Factors : Factors {
  using Factors::Factors;

  template <uint32_t kCount>
  HT_DEVICE void scores(float (&s)[kCount]) const {
    scale_rows(s);
  }
  template <uint32_t kCount>
  HT_DEVICE void results(float (&o)[kCount]) const {
    const float factor = hw::mul(value, 1 / kNvfp4PScale);
    HT_UNROLL
    for (float& each : o) each = hw::mul(each, factor);
  }
};

struct Nvfp4Weights : Expanded {
  using Softmax = Nvfp4Softmax;
  static constexpr bool kScaled = false;

  template <class Layout>
  HT_DEVICE static Nvfp4Factors row_scales(const Params& p, const Work& work, hw::SharedAddress,
                                           int32_t row, Softmax& softmax) {
    return {p.codes, work, row, softmax, true};
  }
  template <class Layout, class Kernel>
  HT_DEVICE static void load(const Params& p, const typename Layout::Rings& rings,
                             hw::SharedAddress base, Schedule schedule) {
    Dense::load<Layout, Kernel>(p, rings, base, schedule);
  }
};

struct Nvfp4WeightsGeneral : ExpandedGeneral {
  using Softmax = Nvfp4Softmax;
  static constexpr bool kScaled = false;

  template <class Layout>
  HT_DEVICE static Nvfp4Factors row_scales(const Params& p, const Work& work, hw::SharedAddress,
                                           int32_t row, Softmax& softmax) {
    return {p.codes, work, row, softmax, !p.scores.given};
  }
  template <class Layout, class Kernel>
  HT_DEVICE static void load(const Params& p, const typename Layout::Rings& rings,
                             hw::SharedAddress base, Schedule schedule) {
    load_by<Layout, Kernel>(General::Loader<Layout>(p), p, rings, base, schedule);
  }
};

}  // namespace halftone::attention_sm90
