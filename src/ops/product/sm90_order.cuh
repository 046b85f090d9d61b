// The order of K in which codes of four bits are cheap to expand on Hopper, and x brought into it.
//
// wgmma wants of every 16 elements of K two pairs for each lane of a quad, eight elements apart. A
// lane that picks these out of a row of codes needs as many instructions as their expansion. But
// which element of K is which is free as long as W and x agree: so a lane expands 16 bytes as they
// lie, and x, which is small, is permuted in shared memory, in place, once for all rows of W
// (docs/findings/products-hopper.md).
//
// Of a line of 128 bytes of codes lane q of a quad has chunks q and 4 + q, 32 codes each: four
// octets, which a policy makes four pairs each. Pairs i of octets 2b and 2b + 1 are an MMA's.
#pragma once
#include "hw/memory.h"
#include "hw/warp.h"
#include "ops/product/sm90_ordered.h"

namespace halftone::product {

template <GpuCode kCode, Sm90Scales kScales, uint32_t kColumns>
struct Sm90Order {
  using Stage = Sm90OrderedStage<kScales, kColumns>;

  // Rows of eight whose chunks the swizzle puts into the same banks are apart.
  HT_HOST_DEVICE static uint32_t row_in_eight(uint32_t g) { return g % 2 * 4 + g / 2; }

  // Where x of pairs i of octets 2b and 2b + 1 lies: in which of two slabs, and of its 64 elements
  // which 16. Chunks that a warp stores at once fall into different banks.
  HT_HOST_DEVICE static uint32_t slab_of(uint32_t i) { return i % 2; }
  HT_HOST_DEVICE static uint32_t sixteen_of(uint32_t b, uint32_t i) { return b + i / 2 * 2; }

  // By a warp: a stage of x, [64 elements][row] in lines of 128 bytes. A lane has octet `o` of the
  // quad's lanes in a row: four chunks of 16 bytes, which become the pairs of four others.
  HT_DEVICE static void permute(hw::SharedAddress x, hw::Site site = hw::Site::current()) {
    const uint32_t lane = hw::lane_index(), o = lane % 4, row = row_in_eight(lane / 4);
    const hw::SharedAddress line = x + row * Stage::kLine;
    const auto chunk = [&](uint32_t slab, uint32_t rows, uint32_t place) {
      return line + (slab * Stage::kSlab + rows * Stage::kLine + (place ^ row) * 16);
    };
    HT_UNROLL
    for (uint32_t rows = 0; rows < kColumns; rows += 8) {
      uint32_t pairs[2][4][4];
      HT_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        HT_UNROLL
        for (uint32_t q = 0; q < 4; ++q) {
          const auto in =
              hw::load_shared<hw::Words4>(chunk(half * 2 + q / 2, rows, q % 2 * 4 + o), site);
          HT_UNROLL
          for (uint32_t i = 0; i < 4; ++i) pairs[half][q][i] = in[i];
          CodePolicy<kCode>::arrange(pairs[half][q]);
        }
      }
      hw::warp_sync(hw::kFullWarp, site);
      HT_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        const auto& p = pairs[half];
        HT_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
          hw::store_shared(chunk(half * 2 + slab_of(i), rows, sixteen_of(o / 2, i) * 2 + o % 2),
                           hw::Words4{{p[0][i], p[1][i], p[2][i], p[3][i]}}, site);
        }
      }
    }
  }
};

}  // namespace halftone::product
