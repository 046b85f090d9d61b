// What a warp does with a stage of some dozens of rows of x times W in codes of eight bits on
// Hopper, where making bf16 of the codes takes more time than anything else. So codes enter in the
// order of memory: a lane expands what 16 bytes of a row hold, and as which element of K is which
// of an MMA's fragment is free, x is read by 16 bytes, too. That takes mma.sync, whose operands are
// registers; the order of K that wgmma wants costs as many instructions again, unless x is permuted
// (sm90_order.cuh).
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
  static constexpr Sm90Scales kScales = Stage::kWay;
  static constexpr uint32_t kTiles = Stage::kTilesOfX;
  static constexpr uint32_t kParts = Stage::kLines;  // of a warp's codes of a stage, ...
  static constexpr uint32_t kOctets = 2;             // ... each of so many octets a lane
  static constexpr bool kJoined = kScales == Sm90Scales::sums;
  static constexpr uint32_t kTilesN = 2;  // of 16 rows a warp

  using Sums = float[kTilesN][kTiles][4];

  // Rows g of eight of an MMA: those whose chunks the swizzle puts into the same banks come apart.
  HT_HOST_DEVICE static uint32_t row_in_eight(uint32_t g) { return g % 2 * 4 + g / 2; }

  // Scales of runs of 128 elements: lane l has that of row l of the warp, asked for a stage ahead.
  struct ChainScale {
    const uint8_t* at = nullptr;
    uint32_t raw = 0, part = 0;

    HT_DEVICE void find(const GpuGemm& p, uint32_t n, const Sm90Tile& tile, uint32_t along_n,
                        uint32_t along_k) {
      part = along_k;
      if (!p.scaled) return;
      const uint32_t r = along_n * 32 + hw::lane_index(), row = tile.output(r);
      at = scale_address(p.weight, tile.source_of(r), row < n ? row : n - 1, 0);
    }
    HT_DEVICE void ask(const GpuGemm& p, uint32_t log2_groups, uint32_t step) {
      const GpuLayout& l = p.weight;
      const uint32_t run = step * 2 + part;
      if (at == nullptr || run * 128 >= p.k) return;  // past K x has zeros
      raw = load_scale(l.scale_format, at + (run >> log2_groups) * l.scale_step);
    }
    HT_DEVICE float value(const GpuGemm& p) const {
      return p.scaled ? decode_scale(p.weight.scale_format, raw) : 1.0f;
    }
  };

  // Where a lane reads in a stage: of W its 16 bytes of row row_in_eight(lane / 4), of x those of
  // row lane / 4, and scales.
  struct Lane {
    uint32_t quad, w, x, scales;

    HT_DEVICE Lane(uint32_t along_n, uint32_t along_k) {
      const uint32_t g = hw::lane_index() / 4, r = row_in_eight(g);
      quad = hw::lane_index() % 4;
      w = along_n * Stage::kRun + r * Stage::kLine;
      x = Stage::kX + g * Stage::kLine;
      scales = Stage::kOfScales + (along_n * 32 + r) * Stage::kScalePitch + along_k * 4 + quad / 2;
      w += along_k * (32 * Stage::kLine) + (quad ^ r) * 16;
      x += along_k * 2 * Stage::kSlab + ((quad * 2) ^ g) * 16;
    }
    // Of a part; the swizzle is an exclusive or.
    HT_DEVICE uint32_t w_of(uint32_t part) const { return w ^ part * 64; }
    HT_DEVICE uint32_t x_of(uint32_t part, uint32_t octet) const {
      return (x + part * Stage::kSlab) ^ octet * 16;
    }
  };

  // Of row `eight` of eight of a warp's 32.
  HT_DEVICE static void load_codes(hw::SharedAddress stage, const Lane& lane, uint32_t part,
                                   uint32_t eight, uint32_t (&codes)[4], hw::Site site) {
    const auto words =
        hw::load_shared<hw::Words4>(stage + (lane.w_of(part) + eight * 8 * Stage::kLine), site);
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) codes[i] = words[i];
  }
  HT_DEVICE static hw::SharedAddress scale_at(hw::SharedAddress stage, const Lane& lane,
                                              uint32_t part, uint32_t eight) {
    return stage + (lane.scales + eight * 8 * Stage::kScalePitch + part * 2);
  }
  // The power of two that multiplies codes, twice; false where it is beyond what bf16 can take.
  HT_DEVICE static bool load_power(hw::SharedAddress at, uint32_t& pair, hw::Site site) {
    if constexpr (kScales == Sm90Scales::powers) {
      const uint32_t exponent = hw::load_shared<uint8_t>(at, site);
      pair = twice(exponent << 7);
      return exponent >= 16 && exponent <= 128;
    }
    return true;
  }
  HT_DEVICE static void expand(const uint32_t (&codes)[4], uint32_t octet, uint32_t pair,
                               uint32_t (&w)[1][4]) {
    Policy::expand({codes[octet * 2], codes[octet * 2 + 1]}, 0, w);
    if constexpr (kScales == Sm90Scales::powers) {
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) w[0][i] = fma_bf16x2(w[0][i], pair, kMinusZeros);
    }
  }
  // Half an octet of two rows with that of a row of x.
  HT_DEVICE static void multiply_half(const uint32_t (&w)[2][1][4], const hw::Words4& x, uint32_t s,
                                      uint32_t mask, float (&sums)[4], hw::Site site) {
    const uint32_t a[4] = {w[0][0][s], w[1][0][s], w[0][0][s + 1], w[1][0][s + 1]};
    const uint32_t b[2] = {x[s] & mask, x[s + 1] & mask};
    hw::mma_m16n8k16<Policy::kType>(sums, a, b, sums, site);
  }

  // Powers of two that bf16 cannot take in codes: the lanes of a quad one after the other, the
  // others' elements of x being zeros, so that the sums have one scale each.
  HT_DEVICE static void multiply_apart(hw::SharedAddress stage, const Lane& lane, uint32_t part,
                                       Sums& sums, hw::Site site = hw::Site::current()) {
    HT_UNROLL
    for (uint32_t t = 0; t < kTilesN; ++t) {
      HT_UNROLL
      for (uint32_t j = 0; j < kTiles; ++j) {
        HT_ROLLED
        for (uint32_t turn = 0; turn < 4; ++turn) {
          const uint32_t mask = lane.quad == turn ? 0xffffffff : 0;
          float chain[4] = {};
          HT_UNROLL
          for (uint32_t o = 0; o < kOctets; ++o) {
            uint32_t w[2][1][4];
            HT_UNROLL
            for (uint32_t r = 0; r < 2; ++r) {
              uint32_t codes[4];
              load_codes(stage, lane, part, t * 2 + r, codes, site);
              Policy::expand({codes[o * 2], codes[o * 2 + 1]}, 0, w[r]);
            }
            const auto x = hw::load_shared<hw::Words4>(
                stage + (lane.x_of(part, o) + j * 8 * Stage::kLine), site);
            for (uint32_t s = 0; s < 4; s += 2) multiply_half(w, x, s, mask, chain, site);
          }
          HT_UNROLL
          for (uint32_t e = 0; e < 4; ++e) {
            // The scale of the lane whose turn it was.
            const hw::SharedAddress own = scale_at(stage, lane, part, t * 2 + e / 2);
            const auto exponent = hw::load_shared<uint8_t>(own + (turn / 2 - lane.quad / 2), site);
            sums[t][j][e] = hw::fma(chain[e], decode_ue8m0(exponent), sums[t][j][e]);
          }
        }
      }
    }
  }

  // What a warp has of a stage. Of `sums` nothing but codes, see join.
  HT_DEVICE static void multiply(hw::SharedAddress stage, const Lane& lane, Sums& sums,
                                 hw::Site site = hw::Site::current()) {
    HT_UNROLL
    for (uint32_t part = 0; part < kParts; ++part) {
      uint32_t codes[2 * kTilesN][4], powers[2 * kTilesN] = {};
      bool fits = true;
      HT_UNROLL
      for (uint32_t r = 0; r < 2 * kTilesN; ++r) {
        load_codes(stage, lane, part, r, codes[r], site);
        fits = load_power(scale_at(stage, lane, part, r), powers[r], site) && fits;
      }
      if constexpr (kScales == Sm90Scales::powers) {
        if (!hw::vote_all(fits, hw::kFullWarp, site)) {
          multiply_apart(stage, lane, part, sums);
          continue;
        }
      }
      HT_UNROLL
      for (uint32_t o = 0; o < kOctets; ++o) {
        // x is on its way while codes are expanded, and no MMA waits for the one before it.
        hw::Words4 x[kTiles];
        HT_UNROLL
        for (uint32_t j = 0; j < kTiles; ++j) {
          x[j] = hw::load_shared<hw::Words4>(stage + (lane.x_of(part, o) + j * 8 * Stage::kLine),
                                             site);
        }
        uint32_t w[kTilesN][2][1][4];
        HT_UNROLL
        for (uint32_t r = 0; r < 2 * kTilesN; ++r) expand(codes[r], o, powers[r], w[r / 2][r % 2]);
        HT_UNROLL
        for (uint32_t s = 0; s < 4; s += 2) {
          HT_UNROLL
          for (uint32_t j = 0; j < kTiles; ++j) {
            HT_UNROLL
            for (uint32_t t = 0; t < kTilesN; ++t) {
              multiply_half(w[t], x[j], s, 0xffffffff, sums[t][j], site);
            }
          }
        }
      }
    }
  }
  // The sums of a run of codes times its scale, of row l of the warp in lane l.
  HT_DEVICE static void join(const Sums& chain, float scale, Sums& total) {
    HT_UNROLL
    for (uint32_t r = 0; r < 2 * kTilesN; ++r) {
      const float w = hw::shuffle(scale, r * 8 + row_in_eight(hw::lane_index() / 4));
      HT_UNROLL
      for (uint32_t j = 0; j < kTiles; ++j) {
        HT_UNROLL
        for (uint32_t e = 0; e < 2; ++e) {
          float& sum = total[r / 2][j][r % 2 * 2 + e];
          sum = hw::fma(chain[r / 2][j][r % 2 * 2 + e], w, sum);
        }
      }
    }
  }

  // A warp's sums into shared memory, or those that are there joined to them.
  template <bool kStore>
  HT_DEVICE static void pass_sums(hw::SharedAddress base, uint32_t along_n, Sums& sums,
                                  hw::Site site = hw::Site::current()) {
    const uint32_t lane = hw::lane_index();
    HT_UNROLL
    for (uint32_t t = 0; t < kTilesN; ++t) {
      HT_UNROLL
      for (uint32_t j = 0; j < kTiles; ++j) {
        HT_UNROLL
        for (uint32_t e = 0; e < 4; ++e) {
          const uint32_t column = j * 8 + lane % 4 * 2 + e % 2;
          const uint32_t row = along_n * 32 + t * 16 + e / 2 * 8 + row_in_eight(lane / 4);
          const hw::SharedAddress at = base + (column * Stage::kSumRow + row * 4);
          if constexpr (kStore) {
            hw::store_shared(at, sums[t][j][e], site);
          } else {
            sums[t][j][e] += hw::load_shared<float>(at, site);
          }
        }
      }
    }
  }
};

}  // namespace halftone::gemm
