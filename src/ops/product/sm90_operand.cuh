// The rows of a warp as the A operand of wgmma: descriptors of 16-bit elements in shared memory, or
// registers with what their codes stand for. x lies in shared memory in the order of K, so a lane's
// fragment has two pairs of neighbours of every 16 elements, eight elements apart.
#pragma once
#include "hw/thread.h"
#include "hw/wgmma.h"
#include "ops/product/sm90_stages.h"

namespace halftone::product {

template <GpuCode kCode, Sm90Scales kScales, uint32_t kColumns>
struct Sm90Operand {
  using Stages = Sm90Stages<kCode, kScales, kColumns>;
  using Policy = typename Stages::Policy;
  static constexpr uint32_t kHalf = 8 * Stages::kLine;  // from a row to the one eight below

  uint32_t row, key, quad;  // of the lane: its first row in the tile, times 16 in eights; of four
  HT_DEVICE Sm90Operand(uint32_t first_row) {
    const uint32_t lane = hw::lane_index();
    row = first_row + lane / 4, key = lane / 4 * 16, quad = lane % 4;
  }

  // Registers of the 64 elements of one step of x, for four instructions.
  struct Fragment {
    uint32_t step[4][4];
  };

  // Eight codes of 32 elements from `j` 16s into the step: of each 16 two pairs.
  HT_DEVICE void load_codes(hw::SharedAddress line, uint32_t x_step, uint32_t j,
                            uint32_t (&codes)[Policy::kBits / 4],
                            hw::Site site = hw::Site::current()) const {
    const auto chunk = [&](uint32_t index, uint32_t offset) {
      return hw::SharedAddress{(line.value + key + offset) ^ index * 16};
    };
    if constexpr (Policy::kBits == 8) {
      HT_UNROLL
      for (uint32_t i = 0; i < 2; ++i) {
        const hw::SharedAddress at = chunk(x_step * 4 + j + i, quad / 2 * 4);
        codes[i] = hw::prmt(hw::load_shared<uint32_t>(at, site),
                            hw::load_shared<uint32_t>(at + 8, site), quad % 2 ? 0x7632 : 0x5410);
      }
    } else {
      // Of each word, eight neighbours, this lane's byte.
      const auto words = hw::load_shared<hw::Words4>(chunk(x_step * 2 + j / 2, 0), site);
      const uint32_t pick = quad * 0x11 + 0x40;
      codes[0] =
          hw::prmt(hw::prmt(words[0], words[1], pick), hw::prmt(words[2], words[3], pick), 0x5410);
    }
  }

  // The sign and the power of two of a scale that multiply its codes, which is exact, and what is
  // left to multiply their sums: at least 1 and less than 2. Of 0, subnormal numbers, infinity and
  // NaN all multiplies the codes.
  HT_DEVICE static bool normal(float scale) {
    const uint32_t e = std::bit_cast<uint32_t>(scale) & 0x7f800000u;
    return e != 0 && e != 0x7f800000u;
  }
  HT_DEVICE static uint32_t power_pair(float scale) {
    const uint32_t power = std::bit_cast<uint32_t>(scale) & 0xff800000u;
    return normal(scale) ? hw::prmt(power, power, 0x3232) : hw::cvt_bf16x2(scale, scale);
  }
  HT_DEVICE static float mantissa(float scale) {
    const uint32_t m = (std::bit_cast<uint32_t>(scale) & 0x007fffffu) | 0x3f800000u;
    return normal(scale) ? std::bit_cast<float>(m) : 1.0f;
  }

  // What multiplies the codes of a row, or their zero point.
  HT_DEVICE hw::Words4 load_scales(hw::SharedAddress entry, uint32_t x_step,
                                   hw::Site site = hw::Site::current()) const {
    hw::Words4 scales{};
    if constexpr (kScales == Sm90Scales::pairs) {
      scales = hw::load_shared<hw::Words4>(entry + x_step * 16, site);
    } else if constexpr (kScales == Sm90Scales::powers) {
      const auto two = hw::load_shared<hw::Vector<uint32_t, 2>>(entry + x_step * 8, site);
      scales[0] = scales[1] = two[0], scales[2] = scales[3] = two[1];
    } else if constexpr (Stages::kZeros) {
      scales[0] = hw::load_shared<uint32_t>(entry + (Stages::kSlots + x_step) * 4, site);
    }
    if constexpr (Stages::kUnits) {
      scales[1] = power_pair(hw::load_shared<float>(entry + x_step * 4, site));
    }
    return scales;
  }

  struct Codes {
    uint32_t at[2][2][Policy::kBits / 4];  // [row or the one eight below][32 elements]
    hw::Words4 scales[2];
  };
  template <bool kFinite>
  HT_DEVICE static void convert(const Codes& c, Fragment& a) {
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      HT_UNROLL
      for (uint32_t j = 0; j < 4; j += 2) {
        uint32_t pairs[1][4];
        const hw::Words4& s = c.scales[half];
        if constexpr (kScales == Sm90Scales::pairs) {
          Policy::expand_neighbours(c.at[half][j / 2][0], {s[j], s[j], s[j + 1], s[j + 1]}, pairs);
        } else if constexpr (kCode == GpuCode::e2m1) {
          constexpr uint32_t kOne = Policy::kUnscaled;
          Policy::expand_neighbours(c.at[half][j / 2][0], {kOne, kOne, kOne, kOne}, pairs);
        } else if constexpr (kCode == GpuCode::int4) {
          Policy::expand_neighbours(c.at[half][j / 2][0], s[0], pairs);
        } else if constexpr (kFinite) {
          Policy::expand_finite(c.at[half][j / 2], 0, pairs);
        } else {
          Policy::expand(c.at[half][j / 2], s[0], pairs);
        }
        HT_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
          uint32_t pair = pairs[0][i];
          if constexpr (kScales == Sm90Scales::powers) {
            pair = fma_bf16x2(pair, s[j], kMinusZeros);
          } else if constexpr (Stages::kUnits) {
            pair = fma_bf16x2(pair, s[1], kMinusZeros);
          }
          a.step[j + i / 2][2 * (i % 2) + half] = pair;
        }
      }
    }
  }
  HT_DEVICE void expand(hw::SharedAddress stage, hw::SharedAddress table, uint32_t x_step,
                        Fragment& a, hw::Site site = hw::Site::current()) const {
    Codes c;
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      const hw::SharedAddress line = stage + (row * Stages::kLine + half * kHalf);
      HT_UNROLL
      for (uint32_t j = 0; j < 2; ++j) load_codes(line, x_step, 2 * j, c.at[half][j], site);
      c.scales[half] = load_scales(table + (row + 8 * half) * Stages::kTableRow, x_step, site);
    }
    if constexpr (kCode == GpuCode::e4m3 || kCode == GpuCode::e5m2) {
      // One look at all codes: branches between them would make each wait for the one before.
      convert<true>(c, a);
      uint32_t special = 0;
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) special |= Policy::special(c.at[i / 4][i / 2 % 2][i % 2]);
      if ((special & 0x80808080u) != 0) convert<false>(c, a);
    } else {
      convert<false>(c, a);
    }
  }
};

}  // namespace halftone::product
