// What multiplies the sums of 128 elements of FP8 by FP8: scales of rows of x, and of runs of rows
// of W, made by three warps beside the one that starts the copies. Of how such warps must be, and
// why each has a part of every stage, see sm90_tables.cuh.
#pragma once
#include "ops/product/sm90_fp8_stages.h"

namespace halftone::product {

class Sm90Fp8Scales {
 public:
  static constexpr uint32_t kWarps = 3;

  HT_DEVICE Sm90Fp8Scales(const Sm90Params& params, const Sm90Tile& tile, uint32_t warp)
      : p_(params.product),
        warp_(warp),
        one_run_(params.factors == Sm90Factors::columns),
        m0_(tile.m0),
        last_row_(tile.end - 1) {
    last_ = (p_.k - 1) / kUnit;
    const uint32_t r = hw::lane_index() % Stages::kRuns * Stages::kRun, row = tile.output(r);
    if (p_.scaled) {
      run_ = scale_address(p_.weight, tile.source_of(r), row < p_.n ? row : p_.n - 1, 0);
    }
    // Groups are multiples of 128; of those without any, all is the first.
    of_weight_ = p_.weight.group > 0 ? 1.0f / static_cast<float>(p_.weight.group / kUnit) : 0;
    of_x_ = p_.x_group > 0 ? 1.0f / static_cast<float>(p_.x_group / kUnit) : 0;
  }

  // What the stage that begins at unit `unit` of K needs.
  HT_DEVICE void load(uint32_t unit) {
    if (p_.scaled) {
      code_ = load_scale(p_.weight.scale_format,
                         run_ + group_of(unit, of_weight_) * p_.weight.scale_step);
    }
    if (p_.x_scales == nullptr) return;
    const float* of_group = p_.x_scales + group_of(unit, of_x_);
    HT_UNROLL
    for (uint32_t i = 0; i < kRowsOfLane; ++i) {
      if (row_of(i) >= Stages::kXRows) continue;
      const uint32_t row = m0_ + row_of(i);
      of_rows_[i] =
          hw::load_global(of_group + (row < last_row_ ? row : last_row_) * p_.x_scale_row);
    }
  }
  HT_DEVICE void store(hw::SharedAddress table) const {
    const float of_run = p_.scaled ? decode_scale(p_.weight.scale_format, code_) : 1.0f;
    HT_UNROLL
    for (uint32_t i = 0; i < kRowsOfLane; ++i) {
      if (row_of(i) >= Stages::kXRows) continue;
      hw::store_shared(table + row_of(i) * 4, one_run_ ? of_rows_[i] * of_run : of_rows_[i]);
    }
    if (warp_ == kWarps - 1 && hw::lane_index() < Stages::kRuns) {
      hw::store_shared(table + (Stages::kOfRuns + hw::lane_index() * 4), one_run_ ? 1.0f : of_run);
    }
  }

 private:
  using Stages = Sm90Fp8Stages;
  static constexpr uint32_t kUnit = Stages::kDepth;
  static constexpr uint32_t kRowsOfLane = (Stages::kXRows / 32 + kWarps - 1) / kWarps;

  // The last warp has fewer, and the runs.
  HT_DEVICE uint32_t row_of(uint32_t i) const {
    return (i * kWarps + warp_) * 32 + hw::lane_index();
  }

  // The middle of the unit by the reciprocal of a group's units: the error, 2^-23 of the quotient,
  // is less than the half unit while K is below 2^28.
  HT_DEVICE uint32_t group_of(uint32_t unit, float reciprocal) const {
    const float middle = static_cast<float>(unit < last_ ? unit : last_) + 0.5f;
    return static_cast<uint32_t>(middle * reciprocal);
  }

  const GpuProduct& p_;
  const uint32_t warp_;
  const bool one_run_;  // all of the tile's W has one scale, which joins those of x
  const uint32_t m0_, last_row_;
  uint32_t last_;  // unit of K
  const uint8_t* run_ = nullptr;
  float of_weight_, of_x_;
  uint32_t code_ = 0;
  float of_rows_[kRowsOfLane] = {1, 1, 1};
};

}  // namespace halftone::product
