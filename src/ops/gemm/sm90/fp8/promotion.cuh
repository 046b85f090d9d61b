// A promotion interval of the FP8 GEMMs on sm_90a: the wgmma of 64 rows of x by a tile's rows of W
// over 128 elements of K, and their scaled promotion into an FP32 sum. `Stages` as in fp8/stages.h.
#pragma once
#include "hw/mma/wgmma.h"
#include "ops/gemm/sm90/tile.cuh"

namespace halftone::gemm {

template <class Stages>
struct Sm90Fp8Promotion {
  using Accumulator = float[Stages::kRows / 2];  // of 16 rows of x a warp

  // 64 rows of x by all of W, 128 elements of K.
  HT_DEVICE static void start_mma(hw::SharedAddress x, hw::SharedAddress w,
                                  Accumulator& accumulator, hw::Site site = hw::Site::current()) {
    constexpr tile::SharedTile x_tile{tile::Major::k, tile::Swizzle::b128, 8,
                                      Stages::kWarpgroupRows, Stages::kDepth};
    constexpr tile::SharedTile w_tile{tile::Major::k, tile::Swizzle::b128, 8, Stages::kRows,
                                      Stages::kDepth};
    static_assert(x_tile.valid() && w_tile.valid());
    const auto a = tile::WgmmaDescriptor::of(x_tile, x.value);
    const auto b = tile::WgmmaDescriptor::of(w_tile, w.value);
    hw::hold_registers(accumulator, site);
    hw::wgmma_fence(site);
    HT_UNROLL
    for (uint32_t k = 0; k < Stages::kDepth; k += 32) {
      hw::wgmma<hw::Type::e4m3>(accumulator, a.advanced(x_tile.advance(0, k)),
                                b.advanced(w_tile.advance(0, k)), k > 0, site);
    }
    hw::wgmma_commit(site);
  }

  // The scales of the lane's two rows of x times those of each row group of W. With one scale for
  // all of a tile's W (kOneRowGroup) that is folded into the scales of x.
  struct RowScales {
    float of[Stages::kRowGroups][2];
  };
  template <bool kOneRowGroup>
  HT_DEVICE static RowScales load_scales(hw::SharedAddress scales, uint32_t row,
                                         hw::Site site = hw::Site::current()) {
    float rows[2];
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      rows[half] = hw::load_shared<float>(scales + (row + half * 8) * 4, site);
    }
    RowScales f;
    if constexpr (kOneRowGroup) {
      HT_UNROLL
      for (uint32_t run = 0; run < Stages::kRowGroups; ++run)
        f.of[run][0] = rows[0], f.of[run][1] = rows[1];
      return f;
    }
    constexpr uint32_t kLoad = Stages::kRowGroups % 4 == 0 ? 4 : 2;
    HT_UNROLL
    for (uint32_t first = 0; first < Stages::kRowGroups; first += kLoad) {
      const auto runs = hw::load_shared<hw::Vector<float, kLoad>>(
          scales + (Stages::kRowGroupScales + first * 4), site);
      HT_UNROLL
      for (uint32_t i = 0; i < kLoad; ++i) {
        HT_UNROLL
        for (uint32_t half = 0; half < 2; ++half) f.of[first + i][half] = rows[half] * runs[i];
      }
    }
    return f;
  }
  // All sums of one row, then those of the other: the scale stays in the operand reuse cache.
  HT_DEVICE static void promote(const RowScales& f, const Accumulator& accumulator,
                                Accumulator& promoted) {
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      HT_UNROLL
      for (uint32_t j = 0; j < Stages::kRows / 4; ++j) {
        const uint32_t i = j / 2 * 4 + half * 2 + j % 2;
        promoted[i] = hw::fma(accumulator[i], f.of[i * 2 / Stages::kRowGroup][half], promoted[i]);
      }
    }
  }
};

}  // namespace halftone::gemm
