// The rows of a warp as the A operand of wgmma: descriptors of 16-bit elements in shared memory, or
// registers with what their codes stand for. x lies in shared memory in the order of K, so a lane's
// fragment has two pairs of neighbours of every 16 elements, eight elements apart.
#pragma once
#include "hw/mma/wgmma.h"
#include "hw/thread.h"
#include "ops/gemm/sm90/mixed/stages.h"

namespace halftone::gemm {

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

  // A run: a step of x, 64 elements, or the 32 that have a sum. Its registers, for an instruction
  // of 16 elements each, and what multiplies the sums of a row before the run joins them.
  static constexpr uint32_t kPieces = Stages::kShort ? 1 : 2;
  struct Fragment {
    uint32_t step[2 * kPieces][4];
    float quotient[2];
  };

  // Eight codes of 32 elements, the piece `piece` of the stage: of each 16 two pairs.
  HT_DEVICE void load_codes(hw::SharedAddress line, uint32_t piece,
                            uint32_t (&codes)[Policy::kBits / 4],
                            hw::Site site = hw::Site::current()) const {
    const auto chunk = [&](uint32_t index, uint32_t offset) {
      return hw::SharedAddress{(line.value + key + offset) ^ index * 16};
    };
    if constexpr (Policy::kBits == 8) {
      HT_UNROLL
      for (uint32_t i = 0; i < 2; ++i) {
        const hw::SharedAddress at = chunk(piece * 2 + i, quad / 2 * 4);
        codes[i] = hw::prmt(hw::load_shared<uint32_t>(at, site),
                            hw::load_shared<uint32_t>(at + 8, site), quad % 2 ? 0x7632 : 0x5410);
      }
    } else {
      // Of each word, eight neighbours, this lane's byte.
      const auto words = hw::load_shared<hw::Words4>(chunk(piece, 0), site);
      const uint32_t pick = quad * 0x11 + 0x40;
      codes[0] =
          hw::prmt(hw::prmt(words[0], words[1], pick), hw::prmt(words[2], words[3], pick), 0x5410);
    }
  }

  // What multiplies the codes of a row, or their zero point; in units a quotient as well.
  HT_DEVICE hw::Words4 load_scales(hw::SharedAddress entry, uint32_t run,
                                   hw::Site site = hw::Site::current()) const {
    hw::Words4 scales{};
    if constexpr (kScales == Sm90Scales::pairs) {
      scales = hw::load_shared<hw::Words4>(entry + run * 16, site);
    } else if constexpr (kScales == Sm90Scales::powers) {
      const auto two = hw::load_shared<hw::Vector<uint32_t, 2>>(entry + run * 8, site);
      scales[0] = scales[1] = two[0], scales[2] = scales[3] = two[1];
    } else if constexpr (Stages::kUnits) {
      const auto slot = hw::load_shared<hw::Vector<uint32_t, 2>>(entry + run * 8, site);
      scales[0] = hw::prmt(slot[1], slot[1], 0x1010);
      scales[1] = hw::prmt(slot[1], slot[1], 0x3232);
      scales[2] = slot[0];
    } else if constexpr (Stages::kZeros) {
      scales[0] = hw::load_shared<uint32_t>(entry + (Stages::kSlots + run) * 4, site);
    }
    return scales;
  }

  struct Codes {
    uint32_t at[2][kPieces][Policy::kBits / 4];  // [row or the one eight below][32 elements]
    hw::Words4 scales[2];
  };
  template <bool kFinite>
  HT_DEVICE static void convert(const Codes& c, Fragment& a) {
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      HT_UNROLL
      for (uint32_t j = 0; j < 2 * kPieces; j += 2) {
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
  HT_DEVICE void expand(hw::SharedAddress stage, hw::SharedAddress table, uint32_t run, Fragment& a,
                        hw::Site site = hw::Site::current()) const {
    Codes c;
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      const hw::SharedAddress line = stage + (row * Stages::kLine + half * kHalf);
      HT_UNROLL
      for (uint32_t i = 0; i < kPieces; ++i) {
        load_codes(line, run * kPieces + i, c.at[half][i], site);
      }
      c.scales[half] = load_scales(table + (row + 8 * half) * Stages::kTableRow, run, site);
      if constexpr (Stages::kUnits) a.quotient[half] = std::bit_cast<float>(c.scales[half][2]);
    }
    if constexpr (kCode == GpuCode::e4m3 || kCode == GpuCode::e5m2) {
      // One look at all codes: branches between them would make each wait for the one before.
      convert<true>(c, a);
      uint32_t special = 0;
      HT_UNROLL
      for (uint32_t i = 0; i < 4 * kPieces; ++i) {
        special |= Policy::special(c.at[i / 2 / kPieces][i / 2 % kPieces][i % 2]);
      }
      if ((special & 0x80808080u) != 0) convert<false>(c, a);
    } else {
      convert<false>(c, a);
    }
  }
};

}  // namespace halftone::gemm
