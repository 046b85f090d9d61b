// Step 2, shared tiles: a block copies 128 x 16 tiles of A and B to shared memory, widened to f32,
// and every thread computes 8 x 8 elements from them in registers.
//
// An element fetched from global memory now serves 128 multiply-adds and one from shared memory 8.
// The bound moves to the FP32 units.
#pragma once
#include "hw/barrier.h"
#include "hw/convert/convert.h"
#include "hw/math.h"
#include "hw/memory.h"
#include "hw/thread.h"
#include "product.h"

namespace halftone::ladder {

struct SharedTiles {
  using Params = Product;
  static constexpr uint32_t kTile = 128;  // of C, both ways: 16 x 16 threads of 8 x 8 elements
  static constexpr uint32_t kDepth = 16;  // of K: one 16-byte load a thread and operand
  static constexpr uint32_t kThreads = 256, kMinBlocks = 2;

  // Shared memory: [k][row] of A, then of B, so that what a thread needs of one k lies together.
  static constexpr uint32_t kOperandBytes = kDepth * kTile * sizeof(float);

  static LaunchShape shape(const Product& p) {
    return grid_of_tiles(p.m, p.n, kTile, kTile, kThreads, 2 * kOperandBytes);
  }

  // 8 neighbours along K of one row, written as a column. Rows past the end are zeros.
  HT_DEVICE static void copy(hw::SharedAddress to, const uint16_t* matrix, uint32_t row,
                             uint32_t rows, uint32_t k, uint32_t depth, uint32_t thread) {
    // Neighbouring threads take neighbouring rows: their stores fall into 32 different banks.
    const uint32_t tile_row = thread % kTile, tile_k = thread / kTile * 8;
    hw::Vector<uint16_t, 8> values{};
    if (row + tile_row < rows && k + tile_k < depth) {
      values = hw::load_global(reinterpret_cast<const hw::Vector<uint16_t, 8>*>(
          matrix + uint64_t{row + tile_row} * depth + k + tile_k));
    }
    for (uint32_t i = 0; i < 8; ++i) {
      hw::store_shared(to + ((tile_k + i) * kTile + tile_row) * 4, hw::cvt_f32_bf16(values[i]));
    }
  }

  HT_DEVICE static void run(const Params& p) {
    const uint32_t thread = hw::thread_index().x;
    const uint32_t first_row = hw::block_index().y * kTile, first_col = hw::block_index().x * kTile;
    const hw::SharedAddress a = hw::shared_memory_base(), b = a + kOperandBytes;
    // A thread's 8 rows are 4 and, 64 further, 4 more (columns likewise): the 16-byte loads of
    // eight neighbouring threads then cover 128 bytes without a bank conflict.
    const uint32_t row = thread / 16 * 4, col = thread % 16 * 4;

    float sum[8][8] = {};
    for (uint32_t k = 0; k < p.k; k += kDepth) {
      copy(a, p.a, first_row, p.m, k, p.k, thread);
      copy(b, p.b, first_col, p.n, k, p.k, thread);
      hw::barrier_sync();
      for (uint32_t i = 0; i < kDepth; ++i) {
        using Four = hw::Vector<float, 4>;
        const hw::SharedAddress ai = a + i * kTile * 4, bi = b + i * kTile * 4;
        const Four a_half[2] = {hw::load_shared<Four>(ai + row * 4),
                                hw::load_shared<Four>(ai + (row + 64) * 4)};
        const Four b_half[2] = {hw::load_shared<Four>(bi + col * 4),
                                hw::load_shared<Four>(bi + (col + 64) * 4)};
        HT_UNROLL
        for (uint32_t y = 0; y < 8; ++y) {
          HT_UNROLL
          for (uint32_t x = 0; x < 8; ++x) {
            sum[y][x] = hw::fma(a_half[y / 4][y % 4], b_half[x / 4][x % 4], sum[y][x]);
          }
        }
      }
      hw::barrier_sync();
    }

    HT_UNROLL
    for (uint32_t y = 0; y < 8; ++y) {
      HT_UNROLL
      for (uint32_t x = 0; x < 8; x += 2) {
        const uint32_t r = first_row + row + y % 4 + y / 4 * 64;
        const uint32_t c = first_col + col + x % 4 + x / 4 * 64;
        if (r < p.m && c < p.n) {
          hw::store_global(reinterpret_cast<uint32_t*>(p.c + uint64_t{r} * p.n + c),
                           hw::cvt_bf16x2(sum[y][x], sum[y][x + 1]));
        }
      }
    }
  }
};

}  // namespace halftone::ladder
