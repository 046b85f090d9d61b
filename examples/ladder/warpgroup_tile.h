// Steps 7 to 9 share this: the 64 x 256 elements of C that a warpgroup keeps in registers as the
// accumulator of wgmma, and the geometry of their blocks.
#pragma once
#include "hw/mma/wgmma.h"
#include "hw/thread.h"
#include "pipe/epilogue.h"
#include "product.h"

namespace halftone::ladder {

// Two warpgroups compute 128 x 256 elements of C, 64 of K at a time. An instruction reads 64 rows
// of A and 256 columns of B from shared memory: the widest there is, so that a byte read serves as
// many multiply-adds as it can. Four stages of 48 KB leave room for 32 KB of C.
struct WgmmaBlock {
  static constexpr uint32_t kTileM = 128, kTileN = 256, kDepth = 64;
  static constexpr uint32_t kWarpgroups = 2, kRows = kTileM / kWarpgroups;
  static constexpr uint32_t kRowBytes = kDepth * 2;
  static constexpr uint32_t kBytesA = kTileM * kRowBytes, kBytesB = kTileN * kRowBytes;
  static constexpr uint32_t kStageBytes = kBytesA + kBytesB;  // A, then B
  static constexpr uint32_t kStages = 4;
};

struct WarpgroupTile {
  // The operands of one instruction, as rows of 128 bytes with the 128-byte swizzle.
  HT_HOST_DEVICE static tile::SharedTile operand(uint32_t rows) {
    return {tile::Major::k, tile::Swizzle::b128, 16, rows, WgmmaBlock::kDepth};
  }

  float sum[WgmmaBlock::kTileN / 2];

  // Starts adding the 64 steps of K of one stage, four instructions of 16, as one group. `fresh`:
  // instead of adding to what is there, begins with them.
  HT_DEVICE void multiply_stage(hw::SharedAddress a, hw::SharedAddress b, bool fresh,
                                hw::Site site = hw::Site::current()) {
    constexpr tile::SharedTile a_tile = operand(WgmmaBlock::kRows);
    constexpr tile::SharedTile b_tile = operand(WgmmaBlock::kTileN);
    static_assert(a_tile.valid() && b_tile.valid());
    const auto a_start = tile::WgmmaDescriptor::of(a_tile, a.value);
    const auto b_start = tile::WgmmaDescriptor::of(b_tile, b.value);
    hw::wgmma_fence(site);
    HT_UNROLL
    for (uint32_t k = 0; k < WgmmaBlock::kDepth; k += 16) {
      hw::wgmma<hw::Type::bf16>(sum, a_start.advanced(a_tile.advance(0, k)),
                                b_start.advanced(b_tile.advance(0, k)), !fresh || k > 0, site);
    }
    hw::wgmma_commit(site);
  }

  // Rounds to bf16 and writes what lies inside C, straight from the registers.
  HT_DEVICE void store(uint16_t* c, uint32_t m, uint32_t n, uint32_t row, uint32_t col,
                       hw::Site site = hw::Site::current()) const {
    pipe::store_direct<WgmmaBlock::kTileN>(sum, c, n, m, n, row + hw::warp_index() % 4 * 16, col,
                                           ToBf16(), site);
  }
};

}  // namespace halftone::ladder
