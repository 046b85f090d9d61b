// K-permuted activations for 4-bit weights on sm_90a: x is permuted along K in shared memory so
// that a lane can dequantise 16 consecutive bytes of a row of W straight into wgmma fragments.
//
// wgmma wants, of every 16 elements of K, two pairs for each lane of a quad, eight elements apart.
// A lane that picks these out of a row of packed weights needs as many instructions as their
// dequantisation. But the order of K is free as long as W and x agree: so a lane dequantises 16
// bytes as they are stored, and x, which is small, is permuted in place, once for all rows of W
// (docs/findings/gemm-hopper.md).
//
// Of a line of 128 bytes of packed weights lane q of a quad has chunks q and 4 + q, 32 values each:
// four octets, each of which the format's policy makes four pairs. Pairs i of octets 2b and 2b + 1
// belong to one MMA. Where 32 elements share a scale that multiplies the accumulator, an MMA has
// elements of one group: a lane takes an octet of each group.
#pragma once
#include "hw/memory.h"
#include "hw/thread.h"
#include "ops/gemm/sm90/small_m/w4_stages.h"

namespace halftone::gemm {

template <GpuCode kCode, class Stage>
struct Sm90KPermute {
  static constexpr uint32_t kColumns = Stage::kWidth;

  // Spreads eight rows so that those whose chunks the swizzle maps to the same banks are not read
  // together.
  HT_HOST_DEVICE static uint32_t row_in_eight(uint32_t g) { return g % 2 * 4 + g / 2; }

  // Where x of pairs i of octets 2b and 2b + 1 goes: in which of two slabs, and to which 16 of its
  // 64 elements. Chunks that a warp stores at once fall into different banks.
  HT_HOST_DEVICE static uint32_t slab_of(uint32_t i) { return i % 2; }
  HT_HOST_DEVICE static uint32_t sixteen_of(uint32_t b, uint32_t i) { return b + i / 2 * 2; }

  // By warp `warp` of `warps`: its share of a stage of x, [64 elements][row] in lines of 128 bytes.
  // Each lane reads four chunks of 16 bytes of a row, one of each lane of a quad, and stores their
  // pairs in place of them.
  HT_DEVICE static void permute(hw::SharedAddress x, uint32_t warp, uint32_t warps,
                                hw::Site site = hw::Site::current()) {
    HT_ROLLED
    for (uint32_t part = warp; part < kColumns / 8 * 2; part += warps) {
      if constexpr (Stage::kGroup32) {
        permute_group32s(x, part, site);
      } else {
        permute_lines(x, part, site);
      }
    }
  }

 private:
  // Eight rows of half a line: chunk q * 4 + octet of two slabs for quad lane q.
  HT_DEVICE static void permute_lines(hw::SharedAddress x, uint32_t part, hw::Site site) {
    const uint32_t lane = hw::lane_index(), o = lane % 4, row = row_in_eight(lane / 4);
    exchange(
        x + (part % 2 * 2 * Stage::kSlab + (part / 2 * 8 + row) * Stage::kLine),
        [&](uint32_t q) { return q / 2 * Stage::kSlab + ((q % 2 * 4 + o) ^ row) * 16; },
        [&](uint32_t i) {
          const uint32_t place = sixteen_of(o / 2, i) * 2 + o % 2;
          return slab_of(i) * Stage::kSlab + (place ^ row) * 16;
        },
        site);
  }
  // Sixteen rows of two groups of 32 elements, or eight rows of four, an octet for each quad lane:
  // four consecutive chunks.
  HT_DEVICE static void permute_group32s(hw::SharedAddress x, uint32_t part, hw::Site site) {
    constexpr bool kEight = kColumns == 8;
    const uint32_t lane = hw::lane_index(), run = lane % 2, row = lane / 2 % (kEight ? 8 : 16);
    const auto place = [&](uint32_t i) { return ((run * 4 + i) ^ row % 8) * 16; };
    const uint32_t slab = kEight ? part * 2 + lane / 16 : part % 4;
    const uint32_t rows = kEight ? 0 : part / 4 * 16;
    exchange(x + (slab * Stage::kSlab + (rows + row) * Stage::kLine), place, place, site);
  }
  // The chunk at from(q) has the pairs of quad lane q; pairs i of all four become the chunk at
  // to(i).
  template <class From, class To>
  HT_DEVICE static void exchange(hw::SharedAddress line, const From& from, const To& to,
                                 hw::Site site) {
    uint32_t pairs[4][4];
    HT_UNROLL
    for (uint32_t q = 0; q < 4; ++q) {
      const auto in = hw::load_shared<hw::Words4>(line + from(q), site);
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) pairs[q][i] = in[i];
      CodePolicy<kCode>::arrange(pairs[q]);
    }
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      hw::store_shared(line + to(i),
                       hw::Words4{{pairs[0][i], pairs[1][i], pairs[2][i], pairs[3][i]}}, site);
    }
  }
};

}  // namespace halftone::gemm
