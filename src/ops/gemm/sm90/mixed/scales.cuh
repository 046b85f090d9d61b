// Scale staging of the mixed-input GEMM on sm_90a: three warps beside the TMA producer load the
// scales of every stage of W, decode them and write them to shared memory, for the weights'
// elements or for the accumulator.
//
// Such a warp only has the issue slots that the consumers leave, and no other warp hides its
// latencies: it must get by with a few hundred instructions a stage. So whatever is constant along
// K, row addresses above all, is computed once a tile; there are no divisions and no divergent
// branches, and all loads of a stage are issued before the first use. Rows beyond the last, and K
// beyond its end, take the last scale: what they multiply is zero, or is read by nobody.
//
// Every instruction of these warps takes an issue slot from the consumer warps on the same
// scheduler, and all consumers wait for the slowest. So each staging warp does a third of every
// stage, not every third stage: 32 rows, and in rotation the remaining 32.
#pragma once
#include "hw/warp.h"
#include "ops/gemm/sm90/mixed/stages.h"
#include "ops/gemm/sm90/tile.cuh"

namespace halftone::gemm {

// The rows (or columns) that a lane stages: `kCount` in groups of 32.
template <uint32_t kCount>
struct Sm90StagingShare {
  static constexpr uint32_t kWarps = 3, kEach = kCount > 32 * kWarps ? 2 : 1;
  static_assert(kCount <= 32 * (kWarps + 1));

  uint32_t warp;
  HT_DEVICE uint32_t at(uint32_t i) const {
    return (i == 0 ? warp : kWarps) * 32 + hw::lane_index();
  }
  // Whether the lane stages its i-th row in a step; the same for all lanes of a warp.
  HT_DEVICE bool has(uint32_t i, uint32_t step) const {
    return i == 0 ? kCount >= 32 * kWarps || warp < kCount / 32 : step % kWarps == warp;
  }
};

// Scales that multiply the weights' elements: a BF16 pair for every scale of the 128 rows.
template <class Stages, ScaleMode kScales>
class Sm90ElementScaleStaging {
 public:
  HT_DEVICE Sm90ElementScaleStaging(const Sm90Params& params, const Sm90Tile& tile, uint32_t warp)
      : share_{warp},
        last_(params.gemm.k / kWordDepth - 1),
        halfwords_(kScales == ScaleMode::ue8m0 && params.gemm.k % kWordDepth != 0) {
    const GpuGemm& p = params.gemm;
    const uint8_t* start = scale_address(p.weight, tile.source[0], tile.n0, 0);
    step_ = scale_address(p.weight, tile.source[0], tile.n0, kWordDepth) - start;
    uintptr_t addresses = 0;
    HT_UNROLL
    for (uint32_t i = 0; i < kRowsOfLane; ++i) {
      const uint32_t r = share_.at(i), row = tile.output(r);
      row_[i] = scale_address(p.weight, tile.source_of(r), row < p.n ? row : p.n - 1, 0);
      addresses |= reinterpret_cast<uintptr_t>(row_[i]);
    }
    vector_loads_ = step_ == 4 && addresses % sizeof(Words) == 0 && p.k % Stages::kDepth == 0;
    // Rows whose count of scales is no multiple of four start at any even byte.
    if (halfwords_) last_ = p.k / (kWordDepth / 2) - 1;
  }

  // All scales of a step, four to a word; they are consecutive in every layout.
  HT_DEVICE void load(uint32_t step) {
    current_ = step;
    const uint32_t first = step * Stages::kDepth / kWordDepth;
    if (vector_loads_) {
      HT_UNROLL
      for (uint32_t i = 0; i < kRowsOfLane; ++i) {
        if (!share_.has(i, step)) continue;
        words_[i] = hw::load_global(reinterpret_cast<const Words*>(row_[i] + first * 4));
      }
      return;
    }
    if (halfwords_) return load_halfwords(first * 2);
    HT_UNROLL
    for (uint32_t f = 0; f < kScaleWords; ++f) {
      const int64_t offset = (first + f < last_ ? first + f : last_) * step_;
      HT_UNROLL
      for (uint32_t i = 0; i < kRowsOfLane; ++i) {
        if (!share_.has(i, step)) continue;
        words_[i][f] = hw::load_global(reinterpret_cast<const uint32_t*>(row_[i] + offset));
      }
    }
  }
  HT_DEVICE void store(hw::SharedAddress table) const {
    HT_UNROLL
    for (uint32_t i = 0; i < kRowsOfLane; ++i) {
      if (!share_.has(i, current_)) continue;
      const hw::SharedAddress row = table + share_.at(i) * Stages::kScaleRowBytes;
      uint32_t pairs[Stages::kSlots];
      decode_pairs(words_[i], pairs);
      HT_UNROLL
      for (uint32_t s = 0; s < Stages::kSlots; s += 4) {
        hw::store_shared(row + s * 4,
                         hw::Words4{{pairs[s], pairs[s + 1], pairs[s + 2], pairs[s + 3]}});
      }
    }
  }

 private:
  HT_DEVICE void load_halfwords(uint32_t first) {
    HT_UNROLL
    for (uint32_t f = 0; f < 2 * kScaleWords; ++f) {
      const uint32_t offset = (first + f < last_ ? first + f : last_) * 2;
      HT_UNROLL
      for (uint32_t i = 0; i < kRowsOfLane; ++i) {
        if (!share_.has(i, current_)) continue;
        const uint32_t two = hw::load_global(reinterpret_cast<const uint16_t*>(row_[i] + offset));
        uint32_t& word = words_[i][f / 2];
        word = f % 2 == 0 ? two : word | two << 16;
      }
    }
  }

  using Policy = typename Stages::Policy;
  using Share = Sm90StagingShare<Stages::kRows>;
  static constexpr uint32_t kRowsOfLane = Share::kEach, kScaleWords = Stages::kSlots / 4;
  static constexpr uint32_t kWordDepth = 4 * Stages::kSlotDepth;
  using Words = hw::Vector<uint32_t, kScaleWords>;

  HT_DEVICE static void decode_pairs(const Words& words, uint32_t (&pairs)[Stages::kSlots]) {
    if constexpr (kScales == ScaleMode::e4m3_block) {
      HT_UNROLL
      for (uint32_t w = 0; w < kScaleWords; w += 2) {
        uint32_t eight[8];
        Policy::pairs_of({words[w], words[w + 1]}, eight);
        HT_UNROLL
        for (uint32_t i = 0; i < 8; ++i) pairs[w * 4 + i] = eight[i];
      }
    } else {
      // 2^(code - 127). 0 is subnormal, 255 NaN: both set the upper mantissa bit.
      HT_UNROLL
      for (uint32_t i = 0; i < Stages::kSlots; ++i) {
        const uint32_t raw = words[i / 4] >> 8 * (i % 4) & 0xff;
        pairs[i] = twice(raw << 7 | (raw - 1 < 254 ? 0 : 0x40));
      }
    }
  }

  const Share share_;
  const uint8_t* row_[kRowsOfLane];
  uint32_t current_ = 0;
  int64_t step_;   // bytes from one word of four scales to the next
  uint32_t last_;  // the last word, or half-word
  const bool halfwords_;
  bool vector_loads_;  // the words of a stage are one vector load
  Words words_[kRowsOfLane];
};

// Scales that multiply the accumulator: of rows of W and of rows of x; and the zero points of INT4.
template <class Stages, ScaledSide kFactors>
class Sm90AccumulatorScaleStaging {
 public:
  HT_DEVICE Sm90AccumulatorScaleStaging(const Sm90Params& params, const Sm90Tile& tile,
                                        uint32_t warp)
      : p_(params.gemm), share_{warp}, x_share_{warp}, last_((params.gemm.k - 1) / kUnit) {
    zeros_ = Stages::kZeros && tile.source[0].zeros != nullptr;
    HT_UNROLL
    for (uint32_t i = 0; i < kRows; ++i) {
      const uint32_t r = share_.at(i);
      const uint32_t row = kFactors == ScaledSide::x ? tile.n0 : tile.output(r);
      const GpuSource source = tile.source_of(kFactors == ScaledSide::x ? 0 : r);
      const uint32_t own = row < p_.n ? row : p_.n - 1;
      if (p_.scaled) scale_[i] = scale_address(p_.weight, source, own, 0);
      if constexpr (Stages::kZeros) {
        if (zeros_) zero_[i] = source.zeros + block_of(source, own) * p_.weight.zero_row;
      }
    }
    HT_UNROLL
    for (uint32_t i = 0; i < kColumns; ++i) {
      if (kFactors == ScaledSide::weight) break;
      const uint32_t m = tile.m0 + x_share_.at(i);
      x_[i] = p_.x_scales + (m < tile.end ? m : tile.end - 1) * p_.x_scale_row;
    }
    // Groups are multiples of 64 elements; without groups everything is in the first.
    weight_reciprocal_ =
        p_.weight.group > 0 ? 1.0f / static_cast<float>(p_.weight.group / kUnit) : 0;
    x_reciprocal_ = p_.x_group > 0 ? 1.0f / static_cast<float>(p_.x_group / kUnit) : 0;
  }

  // Loads the scales of a step. Zero points, which few weights have, are loaded late because
  // registers are short.
  HT_DEVICE void load(uint32_t step) {
    step_ = step;
    const uint32_t k0 = step * Stages::kDepth;
    const uint32_t bytes = p_.scaled ? scale_bytes(p_.weight.scale_format) : 0;
    if (bytes == 4) {
      load_scales<uint32_t>(k0);
    } else if (bytes == 2) {
      load_scales<uint16_t>(k0);
    } else if (bytes == 1) {
      load_scales<uint8_t>(k0);
    }
    if constexpr (kFactors != ScaledSide::weight) {
      HT_UNROLL
      for (uint32_t s = 0; s < kSlots; ++s) {
        const uint32_t group = group_of(k0, s, x_reciprocal_);
        HT_UNROLL
        for (uint32_t i = 0; i < kColumns; ++i) {
          if (x_share_.has(i, step)) column_scales_[s][i] = hw::load_global(x_[i] + group);
        }
      }
    }
  }

  HT_DEVICE void store(hw::SharedAddress table) {
    decode();
    if constexpr (kFactors != ScaledSide::x) {
      HT_UNROLL
      for (uint32_t i = 0; i < kRows; ++i) {
        if (!share_.has(i, step_)) continue;
        hw::store_shared(table + share_.at(i) * Stages::kScaleRowBytes, row_scales_[i]);
      }
    }
    if constexpr (Stages::kZeros) {
      HT_UNROLL
      for (uint32_t i = 0; i < Share::kEach; ++i) {
        if (!share_.has(i, step_)) continue;
        hw::Words4 zeros{{kInt4Zero, kInt4Zero, kInt4Zero, kInt4Zero}};
        if (zeros_) {
          HT_UNROLL
          for (uint32_t s = 0; s < kSlots; ++s) {
            const int64_t offset =
                group_of(step_ * Stages::kDepth, s, weight_reciprocal_) * p_.weight.zero_step;
            zeros[s] = hw::load_global(zero_[i % kRows] + offset);
          }
        }
        HT_UNROLL
        for (uint32_t s = 0; s < kSlots; ++s) zeros[s] = Stages::Policy::pair_of(zeros[s]);
        hw::store_shared(table + (share_.at(i) * Stages::kScaleRowBytes + kSlots * 4), zeros);
      }
    }
    if constexpr (kFactors != ScaledSide::weight) {
      HT_UNROLL
      for (uint32_t s = 0; s < kSlots; ++s) {
        const float of_tile = kFactors == ScaledSide::x ? row_scales_[0][s] : 1.0f;
        HT_UNROLL
        for (uint32_t i = 0; i < kColumns; ++i) {
          if (!x_share_.has(i, step_)) continue;
          const uint32_t place = s * Stages::kColumns + Stages::x_scale_index(x_share_.at(i));
          hw::store_shared(table + (Stages::kXScales + place * 4), of_tile * column_scales_[s][i]);
        }
      }
    }
  }

 private:
  static constexpr uint32_t kSlots = Stages::kSlots, kUnit = 64;
  using Share = Sm90StagingShare<Stages::kRows>;
  using XShare = Sm90StagingShare<kFactors == ScaledSide::weight ? 32 : Stages::kColumns>;
  static constexpr uint32_t kRows = kFactors == ScaledSide::x ? 1 : Share::kEach;
  static constexpr uint32_t kColumns = XShare::kEach;
  // The rows of W of a tile have one scale each, or share one; zero points likewise.
  static_assert(!Stages::kZeros || kSlots == 4);

  HT_DEVICE int64_t block_of(const GpuSource& source, uint32_t row) const {
    return block_of_row(p_.weight, source.first_row + row * p_.weight.row_step);
  }
  // K in units of 64; the group is the middle of the unit times the reciprocal of a group's units:
  // the error, 2^-23 of the quotient, is less than half a unit while K is below 2^28.
  HT_DEVICE uint32_t group_of(uint32_t k0, uint32_t slot, float reciprocal) const {
    const uint32_t unit = k0 / kUnit + slot * (Stages::kSlotDepth / kUnit);
    const float middle = static_cast<float>(unit < last_ ? unit : last_) + 0.5f;
    return static_cast<uint32_t>(middle * reciprocal);
  }
  template <class Scale>
  HT_DEVICE void load_scales(uint32_t k0) {
    HT_UNROLL
    for (uint32_t s = 0; s < kSlots; ++s) {
      const int64_t offset = group_of(k0, s, weight_reciprocal_) * p_.weight.scale_step;
      HT_UNROLL
      for (uint32_t i = 0; i < kRows; ++i) {
        if (!share_.has(i, step_)) continue;
        const uint32_t raw = hw::load_global(reinterpret_cast<const Scale*>(scale_[i] + offset));
        row_scales_[i][s] = std::bit_cast<float>(raw);
      }
    }
  }
  // Decodes the raw scales; the switch over their format is outside the loops.
  HT_DEVICE void decode() {
    const auto each = [&](const auto& value) {
      HT_UNROLL
      for (uint32_t i = 0; i < kRows; ++i) {
        HT_UNROLL
        for (uint32_t s = 0; s < kSlots; ++s) {
          row_scales_[i][s] = value(std::bit_cast<uint32_t>(row_scales_[i][s]));
        }
      }
    };
    const Format format = p_.weight.scale_format;
    if (!p_.scaled) {
      each([](uint32_t) { return 1.0f; });
    } else if (format == Format::bf16) {
      each([](uint32_t raw) { return std::bit_cast<float>(raw << 16); });
    } else if (format == Format::f16) {
      each([](uint32_t raw) { return hw::cvt_f32_f16(static_cast<uint16_t>(raw)); });
    } else if (format != Format::f32) {
      each([&](uint32_t raw) { return decode_scale(format, raw); });
    }
  }

  const GpuGemm& p_;
  const Share share_;
  const XShare x_share_;
  const uint32_t last_;  // last unit of K
  const uint8_t* scale_[kRows] = {};
  const uint8_t* zero_[Stages::kZeros ? kRows : 1] = {};
  const float* x_[kColumns] = {};
  float weight_reciprocal_, x_reciprocal_;
  uint32_t step_ = 0;
  bool zeros_;
  hw::Vector<float, kSlots> row_scales_[kRows] = {};
  float column_scales_[kSlots][kColumns] = {};
};

}  // namespace halftone::gemm
