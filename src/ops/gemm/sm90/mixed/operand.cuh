// The A operand of wgmma in the mixed-input GEMM on sm_90a: a warp's 16 rows of packed weights in a
// shared memory stage, dequantised into register fragments (16-bit weights enter by a descriptor
// instead). x lies in shared memory in the natural order of K, so a lane's fragment has two pairs
// of consecutive elements of every 16, eight elements apart.
#pragma once
#include "hw/mma/wgmma.h"
#include "hw/thread.h"
#include "ops/gemm/sm90/mixed/stages.h"

namespace halftone::gemm {

template <GpuCode kCode, ScaleMode kScales, uint32_t kColumns>
struct Sm90Operand {
  using Stages = Sm90Stages<kCode, kScales, kColumns>;
  using Policy = typename Stages::Policy;
  static constexpr uint32_t kEightRows =
      8 * Stages::kLine;  // bytes from a row to the one eight below

  uint32_t row, key, quad;  // of the lane: its first row in the tile, its swizzle key (row % 8 *
                            // 16), its index in the quad
  HT_DEVICE Sm90Operand(uint32_t first_row) {
    const uint32_t lane = hw::lane_index();
    row = first_row + lane / 4, key = lane / 4 * 16, quad = lane % 4;
  }

  // An interval: a stage of x (64 elements), or the 32 elements that share a scale. Its fragment
  // has the A registers of each 16-element MMA, and what rescales the accumulator of each row
  // before the interval is added.
  static constexpr uint32_t kChunks = Stages::kGroup32 ? 1 : 2;
  struct Fragment {
    uint32_t step[2 * kChunks][4];
    float rescale[2];
  };

  // The lane's eight packed values of 32 elements, number `piece` of the stage: two pairs of every
  // 16.
  HT_DEVICE void load_packed(hw::SharedAddress line, uint32_t piece,
                             uint32_t (&packed)[Policy::kBits / 4],
                             hw::Site site = hw::Site::current()) const {
    const auto chunk = [&](uint32_t index, uint32_t offset) {
      return hw::SharedAddress{(line.value + key + offset) ^ index * 16};
    };
    if constexpr (Policy::kBits == 8) {
      HT_UNROLL
      for (uint32_t i = 0; i < 2; ++i) {
        const hw::SharedAddress values = chunk(piece * 2 + i, quad / 2 * 4);
        packed[i] =
            hw::prmt(hw::load_shared<uint32_t>(values, site),
                     hw::load_shared<uint32_t>(values + 8, site), quad % 2 ? 0x7632 : 0x5410);
      }
    } else {
      // The lane's byte of each word of eight consecutive values.
      const auto words = hw::load_shared<hw::Words4>(chunk(piece, 0), site);
      const uint32_t pick = quad * 0x11 + 0x40;
      packed[0] =
          hw::prmt(hw::prmt(words[0], words[1], pick), hw::prmt(words[2], words[3], pick), 0x5410);
    }
  }

  // The scales that multiply a row's weights, or its zero point; with a rescaled accumulator the
  // quotient as well.
  HT_DEVICE hw::Words4 load_scales(hw::SharedAddress entry, uint32_t interval,
                                   hw::Site site = hw::Site::current()) const {
    hw::Words4 scales{};
    if constexpr (kScales == ScaleMode::e4m3_block) {
      scales = hw::load_shared<hw::Words4>(entry + interval * 16, site);
    } else if constexpr (kScales == ScaleMode::ue8m0) {
      const auto two = hw::load_shared<hw::Vector<uint32_t, 2>>(entry + interval * 8, site);
      scales[0] = scales[1] = two[0], scales[2] = scales[3] = two[1];
    } else if constexpr (Stages::kRescaled) {
      const auto slot = hw::load_shared<hw::Vector<uint32_t, 2>>(entry + interval * 8, site);
      scales[0] = hw::prmt(slot[1], slot[1], 0x1010);
      scales[1] = hw::prmt(slot[1], slot[1], 0x3232);
      scales[2] = slot[0];
    } else if constexpr (Stages::kZeros) {
      scales[0] = hw::load_shared<uint32_t>(entry + (Stages::kSlots + interval) * 4, site);
    }
    return scales;
  }

  struct Packed {
    uint32_t values[2][kChunks][Policy::kBits / 4];  // [row, or the one eight below][32 elements]
    hw::Words4 scales[2];
  };
  template <bool kFinite>
  HT_DEVICE static void convert(const Packed& c, Fragment& a) {
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      HT_UNROLL
      for (uint32_t j = 0; j < 2 * kChunks; j += 2) {
        uint32_t pairs[1][4];
        const hw::Words4& s = c.scales[half];
        if constexpr (kScales == ScaleMode::e4m3_block) {
          Policy::expand_neighbours(c.values[half][j / 2][0], {s[j], s[j], s[j + 1], s[j + 1]},
                                    pairs);
        } else if constexpr (kCode == GpuCode::e2m1) {
          constexpr uint32_t kOne = Policy::kUnscaled;
          Policy::expand_neighbours(c.values[half][j / 2][0], {kOne, kOne, kOne, kOne}, pairs);
        } else if constexpr (kCode == GpuCode::int4) {
          Policy::expand_neighbours(c.values[half][j / 2][0], s[0], pairs);
        } else if constexpr (kFinite) {
          Policy::expand_finite(c.values[half][j / 2], 0, pairs);
        } else {
          Policy::expand(c.values[half][j / 2], s[0], pairs);
        }
        HT_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
          uint32_t pair = pairs[0][i];
          if constexpr (kScales == ScaleMode::ue8m0) {
            pair = fma_bf16x2(pair, s[j], kMinusZeros);
          } else if constexpr (Stages::kRescaled) {
            pair = fma_bf16x2(pair, s[1], kMinusZeros);
          }
          a.step[j + i / 2][2 * (i % 2) + half] = pair;
        }
      }
    }
  }
  HT_DEVICE void dequantise(hw::SharedAddress stage, hw::SharedAddress table, uint32_t interval,
                            Fragment& a, hw::Site site = hw::Site::current()) const {
    Packed c;
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      const hw::SharedAddress line = stage + (row * Stages::kLine + half * kEightRows);
      HT_UNROLL
      for (uint32_t i = 0; i < kChunks; ++i) {
        load_packed(line, interval * kChunks + i, c.values[half][i], site);
      }
      c.scales[half] =
          load_scales(table + (row + 8 * half) * Stages::kScaleRowBytes, interval, site);
      if constexpr (Stages::kRescaled) a.rescale[half] = std::bit_cast<float>(c.scales[half][2]);
    }
    if constexpr (kCode == GpuCode::e4m3 || kCode == GpuCode::e5m2) {
      // One check of all values: a branch for each would make each wait for the one before.
      convert<true>(c, a);
      uint32_t special = 0;
      HT_UNROLL
      for (uint32_t i = 0; i < 4 * kChunks; ++i) {
        special |= Policy::special(c.values[i / 2 / kChunks][i / 2 % kChunks][i % 2]);
      }
      if ((special & 0x80808080u) != 0) convert<false>(c, a);
    } else {
      convert<false>(c, a);
    }
  }
};

}  // namespace halftone::gemm
