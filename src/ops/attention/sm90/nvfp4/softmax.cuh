// Attention on sm_90a with P in NVFP4 of two levels (docs/numerics.md has the rule), over operands
// that dequant/dequantise.cuh has converted: the softmax rounds P to E2M1 times an E4M3 scale for
// 16 keys. These are BF16 numbers, and P V is a BF16 MMA.
//
// A K/V tile shares the second-level scale. Its P is relative to row_max of the tile itself, above
// or below that of the tiles before, so O is rescaled either way. The maximum of each 16 keys is
// found before that of the tile, so that a scale waits for no other P than the largest.
#pragma once
#include "ops/attention/sm90/dequant/operands.cuh"

namespace halftone::attention_sm90 {

// Second-level scale of P: E2M1 values are at most 6 and E4M3 scales 448.
inline constexpr float kNvfp4PScale = 2688;

// The E2M1 number nearest to x >= 0, ties to even: to one fraction bit, and no finer than halves.
// c, the power of two below, is moved where a unit in the last place is c / 2.
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

// RN(2688 / scale) for every E4M3 scale, by rcp.approx and one Newton step; 0 for 0.
HT_DEVICE float nvfp4_inverse(float scale) {
  const float inverse = hw::rcp_approx_ftz(scale), near = hw::mul(inverse, kNvfp4PScale);
  const float exact = hw::fma(hw::fma(-near, scale, kNvfp4PScale), inverse, near);
  return scale == 0 ? 0 : exact;
}

// A thread's part of its warp's 16 rows, as Softmax. In base-2 exponents.
struct Nvfp4Softmax {
  float scale[2];      // softmax scale x log2(e), positive
  float reference[2];  // what O and the sum are relative to; -inf before any key
  float row_max[2];    // row_max so far
  float sum[2];        // of this thread's unrounded P

  HT_DEVICE explicit Nvfp4Softmax(float scale_log2) {
    scale[0] = scale[1] = scale_log2;
    reference[0] = reference[1] = row_max[0] = row_max[1] = -kInfinity;
    sum[0] = sum[1] = 0;
  }
  // Scores become P, rounded. `rescale`: the correction factor of O, exactly 1 where all keys of
  // the tile are masked for a row.
  template <bool, uint32_t kCount>  // it has one order
  HT_DEVICE void step(float (&s)[kCount], float (&rescale)[2],
                      hw::Site site = hw::Site::current()) {
    constexpr uint32_t kBlockScales = kCount / 8;  // of 16 keys, four of which are this thread's
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      float block_max[kBlockScales], tile_max = -kInfinity;
      HT_UNROLL
      for (uint32_t b = 0; b < kBlockScales; ++b) {
        const float* own = s + 8 * b + 2 * half;
        block_max[b] = hw::max(hw::max(own[0], own[1]), hw::max(own[4], own[5]));
        block_max[b] =
            hw::max(block_max[b], hw::shuffle_xor(block_max[b], 1, 4, hw::kFullWarp, site));
        block_max[b] =
            hw::max(block_max[b], hw::shuffle_xor(block_max[b], 2, 4, hw::kFullWarp, site));
        tile_max = hw::max(tile_max, block_max[b]);
      }
      tile_max = hw::mul(tile_max, scale[half]);
      row_max[half] = hw::max(row_max[half], tile_max);
      // Far below row_max, where rescaling would overflow O, a tile counts as masked: its P are
      // less than 2^-60.
      constexpr float kFar = 60;
      const bool negligible = tile_max < hw::add(row_max[half], -kFar);
      const float previous = reference[half];
      if (!negligible) reference[half] = tile_max;
      // A row with all keys masked so far is relative to 0: its P are exp2(-inf) = 0.
      const float current = reference[half] == -kInfinity ? 0 : reference[half];
      rescale[half] = hw::ex2_approx_ftz(hw::add(previous, -current));
      const float offset = negligible ? -kInfinity : -current;
      const auto exponential = [&](float score) {
        return hw::ex2_approx_ftz(hw::fma(score, scale[half], offset));
      };
      float tile_sum = 0;
      HT_UNROLL
      for (uint32_t b = 0; b < kBlockScales; ++b) {
        const float block_scale = round_to_e4m3(hw::mul(exponential(block_max[b]), 448));
        const float inverse = nvfp4_inverse(block_scale);
        HT_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
          float& x = s[8 * b + 4 * (i / 2) + 2 * half + i % 2];
          x = exponential(x);
          tile_sum = hw::add(tile_sum, x);
          x = hw::mul(round_to_e2m1(hw::mul(x, inverse)), block_scale);
        }
      }
      sum[half] = hw::fma(sum[half], rescale[half], tile_sum);
    }
  }
  HT_DEVICE float row_max_log2(uint32_t half) const { return reference[half]; }
  HT_DEVICE float row_sum(uint32_t half, hw::Site site = hw::Site::current()) const {
    return quad_sum(sum[half], site);
  }
};

// Scales of a thread's two rows, per tensor and per row of Q: keys have none beside their values.
struct Nvfp4OperandScales : OperandScales {
  using OperandScales::OperandScales;

  template <uint32_t kCount>
  HT_DEVICE void scale_scores(float (&s)[kCount]) const {
    scale_rows(s);
  }
  template <uint32_t kCount>
  HT_DEVICE void scale_output(float (&o)[kCount]) const {
    const float factor = hw::mul(value, 1 / kNvfp4PScale);
    HT_UNROLL
    for (float& each : o) each = hw::mul(each, factor);
  }
};

struct Nvfp4P : Dequantised {
  using Softmax = Nvfp4Softmax;
  static constexpr bool kPerKeyScales = false;

  template <class Layout>
  HT_DEVICE static Nvfp4OperandScales operand_scales(const Params& p, const Work& work,
                                                     hw::SharedAddress, int32_t row,
                                                     Softmax& softmax) {
    return {p.quantised, work, row, softmax, true};
  }
  template <class Layout, class Kernel>
  HT_DEVICE static void load(const Params& p, const typename Layout::Rings& rings,
                             hw::SharedAddress base, Schedule schedule) {
    Dense::load<Layout, Kernel>(p, rings, base, schedule);
  }
};

struct Nvfp4PGeneral : DequantisedGeneral {
  using Softmax = Nvfp4Softmax;
  static constexpr bool kPerKeyScales = false;

  template <class Layout>
  HT_DEVICE static Nvfp4OperandScales operand_scales(const Params& p, const Work& work,
                                                     hw::SharedAddress, int32_t row,
                                                     Softmax& softmax) {
    return {p.quantised, work, row, softmax, !p.scores.active};
  }
  template <class Layout, class Kernel>
  HT_DEVICE static void load(const Params& p, const typename Layout::Rings& rings,
                             hw::SharedAddress base, Schedule schedule) {
    load_by<Layout, Kernel>(General::Loader<Layout>(p), p, rings, base, schedule);
  }
};

}  // namespace halftone::attention_sm90
