// Step 1, naive: a thread for every element of C, which reads its row of A and its row of B.
//
// Every element of A is read n times and every element of B m times, two bytes at a time: the
// caches serve 2 loads a multiply-add, and that is the bound.
#pragma once
#include "hw/convert/convert.h"
#include "hw/math.h"
#include "hw/memory.h"
#include "hw/thread.h"
#include "product.h"

namespace halftone::ladder {

struct Naive {
  using Params = Product;
  static constexpr uint32_t kTile = 16;  // a block computes 16 x 16 elements
  static constexpr uint32_t kThreads = kTile * kTile, kMinBlocks = 1;

  static LaunchShape shape(const Product& p) {
    return grid_of_tiles(p.m, p.n, kTile, kTile, kThreads, 0);
  }

  HT_DEVICE static void run(const Params& p) {
    const uint32_t thread = hw::thread_index().x;
    const uint32_t row = hw::block_index().y * kTile + thread / kTile;
    const uint32_t col = hw::block_index().x * kTile + thread % kTile;
    if (row >= p.m || col >= p.n) return;
    const uint16_t* a = p.a + uint64_t{row} * p.k;
    const uint16_t* b = p.b + uint64_t{col} * p.k;
    float sum = 0;
    for (uint32_t k = 0; k < p.k; ++k) {
      sum = hw::fma(hw::cvt_f32_bf16(hw::load_global(a + k)),
                    hw::cvt_f32_bf16(hw::load_global(b + k)), sum);
    }
    hw::store_global(p.c + uint64_t{row} * p.n + col, hw::cvt_bf16(sum));
  }
};

}  // namespace halftone::ladder
