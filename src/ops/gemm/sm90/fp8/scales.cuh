// Scale staging of the FP8 GEMMs on sm_90a: three warps beside the TMA producer load the scales of
// rows of x and of row groups of W for every 128 elements of K, and write them to shared memory.
// What such a warp may cost, and why each does a part of every stage, see mixed/scales.cuh.
#pragma once
#include "hw/thread.h"
#include "hw/warp.h"
#include "ops/gemm/sm90/tile.cuh"

namespace halftone::gemm {

// `Stages` as in fp8/stages.h. The scales of kBatch stages are loaded at a time: as they are far
// apart, each load takes as long as a stage of the largest tiles does, and several of small ones.
// Of those of W a lane has one, of one stage of the batch.
template <class Stages, uint32_t kBatch = 1>
class Sm90Fp8Scales {
  static_assert(kBatch * Stages::kRowGroups <= 32);

 public:
  static constexpr uint32_t kWarps = 3;

  HT_DEVICE Sm90Fp8Scales(const Sm90Params& params, const Sm90Tile& tile, uint32_t warp)
      : p_(params.gemm),
        warp_(warp),
        one_row_group_(params.factors == ScaledSide::x),
        m0_(tile.m0),
        last_row_(tile.end - 1) {
    last_ = (p_.k - 1) / kUnit;
    const uint32_t r = hw::lane_index() % Stages::kRowGroups * Stages::kRowGroup,
                   row = tile.output(r);
    if (p_.scaled) {
      weight_scales_ = scale_address(p_.weight, tile.source_of(r), row < p_.n ? row : p_.n - 1, 0);
    }
    // Groups are multiples of 128; without groups everything is in the first.
    weight_reciprocal_ =
        p_.weight.group > 0 ? 1.0f / static_cast<float>(p_.weight.group / kUnit) : 0;
    x_reciprocal_ = p_.x_group > 0 ? 1.0f / static_cast<float>(p_.x_group / kUnit) : 0;
    HT_UNROLL
    for (uint32_t a = 0; a < kBatch; ++a) {
      HT_UNROLL
      for (uint32_t i = 0; i < kRowsOfLane; ++i) row_scales_[a][i] = 1;
    }
  }

  // Loads the scales, of W and of x, of the stages from unit `first` of K on.
  HT_DEVICE void load(uint32_t first) {
    load_weights(first);
    load_rows(first);
  }
  HT_DEVICE void load_weights(uint32_t first) {
    if (!p_.scaled) return;
    const uint32_t of_lane = hw::lane_index() / Stages::kRowGroups;
    const uint32_t own = kBatch == 1 ? 0 : of_lane < kBatch ? of_lane : kBatch - 1;
    raw_ = load_scale(
        p_.weight.scale_format,
        weight_scales_ + group_of(first + own, weight_reciprocal_) * p_.weight.scale_step);
  }
  HT_DEVICE void load_rows(uint32_t first) {
    if (p_.x_scales == nullptr) return;
    HT_UNROLL
    for (uint32_t a = 0; a < kBatch; ++a) {
      const float* of_group = p_.x_scales + group_of(first + a, x_reciprocal_);
      HT_UNROLL
      for (uint32_t i = 0; i < kRowsOfLane; ++i) {
        if (row_of(i) >= Stages::kXRows) continue;
        const uint32_t row = m0_ + row_of(i);
        row_scales_[a][i] =
            hw::load_global(of_group + (row < last_row_ ? row : last_row_) * p_.x_scale_row);
      }
    }
  }
  // Of stage `ahead` of the batch.
  HT_DEVICE void store(hw::SharedAddress table, uint32_t ahead = 0) const {
    const float weight_scale =
        p_.scaled ? decode_scale(p_.weight.scale_format, raw_of(ahead)) : 1.0f;
    HT_UNROLL
    for (uint32_t i = 0; i < kRowsOfLane; ++i) {
      if (row_of(i) >= Stages::kXRows) continue;
      const float of_row = row_scales_[ahead][i];
      hw::store_shared(table + row_of(i) * 4, one_row_group_ ? of_row * weight_scale : of_row);
    }
    if (warp_ == kWarps - 1 && hw::lane_index() < Stages::kRowGroups) {
      hw::store_shared(table + (Stages::kRowGroupScales + hw::lane_index() * 4),
                       one_row_group_ ? 1.0f : weight_scale);
    }
  }

 private:
  static constexpr uint32_t kUnit = Stages::kDepth;
  static constexpr uint32_t kRowsOfLane = (Stages::kXRows / 32 + kWarps - 1) / kWarps;

  HT_DEVICE uint32_t raw_of(uint32_t ahead, hw::Site site = hw::Site::current()) const {
    if constexpr (kBatch == 1) return raw_;
    const uint32_t run = hw::lane_index() % Stages::kRowGroups;
    return hw::shuffle(raw_, ahead * Stages::kRowGroups + run, 32, hw::kFullWarp, site);
  }

  // The last warp has fewer rows, and the row groups of W.
  HT_DEVICE uint32_t row_of(uint32_t i) const {
    return (i * kWarps + warp_) * 32 + hw::lane_index();
  }

  // The group is the middle of the unit times the reciprocal of a group's units: the error, 2^-23
  // of the quotient, is less than half a unit while K is below 2^28.
  HT_DEVICE uint32_t group_of(uint32_t unit, float reciprocal) const {
    const float middle = static_cast<float>(unit < last_ ? unit : last_) + 0.5f;
    return static_cast<uint32_t>(middle * reciprocal);
  }

  const GpuGemm& p_;
  const uint32_t warp_;
  const bool one_row_group_;  // all of the tile's W has one scale, which is folded into those of x
  const uint32_t m0_, last_row_;
  uint32_t last_;  // last unit of K
  const uint8_t* weight_scales_ = nullptr;
  float weight_reciprocal_, x_reciprocal_;
  uint32_t raw_ = 0;
  float row_scales_[kBatch][kRowsOfLane];
};

}  // namespace halftone::gemm
