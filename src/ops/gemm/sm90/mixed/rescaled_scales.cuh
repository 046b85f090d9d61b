// Scale staging for the rescaled accumulator of the mixed-input GEMM on sm_90a
// (mixed/mainloop.cuh): for every stage of W, quotients of consecutive scales, powers of two and
// zero points, written to shared memory by the staging warps of mixed/scales.cuh.
//
// The sign and the power of two of a scale multiply its weights, which is exact; what is left, the
// mantissa, is the unit of the accumulator: at least 1 and less than 2. Of 0, subnormals, infinity
// and NaN everything multiplies the weights, and the unit is 1. So the quotient of two units, which
// converts an accumulator in the one unit into the other, is between 1/2 and 2, whatever the scales
// are.
#pragma once
#include "hw/mufu.h"
#include "hw/vote.h"
#include "hw/warp.h"
#include "ops/gemm/sm90/mixed/scales.cuh"

namespace halftone::gemm {

// A slot of a row: the previous unit over its own; and as BF16 the zero point of INT4 and the power
// of two. Behind the slots the unit of the last one. kSlotsPerScale slots share a scale.
template <class Stages, uint32_t kSlotsPerScale>
class Sm90RescaledScaleStaging {
 public:
  HT_DEVICE Sm90RescaledScaleStaging(const Sm90Params& params, const Sm90Tile& tile, uint32_t warp)
      : p_(params.gemm), share_{warp}, last_((params.gemm.k - 1) / kUnit) {
    const GpuLayout& l = p_.weight;
    uint64_t scales = 0, zeros = 0;
    HT_UNROLL
    for (uint32_t i = 0; i < kRows; ++i) {
      const uint32_t row = tile.output(share_.at(i));
      const GpuSource source = tile.source_of(share_.at(i));
      const int64_t of_tensor = source.first_row + (row < p_.n ? row : p_.n - 1) * l.row_step;
      const int64_t block = block_of_row(l, of_tensor);
      scales_[i] = source.scales + block * l.scale_row;
      if (Stages::kZeros && source.zeros != nullptr) zeros_[i] = source.zeros + block * l.zero_row;
      scales |= reinterpret_cast<uintptr_t>(source.scales);
      zeros |= reinterpret_cast<uintptr_t>(source.zeros);
    }
    groups_ = 1.0f / static_cast<float>(l.group / kUnit);
    const bool neighbours = l.group == kUnit && p_.k % Stages::kDepth == 0;
    bytes_ = scale_bytes(l.scale_format);
    vector_loads_ = kScales > 1 && neighbours && bytes_ > 1 && l.scale_step == bytes_ &&
                    (scales | l.scale_row) % (kScales * bytes_) == 0;
    vector_zeros_ = neighbours && l.zero_step == 1 && (zeros | l.zero_row) % kScales == 0;
  }

  // Loads the scales of a step, and the scale before it in the K group that computes the step: each
  // of two K groups has every other step. Zero points are loaded late.
  HT_DEVICE void load(uint32_t step) {
    step_ = step;
    if (vector_loads_ && bytes_ == 2) {
      load_vector<uint16_t>();
    } else if (vector_loads_) {
      load_vector<uint32_t>();
    } else if (bytes_ == 4) {
      load_scalars<uint32_t>();
    } else if (bytes_ == 2) {
      load_scalars<uint16_t>();
    } else {
      load_scalars<uint8_t>();
    }
  }
  HT_DEVICE void store(hw::SharedAddress table) const {
    HT_UNROLL
    for (uint32_t i = 0; i < kRows; ++i) {
      if (share_.has(i, step_)) store_row(table + share_.at(i) * Stages::kScaleRowBytes, i);
    }
  }

 private:
  static constexpr uint32_t kScales = Stages::kSlots / kSlotsPerScale;  // of a row of a stage
  static constexpr uint32_t kUnit = Stages::kSlotDepth * kSlotsPerScale;
  using Share = Sm90StagingShare<Stages::kRows>;
  static constexpr uint32_t kRows = Share::kEach;
  static_assert(Stages::kSlots % kSlotsPerScale == 0);

  // The group of a scale, or of the one before this stage. K is counted in units of a scale; the
  // group is the middle of the unit times the reciprocal of a group's units: the error, 2^-23 of
  // the quotient, is less than half a unit while there are fewer than 2^22 of them.
  HT_DEVICE uint32_t group_of(uint32_t scale) const {
    const uint32_t unit = step_ * kScales + scale;
    return group_of_unit(unit < last_ ? unit : last_);
  }
  HT_DEVICE uint32_t group_before() const {
    constexpr uint32_t kBack = (Stages::kKGroups - 1) * kScales + 1;
    const uint32_t unit = step_ * kScales;
    return group_of_unit(unit < kBack ? 0 : unit - kBack);
  }
  HT_DEVICE uint32_t group_of_unit(uint32_t unit) const {
    return static_cast<uint32_t>((static_cast<float>(unit) + 0.5f) * groups_);
  }

  template <class Scale>
  HT_DEVICE void load_scalars() {
    HT_UNROLL
    for (uint32_t s = 0; s <= kScales; ++s) {
      const int64_t offset = (s == 0 ? group_before() : group_of(s - 1)) * p_.weight.scale_step;
      HT_UNROLL
      for (uint32_t i = 0; i < kRows; ++i) {
        if (!share_.has(i, step_)) continue;
        raw_[i][s] = hw::load_global(reinterpret_cast<const Scale*>(scales_[i] + offset));
      }
    }
  }
  // Vector loads of consecutive scales.
  template <class Scale>
  HT_DEVICE void load_vector() {
    if constexpr (kScales > 1) {
      constexpr uint32_t kWords = kScales * sizeof(Scale) / 4, kEach = kWords < 4 ? kWords : 4;
      using Words = hw::Vector<uint32_t, kEach>;
      const uint32_t first = step_ * kScales * sizeof(Scale),
                     before = group_before() * sizeof(Scale);
      HT_UNROLL
      for (uint32_t i = 0; i < kRows; ++i) {
        if (!share_.has(i, step_)) continue;
        raw_[i][0] = hw::load_global(reinterpret_cast<const Scale*>(scales_[i] + before));
        HT_UNROLL
        for (uint32_t w = 0; w < kWords; w += kEach) {
          const auto words =
              hw::load_global(reinterpret_cast<const Words*>(scales_[i] + (first + w * 4)));
          HT_UNROLL
          for (uint32_t e = 0; e < kEach; ++e) raw_[i][1 + w + e] = words[e];
        }
      }
    }
  }
  // Zero points are bytes, four to a word.
  using ZeroPoints = hw::Vector<uint32_t, (kScales + 3) / 4>;
  HT_DEVICE ZeroPoints load_zeros(uint32_t i) const {
    ZeroPoints zeros{};
    HT_UNROLL
    for (uint32_t s = 0; s < kScales; ++s) zeros[s / 4] |= kInt4Zero << 8 * (s % 4);
    if (!Stages::kZeros || zeros_[i] == nullptr) return zeros;
    if constexpr (kScales % 4 == 0) {
      if (vector_zeros_) {
        return hw::load_global(reinterpret_cast<const ZeroPoints*>(zeros_[i] + step_ * kScales));
      }
    }
    zeros = {};
    HT_UNROLL
    for (uint32_t s = 0; s < kScales; ++s) {
      const uint32_t zero = hw::load_global(zeros_[i] + group_of(s) * p_.weight.zero_step);
      zeros[s / 4] |= zero << 8 * (s % 4);
    }
    return zeros;
  }

  // Decodes the raw scales; the switch over their format is outside the loops.
  HT_DEVICE void decode(uint32_t i, float (&scales)[kScales + 1]) const {
    const auto each = [&](const auto& value) {
      HT_UNROLL
      for (uint32_t s = 0; s <= kScales; ++s) scales[s] = value(raw_[i][s]);
    };
    const auto each_half = [&](const auto& value) {
      if (!vector_loads_) return each(value);
      scales[0] = value(raw_[i][0]);
      HT_UNROLL
      for (uint32_t s = 0; s < kScales; ++s) {
        scales[s + 1] = value(raw_[i][1 + s / 2] >> 16 * (s % 2) & 0xffff);
      }
    };
    const Format format = p_.weight.scale_format;
    if (format == Format::bf16) {
      each_half([](uint32_t raw) { return std::bit_cast<float>(raw << 16); });
    } else if (format == Format::f16) {
      each_half([](uint32_t raw) { return hw::cvt_f32_f16(static_cast<uint16_t>(raw)); });
    } else if (format == Format::f32) {
      each([](uint32_t raw) { return std::bit_cast<float>(raw); });
    } else {
      each([&](uint32_t raw) { return decode_scale(format, raw); });
    }
  }
  // Bound for normal numbers: twice the bits (which drops the sign) less the bits of the smallest
  // normal number.
  static constexpr uint32_t kNormal = 0xfe000000;
  HT_DEVICE static uint32_t magnitude(float scale) {
    return 2 * std::bit_cast<uint32_t>(scale) - 0x01000000;
  }
  template <bool kAllNormal>
  HT_DEVICE static float unit_of(float scale) {
    const uint32_t m = (std::bit_cast<uint32_t>(scale) & 0x007fffffu) | 0x3f800000u;
    return kAllNormal || magnitude(scale) < kNormal ? std::bit_cast<float>(m) : 1.0f;
  }
  // The BF16 power of two in the upper half-word.
  template <bool kAllNormal>
  HT_DEVICE static uint32_t power_of(float scale) {
    return kAllNormal || magnitude(scale) < kNormal ? std::bit_cast<uint32_t>(scale) & 0xff800000u
                                                    : hw::cvt_bf16x2(scale, scale) & 0xffff0000u;
  }
  // a / b of two units, rounded to nearest: the steps of a division without its checks for special
  // operands.
  HT_DEVICE static float quotient(float a, float b) {
    float r = hw::rcp_approx_ftz(b);
    r = hw::fma(hw::fma(-b, r, 1.0f), r, r);
    const float q = a * r;
    return hw::fma(hw::fma(-b, q, a), r, q);
  }
  HT_DEVICE void store_row(hw::SharedAddress row, uint32_t i) const {
    const ZeroPoints zeros = load_zeros(i);
    float scales[kScales + 1];
    decode(i, scales);
    uint32_t largest = 0;
    HT_UNROLL
    for (const float scale : scales) {
      const uint32_t m = magnitude(scale);
      largest = m > largest ? m : largest;
    }
    if (hw::vote_all(largest < kNormal)) {
      store_slots<true>(row, scales, zeros);
    } else {
      store_slots<false>(row, scales, zeros);
    }
  }
  template <bool kAllNormal>
  HT_DEVICE static void store_slots(hw::SharedAddress row, const float (&scales)[kScales + 1],
                                    const ZeroPoints& zeros) {
    constexpr uint32_t kSlots = Stages::kSlots;
    uint32_t words[2 * kSlots];
    float unit = unit_of<kAllNormal>(scales[0]);
    HT_UNROLL
    for (uint32_t s = 0; s < kScales; ++s) {
      const float scale = scales[s + 1], own = unit_of<kAllNormal>(scale);
      const uint32_t zero =
          hw::prmt(zeros[s / 4], 0xc3, 0x5540 + s % 4);  // 0xc300 + the zero point
      HT_UNROLL
      for (uint32_t i = s * kSlotsPerScale; i < (s + 1) * kSlotsPerScale; ++i) {
        const float factor = i == s * kSlotsPerScale ? quotient(unit, own) : 1.0f;
        words[2 * i] = std::bit_cast<uint32_t>(factor);
        words[2 * i + 1] = power_of<kAllNormal>(scale) | zero;
      }
      unit = own;
    }
    HT_UNROLL
    for (uint32_t w = 0; w < 2 * kSlots; w += 4) {
      hw::store_shared(row + w * 4,
                       hw::Words4{{words[w], words[w + 1], words[w + 2], words[w + 3]}});
    }
    hw::store_shared(row + Stages::kLastUnit, hw::Words4{{std::bit_cast<uint32_t>(unit)}});
  }

  const GpuGemm& p_;
  const Share share_;
  const uint32_t last_;  // last unit of K
  const uint8_t* scales_[kRows];
  const uint8_t* zeros_[kRows] = {};
  float groups_;
  uint32_t step_ = 0, bytes_;
  bool vector_loads_, vector_zeros_;
  uint32_t raw_[kRows][kScales + 1] = {};
};

}  // namespace halftone::gemm
