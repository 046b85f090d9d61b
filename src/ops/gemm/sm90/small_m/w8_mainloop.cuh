// The mainloop of the 8-bit small-M GEMMs on sm_90a: what a warp does with a stage, 32 rows of W by
// 8 kTiles rows of x, in mma.sync. Dequantisation to BF16 takes more time here than anything else.
// So weights enter in storage order: a lane dequantises 16 consecutive bytes of a row, and since
// the order of K is free as long as W and x agree, it reads x by 16 bytes too. That takes mma.sync,
// whose operands are registers; the order that wgmma wants would cost as many instructions again,
// unless x is permuted (small_m/k_permute.cuh).
#pragma once
#include "hw/cluster.h"
#include "hw/mma/mma.h"
#include "hw/vote.h"
#include "ops/gemm/sm90/small_m/params.h"
#include "ops/gemm/sm90/tile.cuh"

namespace halftone::gemm {

template <GpuCode kCode, class Stage>
struct Sm90SmallMW8Mainloop {
  using Policy = CodePolicy<kCode>;
  static constexpr ScaleMode kScales = Stage::kScaleMode;
  static constexpr uint32_t kTiles = Stage::kXTiles;
  static constexpr uint32_t kWarpLines = Stage::kLines;  // lines of a stage in a warp's K half, ...
  static constexpr uint32_t kOctets = 2;                 // ... of each so many octets a lane
  static constexpr bool kPromotes = kScales == ScaleMode::group_sums;
  static constexpr uint32_t kTilesN = 2;  // of 16 rows a warp

  using Accumulator = float[kTilesN][kTiles][4];

  // Spreads the eight rows of an MMA so that those whose chunks the swizzle maps to the same banks
  // are not read together.
  HT_HOST_DEVICE static uint32_t row_in_eight(uint32_t g) { return g % 2 * 4 + g / 2; }

  // Scales of promotion intervals of 128 elements: lane l has that of row l of the warp, prefetched
  // a stage ahead.
  struct IntervalScale {
    const uint8_t* at = nullptr;
    uint32_t raw = 0, own_half = 0;

    HT_DEVICE void locate(const GpuGemm& p, uint32_t n, const Sm90Tile& tile, uint32_t n_warp,
                          uint32_t k_half) {
      own_half = k_half;
      if (!p.scaled) return;
      const uint32_t r = n_warp * 32 + hw::lane_index(), row = tile.output(r);
      at = scale_address(p.weight, tile.source_of(r), row < n ? row : n - 1, 0);
    }
    HT_DEVICE void prefetch(const GpuGemm& p, uint32_t log2_groups, uint32_t step) {
      const GpuLayout& l = p.weight;
      const uint32_t interval = step * 2 + own_half;
      if (at == nullptr || interval * 128 >= p.k) return;  // beyond K x is zero
      raw = load_scale(l.scale_format, at + (interval >> log2_groups) * l.scale_step);
    }
    HT_DEVICE float value(const GpuGemm& p) const {
      return p.scaled ? decode_scale(p.weight.scale_format, raw) : 1.0f;
    }
  };

  // A lane's offsets in a stage: its 16 bytes of row row_in_eight(lane / 4) of W, those of row lane
  // / 4 of x, and its scales.
  struct Lane {
    uint32_t quad, w, x, scales;

    HT_DEVICE Lane(uint32_t n_warp, uint32_t k_half) {
      const uint32_t g = hw::lane_index() / 4, r = row_in_eight(g);
      quad = hw::lane_index() % 4;
      w = n_warp * Stage::kRowBlockBytes + r * Stage::kLine;
      x = Stage::kX + g * Stage::kLine;
      scales = Stage::kScaleOffset + (n_warp * 32 + r) * Stage::kScalePitch + k_half * 4 + quad / 2;
      w += k_half * (32 * Stage::kLine) + (quad ^ r) * 16;
      x += k_half * 2 * Stage::kSlab + ((quad * 2) ^ g) * 16;
    }
    // Of a line; the swizzle is an exclusive or.
    HT_DEVICE uint32_t w_of(uint32_t line) const { return w ^ line * 64; }
    HT_DEVICE uint32_t x_of(uint32_t line, uint32_t octet) const {
      return (x + line * Stage::kSlab) ^ octet * 16;
    }
  };

  // Of row `eight` of each eight of a warp's 32.
  HT_DEVICE static void load_packed(hw::SharedAddress stage, const Lane& lane, uint32_t line,
                                    uint32_t eight, uint32_t (&packed)[4], hw::Site site) {
    const auto words =
        hw::load_shared<hw::Words4>(stage + (lane.w_of(line) + eight * 8 * Stage::kLine), site);
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) packed[i] = words[i];
  }
  HT_DEVICE static hw::SharedAddress scale_at(hw::SharedAddress stage, const Lane& lane,
                                              uint32_t line, uint32_t eight) {
    return stage + (lane.scales + eight * 8 * Stage::kScalePitch + line * 2);
  }
  // The UE8M0 scale that multiplies weights, as a BF16 pair; false if BF16 weights cannot hold it.
  HT_DEVICE static bool load_ue8m0(hw::SharedAddress at, uint32_t& pair, hw::Site site) {
    if constexpr (kScales == ScaleMode::ue8m0) {
      const uint32_t exponent = hw::load_shared<uint8_t>(at, site);
      pair = twice(exponent << 7);
      return exponent >= 16 && exponent <= 128;
    }
    return true;
  }
  HT_DEVICE static void dequantise(const uint32_t (&packed)[4], uint32_t octet, uint32_t pair,
                                   uint32_t (&w)[1][4]) {
    Policy::expand({packed[octet * 2], packed[octet * 2 + 1]}, 0, w);
    if constexpr (kScales == ScaleMode::ue8m0) {
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) w[0][i] = fma_bf16x2(w[0][i], pair, kMinusZeros);
    }
  }
  // Half an octet of two rows of W with that of a row of x.
  HT_DEVICE static void mma_half_octet(const uint32_t (&w)[2][1][4], const hw::Words4& x,
                                       uint32_t s, uint32_t mask, float (&accumulator)[4],
                                       hw::Site site) {
    const uint32_t a[4] = {w[0][0][s], w[1][0][s], w[0][0][s + 1], w[1][0][s + 1]};
    const uint32_t b[2] = {x[s] & mask, x[s + 1] & mask};
    hw::mma_m16n8k16<Policy::kType>(accumulator, a, b, accumulator, site);
  }

  // UE8M0 scales that BF16 weights cannot hold: the lanes of a quad one after the other, with the
  // other lanes' elements of x zeroed, so that each partial sum has a single scale.
  HT_DEVICE static void mma_per_lane(hw::SharedAddress stage, const Lane& lane, uint32_t line,
                                     Accumulator& accumulator,
                                     hw::Site site = hw::Site::current()) {
    HT_UNROLL
    for (uint32_t t = 0; t < kTilesN; ++t) {
      HT_UNROLL
      for (uint32_t j = 0; j < kTiles; ++j) {
        HT_ROLLED
        for (uint32_t source = 0; source < 4; ++source) {
          const uint32_t mask = lane.quad == source ? 0xffffffff : 0;
          float partial[4] = {};
          HT_UNROLL
          for (uint32_t o = 0; o < kOctets; ++o) {
            uint32_t w[2][1][4];
            HT_UNROLL
            for (uint32_t r = 0; r < 2; ++r) {
              uint32_t packed[4];
              load_packed(stage, lane, line, t * 2 + r, packed, site);
              Policy::expand({packed[o * 2], packed[o * 2 + 1]}, 0, w[r]);
            }
            const auto x = hw::load_shared<hw::Words4>(
                stage + (lane.x_of(line, o) + j * 8 * Stage::kLine), site);
            for (uint32_t s = 0; s < 4; s += 2) mma_half_octet(w, x, s, mask, partial, site);
          }
          HT_UNROLL
          for (uint32_t e = 0; e < 4; ++e) {
            // The scale of the lane whose elements are not masked.
            const hw::SharedAddress own = scale_at(stage, lane, line, t * 2 + e / 2);
            const auto exponent =
                hw::load_shared<uint8_t>(own + (source / 2 - lane.quad / 2), site);
            accumulator[t][j][e] =
                hw::fma(partial[e], decode_ue8m0(exponent), accumulator[t][j][e]);
          }
        }
      }
    }
  }

  // A warp's part of a stage. With promotion only the weights are accumulated here, see promote.
  HT_DEVICE static void mma(hw::SharedAddress stage, const Lane& lane, Accumulator& accumulator,
                            hw::Site site = hw::Site::current()) {
    HT_UNROLL
    for (uint32_t line = 0; line < kWarpLines; ++line) {
      uint32_t packed[2 * kTilesN][4], powers[2 * kTilesN] = {};
      bool fits = true;
      HT_UNROLL
      for (uint32_t r = 0; r < 2 * kTilesN; ++r) {
        load_packed(stage, lane, line, r, packed[r], site);
        fits = load_ue8m0(scale_at(stage, lane, line, r), powers[r], site) && fits;
      }
      if constexpr (kScales == ScaleMode::ue8m0) {
        if (!hw::vote_all(fits, hw::kFullWarp, site)) {
          mma_per_lane(stage, lane, line, accumulator);
          continue;
        }
      }
      HT_UNROLL
      for (uint32_t o = 0; o < kOctets; ++o) {
        // The loads of x are in flight during dequantisation, and no MMA depends on the one before
        // it.
        hw::Words4 x[kTiles];
        HT_UNROLL
        for (uint32_t j = 0; j < kTiles; ++j) {
          x[j] = hw::load_shared<hw::Words4>(stage + (lane.x_of(line, o) + j * 8 * Stage::kLine),
                                             site);
        }
        uint32_t w[kTilesN][2][1][4];
        HT_UNROLL
        for (uint32_t r = 0; r < 2 * kTilesN; ++r)
          dequantise(packed[r], o, powers[r], w[r / 2][r % 2]);
        HT_UNROLL
        for (uint32_t s = 0; s < 4; s += 2) {
          HT_UNROLL
          for (uint32_t j = 0; j < kTiles; ++j) {
            HT_UNROLL
            for (uint32_t t = 0; t < kTilesN; ++t) {
              mma_half_octet(w[t], x[j], s, 0xffffffff, accumulator[t][j], site);
            }
          }
        }
      }
    }
  }
  // Promotes an interval: FP32 sum += accumulator * scale; lane l has the scale of row l of the
  // warp.
  HT_DEVICE static void promote(const Accumulator& accumulator, float scale,
                                Accumulator& promoted) {
    HT_UNROLL
    for (uint32_t r = 0; r < 2 * kTilesN; ++r) {
      const float w = hw::shuffle(scale, r * 8 + row_in_eight(hw::lane_index() / 4));
      HT_UNROLL
      for (uint32_t j = 0; j < kTiles; ++j) {
        HT_UNROLL
        for (uint32_t e = 0; e < 2; ++e) {
          float& sum = promoted[r / 2][j][r % 2 * 2 + e];
          sum = hw::fma(accumulator[r / 2][j][r % 2 * 2 + e], w, sum);
        }
      }
    }
  }

  // Stores a warp's accumulator to shared memory, or adds what is there to it.
  template <bool kStore>
  HT_DEVICE static void exchange_accumulators(hw::SharedAddress base, uint32_t n_warp,
                                              Accumulator& accumulator,
                                              hw::Site site = hw::Site::current()) {
    const uint32_t lane = hw::lane_index();
    HT_UNROLL
    for (uint32_t t = 0; t < kTilesN; ++t) {
      HT_UNROLL
      for (uint32_t j = 0; j < kTiles; ++j) {
        HT_UNROLL
        for (uint32_t e = 0; e < 4; ++e) {
          const uint32_t column = j * 8 + lane % 4 * 2 + e % 2;
          const uint32_t row = n_warp * 32 + t * 16 + e / 2 * 8 + row_in_eight(lane / 4);
          const hw::SharedAddress at = base + (column * Stage::kAccumulatorRow + row * 4);
          if constexpr (kStore) {
            hw::store_shared(at, accumulator[t][j][e], site);
          } else {
            accumulator[t][j][e] += hw::load_shared<float>(at, site);
          }
        }
      }
    }
  }
};

}  // namespace halftone::gemm
