// Steps 3 to 6 share this: the 64 x 64 elements of C that a warp keeps in registers as fragments of
// mma.sync, and how they get to global memory.
#pragma once
#include "hw/memory.h"
#include "hw/mma/ldmatrix.h"
#include "hw/mma/mma.h"
#include "hw/thread.h"
#include "pipe/epilogue.h"
#include "product.h"
#include "tile/ldmatrix.h"
#include "tile/swizzle.h"

namespace halftone::ladder {

// The geometry of steps 3 to 6: a block of 4 warps computes 128 x 128 elements of C, 64 of K at a
// time. 128 accumulators a thread leave room for the fragments of one step of K, and two blocks fit
// on a multiprocessor, so that one computes while the other waits.
struct MmaBlock {
  static constexpr uint32_t kTile = 128, kDepth = 64;
  static constexpr uint32_t kThreads = 128, kMinBlocks = 2;
  static constexpr uint32_t kRowBytes = kDepth * 2;  // 128: what one swizzle pattern covers
  static constexpr uint32_t kOperandBytes = kTile * kRowBytes;
  static constexpr uint32_t kStageBytes = 2 * kOperandBytes;  // A, then B
};

struct WarpTile {
  static constexpr uint32_t kExtent = 64;
  float sum[kExtent / 16][kExtent / 8][4] = {};  // [row of MMAs][column of MMAs]: 16 x 8 each
  uint32_t row, col;                             // place in the block's 128 x 128

  HT_DEVICE WarpTile() : row(hw::warp_index() / 2 * kExtent), col(hw::warp_index() % 2 * kExtent) {}

  // Adds 16 steps of K: each fragment of A meets each of B.
  HT_DEVICE void multiply(const uint32_t (&a)[4][4], const uint32_t (&b)[8][2],
                          hw::Site site = hw::Site::current()) {
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      HT_UNROLL
      for (uint32_t j = 0; j < 8; ++j) {
        hw::mma_m16n8k16<hw::Type::bf16>(sum[i][j], a[i], b[j], sum[i][j], site);
      }
    }
  }

  // From step 4 on: adds the 64 steps of K of one stage, 128-byte rows of A and B stored with the
  // 128-byte swizzle. ldmatrix reads four 8 x 8 matrices; its 8 rows lie in 8 different chunks.
  HT_DEVICE void multiply_stage(hw::SharedAddress a, hw::SharedAddress b,
                                hw::Site site = hw::Site::current()) {
    const int lane = static_cast<int>(hw::lane_index());
    const tile::RowChunk a_place = tile::ldmatrix_a(lane), b_place = tile::ldmatrix_b(lane);
    const uint32_t a_row = row + a_place.row, b_row = col + b_place.row;
    // The rows of all fragments differ by multiples of 16, so they share one key.
    const uint32_t a_key = tile::row_key(tile::Swizzle::b128, a_row);
    const uint32_t b_key = tile::row_key(tile::Swizzle::b128, b_row);
    HT_UNROLL
    for (uint32_t k = 0; k < MmaBlock::kDepth / 16; ++k) {
      uint32_t a_fragment[4][4], b_fragment[8][2];
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        hw::ldmatrix(
            a_fragment[i],
            a + (a_row + 16 * i) * MmaBlock::kRowBytes + (((2 * k + a_place.chunk) * 16) ^ a_key),
            site);
      }
      HT_UNROLL
      for (uint32_t j = 0; j < 8; j += 2) {  // one ldmatrix fills two fragments of B
        uint32_t two[4];
        hw::ldmatrix(
            two,
            b + (b_row + 8 * j) * MmaBlock::kRowBytes + (((2 * k + b_place.chunk) * 16) ^ b_key),
            site);
        b_fragment[j][0] = two[0], b_fragment[j][1] = two[1];
        b_fragment[j + 1][0] = two[2], b_fragment[j + 1][1] = two[3];
      }
      multiply(a_fragment, b_fragment, site);
    }
  }

  // Rounds to bf16 and writes what lies inside C.
  HT_DEVICE void store(uint16_t* c, uint32_t m, uint32_t n, uint32_t block_row, uint32_t block_col,
                       hw::Site site = hw::Site::current()) const {
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      pipe::store_direct<kExtent>(sum[i][0], c, n, m, n, block_row + row + 16 * i, block_col + col,
                                  ToBf16(), site);
    }
  }
};

}  // namespace halftone::ladder
