// The wgmma accumulator of a warpgroup in the 4-bit small-M GEMMs on sm_90a, 64 rows of W by
// kColumns of K-permuted x (small_m/k_permute.cuh): one accumulation over K, or with scales that
// multiply the accumulator a promotion interval per scale group (128 or 32 elements), promoted into
// an FP32 sum.
//
// Weights are dequantised while the tensor cores run the batch before: a batch is four MMAs, an
// octet pair of both rows of a lane, and there are registers for two.
#pragma once
#include "hw/fence.h"
#include "hw/mma/wgmma.h"
#include "ops/gemm/sm80/operand.h"
#include "ops/gemm/sm90/small_m/k_permute.cuh"

namespace halftone::gemm {

template <GpuCode kCode, class Stages>
struct Sm90SmallMW4Accumulator {
  using Stage = Stages;
  using Permute = Sm90KPermute<kCode, Stage>;
  static constexpr ScaleMode kScales = Stage::kScaleMode;
  static constexpr uint32_t kColumns = Stage::kWidth;
  using Policy = CodePolicy<kCode>;
  using Accumulator = float[kColumns / 2];
  static constexpr bool kPromotes = kScales == ScaleMode::group_sums || Stage::kGroup32;

  const uint32_t lane = hw::lane_index(), quad = lane % 4;
  const uint32_t row_of_16;  // of the lane within the warp's 16; its other row is 8 behind
  const uint32_t row;        // of the lane within the tile; the other is kRowDistance behind
  const uint32_t scales_at;  // offset in a stage of the scale of the first group of the first row
  uint32_t a[2][4][4] = {};
  Accumulator accumulator = {}, promoted = {};
  Accumulator second;  // with groups of 32, a second accumulator in flight beside the first

  HT_DEVICE explicit Sm90SmallMW4Accumulator(uint32_t of_warp)
      : row_of_16(Permute::row_in_eight(lane / 4)),
        row(Stage::first_row(of_warp) + row_of_16),
        scales_at(Stage::scale_of(of_warp, row_of_16, 0)) {}

  HT_DEVICE uint32_t scale_of(uint32_t half, uint32_t group) const {
    return scales_at + (Stage::scale_of(0, 8 * half, group) - Stage::scale_of(0, 0, 0));
  }

  // 32 packed values of each of the lane's rows: chunk 0 or 1 of a line. A scale pair for each 16
  // of them.
  struct Packed {
    hw::Words4 of[2];
    uint32_t pairs[2][2];
  };
  HT_DEVICE Packed load_packed(hw::SharedAddress stage, hw::SharedAddress scales, uint32_t chunk,
                               hw::Site site = hw::Site::current()) const {
    Packed packed;
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t r = row + Stage::kRowDistance * half,
                     fused_tile = (chunk * 4 + quad) ^ row % 8;
      packed.of[half] =
          hw::load_shared<hw::Words4>(stage + (r * Stage::kLine + fused_tile * 16), site);
      uint32_t(&pairs)[2] = packed.pairs[half];
      if constexpr (kScales == ScaleMode::e4m3_block) {
        const hw::SharedAddress at = scales + (r * Stage::kScalePitch + chunk * 8 + quad * 2);
        Policy::pairs_of(hw::load_shared<uint16_t>(at, site), pairs);
      } else if constexpr (kScales == ScaleMode::ue8m0) {
        const hw::SharedAddress at = scales + (r * Stage::kScalePitch + chunk * 4 + quad);
        const uint32_t exponent = hw::load_shared<uint8_t>(at, site);
        pairs[0] = pairs[1] = twice((exponent << 7) + Policy::kUnscaled % 65536 - 0x3f80);
      } else {
        pairs[0] = pairs[1] = Policy::kUnscaled;
      }
    }
    return packed;
  }
  HT_DEVICE void dequantise(const Packed& packed, uint32_t batch, uint32_t f) {
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      HT_UNROLL
      for (uint32_t o = 0; o < 2; ++o) {
        uint32_t pairs[1][4];
        Policy::expand({packed.of[half][batch * 2 + o]}, packed.pairs[half][batch], pairs);
        HT_UNROLL
        for (uint32_t i = 0; i < 4; ++i) a[f][i][o * 2 + half] = pairs[0][i];
      }
    }
  }
  HT_DEVICE void hold(uint32_t f, hw::Site site = hw::Site::current()) {
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) hw::hold_registers(a[f][i], site);
  }
  // Starts the MMAs of the batch in fragment buffer `f`.
  HT_DEVICE void start_mma(hw::SharedAddress stage, uint32_t chunk, uint32_t batch, uint32_t f,
                           bool fresh, Accumulator& sums, hw::Site site = hw::Site::current()) {
    constexpr tile::SharedTile x_tile{tile::Major::k, tile::Swizzle::b128, 16, kColumns, 64};
    static_assert(x_tile.valid());
    hold(f, site);
    hw::wgmma_fence(site);
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t slab = chunk * 2 + Permute::slab_of(i), k = Permute::sixteen_of(batch, i) * 16;
      const hw::SharedAddress at = stage + (Stage::kX + slab * Stage::kSlab);
      const auto x = tile::WgmmaDescriptor::of(x_tile, at.value).advanced(x_tile.advance(0, k));
      hw::wgmma<Policy::kType>(sums, a[f][i], x, !fresh || i > 0, site);
    }
    hw::wgmma_commit(site);
  }

  // A stage without promotion; `scales`: where those of the stage lie. `before` is called once the
  // MMAs of the stage before have retired.
  template <class Before>
  HT_DEVICE void accumulate_stage(hw::SharedAddress stage, hw::SharedAddress scales,
                                  const Before& before) {
    Packed packed = load_packed(stage, scales, 0);
    HT_ROLLED  // unrolled, ptxas serialises the MMAs
        for (uint32_t chunk = 0; chunk < 2; ++chunk) {
      dequantise(packed, 0, 0);
      start_mma(stage, chunk, 0, 0, false, accumulator);
      hw::wgmma_wait<1>();
      hold(1);
      if (chunk == 0) before();
      dequantise(packed, 1, 1);
      start_mma(stage, chunk, 1, 1, false, accumulator);
      packed = load_packed(stage, scales, 1);
      hw::wgmma_wait<1>();
      hold(0);
    }
  }
  HT_DEVICE void wait_all(hw::Site site = hw::Site::current()) {
    hw::wgmma_wait<0>(site);
    hw::hold_registers(accumulator, site);
    hold(0, site), hold(1, site);
  }

  // UE8M0 scales that BF16 weights cannot hold: the lanes of a quad one after the other, with the
  // other lanes' weights zeroed, so that each partial sum has a single scale. No MMA is in flight.
  HT_DEVICE void accumulate_per_lane(hw::SharedAddress stage, hw::SharedAddress scales,
                                     hw::Site site = hw::Site::current()) {
    HT_ROLLED
    for (uint32_t source = 0; source < 8; ++source) {
      const uint32_t chunk = source / 4;
      Packed packed = load_packed(stage, scales, chunk, site);
      Accumulator own;
      HT_UNROLL
      for (uint32_t batch = 0; batch < 2; ++batch) {
        packed.pairs[0][batch] = packed.pairs[1][batch] = Policy::kUnscaled;
        dequantise(packed, batch, 0);
        HT_UNROLL
        for (uint32_t i = 0; i < 16; ++i) {
          uint32_t& pair = a[0][i / 4][i % 4];
          pair = quad == source % 4 ? pair : 0;
        }
        start_mma(stage, chunk, batch, 0, batch == 0, own, site);
        hw::wgmma_wait<0>(site);
        hw::hold_registers(own, site);
        hold(0, site);
      }
      HT_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        const hw::SharedAddress at =
            scales + ((row + Stage::kRowDistance * half) * Stage::kScalePitch + source);
        promote(own, half, decode_ue8m0(hw::load_shared<uint8_t>(at, site)));
      }
    }
  }

  // The first batch of a group of 128 elements, a chunk of each lane.
  HT_DEVICE void dequantise_first(hw::SharedAddress stage, uint32_t group) {
    dequantise(load_packed(stage, stage, group), 0, 0);
  }
  // A group whose first batch is dequantised: accumulated, scaled and promoted. `next` dequantises
  // the first batch of the next group, if there is one.
  template <class Next>
  HT_DEVICE void accumulate_group(hw::SharedAddress stage, uint32_t group, const Next& next,
                                  hw::Site site = hw::Site::current()) {
    float scale[2];
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      scale[half] = hw::load_shared<float>(stage + scale_of(half, group), site);
    }
    start_mma(stage, group, 0, 0, true, accumulator, site);
    dequantise(load_packed(stage, stage, group, site), 1, 1);
    start_mma(stage, group, 1, 1, false, accumulator, site);
    hw::wgmma_wait<1>(site);
    hold(0, site);
    next();
    hw::wgmma_wait<0>(site);
    hw::hold_registers(accumulator, site);
    hold(1, site);
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) promote(accumulator, half, scale[half]);
  }
  // Groups of 32 elements, four to a chunk of 128. While the MMAs of one group run, the next
  // group's weights are dequantised and the previous accumulator is promoted.
  HT_DEVICE void accumulate_group32s(hw::SharedAddress stage, uint32_t chunk,
                                     hw::Site site = hw::Site::current()) {
    uint32_t packed[2][4];
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      HT_UNROLL
      for (uint32_t o = 0; o < 4; ++o) {
        const uint32_t r = row + Stage::kRowDistance * half, fused_tile = (chunk * 4 + o) ^ row % 8;
        packed[half][o] = hw::load_shared<uint32_t>(
            stage + (r * Stage::kLine + fused_tile * 16 + quad * 4), site);
      }
    }
    HT_UNROLL
    for (uint32_t o = 0; o < 4; ++o) {
      const uint32_t f = o % 2;
      HT_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        uint32_t pairs[1][4];
        Policy::expand({packed[half][o]}, Policy::kUnscaled, pairs);
        HT_UNROLL
        for (uint32_t i = 0; i < 4; ++i) a[f][i / 2][i % 2 * 2 + half] = pairs[0][i];
      }
      start_group32_mma(stage, chunk, o, f == 0 ? accumulator : second, site);
      if (o == 0) continue;
      hw::wgmma_wait<1>(site);
      promote_group32(stage, chunk * 4 + o - 1, f == 0 ? second : accumulator, site);
    }
    hw::wgmma_wait<0>(site);
    promote_group32(stage, chunk * 4 + 3, second, site);
  }
  HT_DEVICE void start_group32_mma(hw::SharedAddress stage, uint32_t chunk, uint32_t o,
                                   Accumulator& sums, hw::Site site) {
    constexpr tile::SharedTile x_tile{tile::Major::k, tile::Swizzle::b128, 16, kColumns, 64};
    const hw::SharedAddress at = stage + (Stage::kX + (chunk * 2 + o / 2) * Stage::kSlab);
    hold_group32(o % 2, site);
    hw::wgmma_fence(site);
    HT_UNROLL
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t k = (o % 2 * 2 + i) * 16;
      const auto x = tile::WgmmaDescriptor::of(x_tile, at.value).advanced(x_tile.advance(0, k));
      hw::wgmma<Policy::kType>(sums, a[o % 2][i], x, i > 0, site);
    }
    hw::wgmma_commit(site);
  }
  HT_DEVICE void hold_group32(uint32_t f, hw::Site site) {
    hw::hold_registers(a[f][0], site), hw::hold_registers(a[f][1], site);
  }
  HT_DEVICE void promote_group32(hw::SharedAddress stage, uint32_t group, Accumulator& sums,
                                 hw::Site site) {
    hw::hold_registers(sums, site);
    hold_group32(group % 2, site);
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      const hw::SharedAddress at = stage + scale_of(half, group);
      promote(sums, half, hw::load_shared<float>(at, site));
    }
  }
  // Promotes one of the lane's two rows.
  HT_DEVICE void promote(const Accumulator& sums, uint32_t half, float scale) {
    HT_UNROLL
    for (uint32_t j = 0; j < kColumns / 8; ++j) {
      HT_UNROLL
      for (uint32_t e = 0; e < 2; ++e) {
        float& sum = promoted[j * 4 + half * 2 + e];
        sum = hw::fma(sums[j * 4 + half * 2 + e], scale, sum);
      }
    }
  }

  // The sum of row `half` of the lane and column i / 2 * 8 + quad * 2 + i % 2.
  HT_DEVICE float sum(uint32_t half, uint32_t i) const {
    const uint32_t at = i / 2 * 4 + half * 2 + i % 2;
    if (kPromotes) return promoted[at];
    return kScales == ScaleMode::ue8m0
               ? accumulator[at] + promoted[at]  // what accumulate_per_lane added
               : accumulator[at];
  }
  // The sums to shared memory, [row of x][row of W].
  HT_DEVICE void store(hw::SharedAddress to, hw::Site site = hw::Site::current()) const {
    HT_UNROLL
    for (uint32_t j = 0; j < kColumns / 8; ++j) {
      HT_UNROLL
      for (uint32_t e = 0; e < 4; ++e) {
        const uint32_t column = j * 8 + quad * 2 + e % 2;
        hw::store_shared(
            to + (column * Stage::kAccumulatorRow + (row + e / 2 * Stage::kRowDistance) * 4),
            sum(e / 2, j * 2 + e % 2), site);
      }
    }
  }
};

}  // namespace halftone::gemm
