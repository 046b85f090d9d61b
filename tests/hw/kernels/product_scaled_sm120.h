// D = A B^T with block scales on sm_120a, one tile of 64 x 32 by four warps: MXFP8 (K 128) or NVFP4
// (K 256), both 128 bytes a row. Codes go through swizzled shared memory and ldmatrix, scales
// straight into the registers of the lanes that hold them.
#pragma once
#include "hw/barrier.h"
#include "hw/copy/cp_async.h"
#include "hw/memory.h"
#include "hw/mma/ldmatrix.h"
#include "hw/mma/mma_block_scale.h"
#include "hw/thread.h"
#include "tile/fragment.h"
#include "tile/ldmatrix.h"
#include "tile/swizzle.h"

namespace halftone::test {

template <bool fp4>
struct ProductScaledSm120 {
  struct Params {
    const uint8_t *a, *b;                 // [64, 128], [32, 128] bytes of codes
    const uint32_t *a_scales, *b_scales;  // a word of four scales: [rows, 1], FP4 [rows, 4]
    float* d;                             // [64, 32]
  };
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1;
  static constexpr uint32_t kRowBytes = 128, kRowsA = 64, kRowsB = 32;
  static constexpr uint32_t kSharedBytes = (kRowsA + kRowsB) * kRowBytes;
  static constexpr uint32_t kWords = fp4 ? 4 : 1;  // of scales in a row

  HT_DEVICE static void run(const Params& p) {
    using namespace hw;
    const SharedAddress a = shared_memory_base(), b = a + kRowsA * kRowBytes;
    for (uint32_t i = thread_index().x; i < (kRowsA + kRowsB) * 8; i += kThreads) {
      const uint32_t row = i / 8, chunk = i % 8;
      const uint8_t* from = row < kRowsA ? p.a + row * kRowBytes : p.b + (row - kRowsA) * kRowBytes;
      cp_async<16>(a + tile::chunk_offset(tile::Swizzle::b128, row, chunk), from + chunk * 16);
    }
    cp_async_commit();
    cp_async_wait<0>();
    barrier_sync();
    float d[4][4] = {};
    steps<0>(p, a, b, d);
    const auto lane = static_cast<int>(lane_index());
    for (uint32_t n = 0; n < 4; ++n) {
      for (int i = 0; i < 4; ++i) {
        const tile::Element at = tile::mma_c_element(lane, i);
        const uint32_t row = warp_index() * 16 + static_cast<uint32_t>(at.row);
        store_global(p.d + row * kRowsB + n * 8 + static_cast<uint32_t>(at.col), d[n][i]);
      }
    }
  }

 private:
  // One instruction along K reads 32 bytes of each row; which byte of a scale word it uses is an
  // immediate.
  template <uint32_t step>
  HT_DEVICE static void steps(const Params& p, hw::SharedAddress a, hw::SharedAddress b,
                              float (&d)[4][4]) {
    if constexpr (step < 4) {
      using namespace hw;
      const uint32_t lane = lane_index(), warp = warp_index();
      const auto row_of = [](SharedAddress tile, uint32_t first, tile::RowChunk at) {
        return tile + tile::chunk_offset(tile::Swizzle::b128, first + static_cast<uint32_t>(at.row),
                                         step * 2 + static_cast<uint32_t>(at.chunk));
      };
      uint32_t a_fragment[4], b_fragment[2][4];
      ldmatrix(a_fragment, row_of(a, warp * 16, tile::ldmatrix_a(static_cast<int>(lane))));
      for (uint32_t pair = 0; pair < 2; ++pair) {
        ldmatrix(b_fragment[pair], row_of(b, pair * 16, tile::ldmatrix_b(static_cast<int>(lane))));
      }
      // Selector 0: lanes 0 and 1 of a quad hold the scales of rows lane / 4 and 8 further of A,
      // lane 0 those of column lane / 4 of B. The others hold something that is not read.
      const uint32_t word = fp4 ? step : 0;
      const uint32_t a_row = warp * 16 + lane / 4 + lane % 2 * 8;
      const uint32_t a_scales = load_global(p.a_scales + a_row * kWords + word);
      for (uint32_t n = 0; n < 4; ++n) {
        const uint32_t b_scales = load_global(p.b_scales + (n * 8 + lane / 4) * kWords + word);
        const uint32_t(&four)[4] = b_fragment[n / 2];
        const uint32_t two[2] = {four[n % 2 * 2], four[n % 2 * 2 + 1]};
        if constexpr (fp4) {
          mma_mxf4nvf4<Type::ue4m3>(d[n], a_fragment, two, d[n], a_scales, b_scales,
                                    ScaleAt<0, 0>{}, ScaleAt<0, 0>{});
        } else {
          mma_mxf8f6f4<Type::e4m3, Type::e4m3>(d[n], a_fragment, two, d[n], a_scales, b_scales,
                                               ScaleAt<step, 0>{}, ScaleAt<step, 0>{});
        }
      }
      steps<step + 1>(p, a, b, d);
    }
  }
};

}  // namespace halftone::test
