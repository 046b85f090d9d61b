// Step 4, swizzle: 16-byte chunk c of row r is stored at chunk c ^ r % 8, and ldmatrix reads four
// 8 x 8 matrices at a time.
//
// The eight rows of a matrix now lie in eight different chunks, all 32 banks, with no byte of
// padding: the conflicts are gone, and a fragment of A costs one instruction instead of four.
#pragma once
#include "hw/barrier.h"
#include "warp_tile.h"

namespace halftone::ladder {

struct Swizzled : MmaBlock {
  using Params = Product;

  static LaunchShape shape(const Product& p) {
    return grid_of_tiles(p.m, p.n, kTile, kTile, kThreads, kStageBytes);
  }

  // As in step 3, but for the place a chunk goes to.
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
      hw::store_shared(to + tile::chunk_offset(tile::Swizzle::b128, tile_row, chunk), values);
    }
  }

  HT_DEVICE static void run(const Params& p) {
    const uint32_t row = hw::block_index().y * kTile, col = hw::block_index().x * kTile;
    const hw::SharedAddress a = hw::shared_memory_base(), b = a + kOperandBytes;

    WarpTile tile;
    for (uint32_t k = 0; k < p.k; k += kDepth) {
      copy(a, p.a, row, p.m, k, p.k);
      copy(b, p.b, col, p.n, k, p.k);
      hw::barrier_sync();
      tile.multiply_stage(a, b);
      hw::barrier_sync();
    }
    tile.store(p.c, p.m, p.n, row, col);
  }
};

}  // namespace halftone::ladder
