// Step 3, mma.sync: the tiles stay bf16 in shared memory and the tensor cores multiply them, 16 x 8
// x 16 elements an instruction and warp.
//
// The arithmetic is now 16 times cheaper, so shared memory is the bound: the fragments are read in
// plain row-major order, where the eight rows of a fragment lie 128 bytes apart, in one bank.
#pragma once
#include "hw/barrier.h"
#include "tile/fragment.h"
#include "warp_tile.h"

namespace halftone::ladder {

struct MmaSync : MmaBlock {
  using Params = Product;

  static LaunchShape shape(const Product& p) {
    return grid_of_tiles(p.m, p.n, kTile, kTile, kThreads, kStageBytes);
  }

  // 128 rows of 64 elements, 16 bytes a thread and turn. Rows past the end are zeros.
  HT_DEVICE static void copy(hw::SharedAddress to, const uint16_t* matrix, uint32_t row,
                             uint32_t rows, uint32_t k, uint32_t depth) {
    const uint32_t thread = hw::thread_index().x, chunk = thread % 8;
    HT_UNROLL
    for (uint32_t i = 0; i < kTile; i += kThreads / 8) {
      const uint32_t tile_row = i + thread / 8, element = k + chunk * 8;
      hw::Words4 values{};
      if (row + tile_row < rows && element < depth) {
        values = hw::load_global(reinterpret_cast<const hw::Words4*>(
            matrix + uint64_t{row + tile_row} * depth + element));
      }
      hw::store_shared(to + tile_row * kRowBytes + chunk * 16, values);
    }
  }

  HT_DEVICE static void run(const Params& p) {
    const uint32_t row = hw::block_index().y * kTile, col = hw::block_index().x * kTile;
    const hw::SharedAddress a = hw::shared_memory_base(), b = a + kOperandBytes;
    const int lane = static_cast<int>(hw::lane_index());

    WarpTile tile;
    for (uint32_t k = 0; k < p.k; k += kDepth) {
      copy(a, p.a, row, p.m, k, p.k);
      copy(b, p.b, col, p.n, k, p.k);
      hw::barrier_sync();
      HT_UNROLL
      for (uint32_t step = 0; step < kDepth; step += 16) {
        uint32_t a_fragment[4][4], b_fragment[8][2];
        HT_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
          HT_UNROLL
          for (int reg = 0; reg < 4; ++reg) {
            const tile::Element e = tile::mma_a_element({lane, reg, 0}, 16);
            a_fragment[i][reg] = hw::load_shared<uint32_t>(
                a + (tile.row + 16 * i + e.row) * kRowBytes + (step + e.col) * 2);
          }
        }
        HT_UNROLL
        for (uint32_t j = 0; j < 8; ++j) {
          HT_UNROLL
          for (int reg = 0; reg < 2; ++reg) {
            const tile::Element e = tile::mma_b_element({lane, reg, 0}, 16);  // row k, column n
            b_fragment[j][reg] = hw::load_shared<uint32_t>(
                b + (tile.col + 8 * j + e.col) * kRowBytes + (step + e.row) * 2);
          }
        }
        tile.multiply(a_fragment, b_fragment);
      }
      hw::barrier_sync();
    }
    tile.store(p.c, p.m, p.n, row, col);
  }
};

}  // namespace halftone::ladder
