// The end of a tile on Hopper. A warpgroup has 64 rows of W by kColumns rows of x in registers, a
// row of W in the lanes of a quad; memory wants neighbouring outputs beside one another. So results
// pass through shared memory: as bf16 or f16 on to the copy engine where that is all, or as f32 to
// threads that finish whole rows in any way (gpu_finish.h).
#pragma once
#include "hw/fence.h"
#include "hw/mma/stmatrix.h"
#include "ops/gemm/sm90/epilogue_rows.cuh"
#include "ops/gemm/sm90/mixed/stages.h"
#include "pipe/named_barrier.h"
#include "pipe/uniform.h"
#include "tile/swizzle.h"

namespace halftone::gemm {

enum class Sm90Barrier {
  first_group,
  second_group,
  both,
  handed0,  // the sums of the second pair of warpgroups, by rows of W
  handed1,
  taken0,
  taken1,
  count
};

template <class Stages>
struct Sm90Epilogue : Sm90EpilogueRows {
  using Tile = Sm90Tile;
  static constexpr uint32_t kColumns = Stages::kColumns, kPiece = Stages::kPiece;
  static constexpr EpilogueSet kShort = kColumns > 64 || Stages::kPairs == 2 ? EpilogueSet::none
                                        : Stages::kBlocks == 2               ? EpilogueSet::ungated
                                                                             : EpilogueSet::all;

  const Sm90Params& params;
  hw::SharedAddress base;
  uint32_t group;  // the warpgroup, whose rows of W are the tile's panel

  HT_DEVICE Sm90Epilogue(const Sm90Params& all, hw::SharedAddress shared)
      : Sm90EpilogueRows(all.gemm), params(all), base(shared) {
    group = pipe::uniform(hw::warp_index()) / 4 - 1;
  }

  HT_DEVICE void sync(hw::Site site = hw::Site::current()) const {
    pipe::sync<Sm90Barrier::first_group, Sm90Barrier::second_group>(group, kThreads, site);
  }
  HT_DEVICE hw::SharedAddress staging() const {
    return base + (Stages::kOut + group * Stages::kStaging);
  }

  // After the sums of the staging area.
  HT_DEVICE hw::SharedAddress factors() const { return staging() + kPiece * Stages::kPieceRow; }
  HT_DEVICE void store_factors(const Tile& t) const {
    // Beside the sums of 256 columns there are no registers for scales that plain weights lack.
    Sm90EpilogueRows::store_factors<!Stages::kPlain>(t, factors(), group);
  }
  HT_DEVICE Sm90StagedTile area_at(hw::SharedAddress sums, uint32_t pitch) const {
    return {sums, factors(), pitch, 4, group};
  }

  HT_DEVICE void tile(const Tile& t, const float (&sums)[kColumns / 2]) const {
    if constexpr (Stages::kCanCopyOut) {
      if (params.tma_store) return copy_out(t, sums);
    }
    sync();  // the tile before has been read
    store_factors(t);
    const Sm90StagedTile area = area_at(staging(), Stages::kPieceRow);
    HT_ROLLED
    for (uint32_t piece = 0; piece < kColumns / kPiece; ++piece) {
      if (t.m0 + piece * kPiece >= t.end) break;
      if (piece > 0) sync();
      HT_UNROLL
      for (uint32_t i = 0; i < kColumns / kPiece; ++i) {
        if (i == piece) store_sums<kPiece>(sums + i * kPiece / 2, area);
      }
      sync();
      finish<kShort>(t, area, 0, kPiece, t.m0 + piece * kPiece, 1);
    }
  }

  // Columns of a thread's sums to the area.
  template <uint32_t kCount>
  HT_DEVICE void store_sums(const float* sums, const Sm90StagedTile& area,
                            hw::Site site = hw::Site::current()) const {
    HT_UNROLL
    for (uint32_t j = 0; j < kCount / 8; ++j) {
      HT_UNROLL
      for (uint32_t e = 0; e < 4; ++e) {
        const uint32_t column = j * 8 + lane % 4 * 2 + e % 2;
        const uint32_t row = warp * 16 + lane / 4 + e / 2 * 8;
        hw::store_shared(area.sums + (column * area.pitch + row * 4), sums[j * 4 + e], site);
      }
    }
  }

  // Each block of the cluster has the sums of its part of K, and finishes its share of the rows of
  // x: the parts are added in their order. The factors are there.
  HT_DEVICE void split_tile(const Tile& t, const float (&sums)[kColumns / 2]) const {
    pipe::sync<Sm90Barrier::both>(2 * kThreads);  // nobody reads the stages any more
    const Sm90StagedTile area = area_at(base + group * 64 * 4, Stages::kSumRow);
    store_sums<kColumns>(sums, area);
    hw::cluster_arrive();
    hw::cluster_wait();
    const uint32_t share = (kColumns + params.split - 1) / params.split;
    const uint32_t first = hw::cluster_rank() * share;
    const uint32_t end = first + share < kColumns ? first + share : kColumns;
    finish<kShort>(t, area, first, end - first, t.m0 + first, params.split);
  }

  // Scales and bias, rounding, and 64 outputs of 32 rows at a time to the copy engine.
  HT_DEVICE void copy_out(const Tile& t, const float (&sums)[kColumns / 2]) const {
    const GpuEpilogue& f = p.epilogue;
    float scale[2], bias[2];
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t n = t.n0 + group * 64 + warp * 16 + lane / 4 + half * 8;
      scale[half] = n < p.n ? row_scale(p.weight, t.source[0], n) * p.alpha : 0;
      bias[half] = n < p.n && f.bias[0] != nullptr
                       ? pipe::load_element(f.bias_format, f.bias[0] + n * f.bias_step)
                       : 0;
    }
    HT_UNROLL
    for (uint32_t piece = 0; piece < kColumns / kPiece; ++piece) {
      // By twos, so that the next tile begins with the other buffer than this one ended with. What
      // is stored behind the end is behind all rows.
      if (piece % 2 == 0 && t.m0 + piece * kPiece >= t.end) break;
      const hw::SharedAddress buffer = staging() + piece % 2 * Stages::kPieceBytes;
      if (thread == 0) hw::bulk_wait_read<1>();  // the copy before the last has read it
      sync();
      HT_UNROLL
      for (uint32_t j = 0; j < kPiece / 8; j += 2) {
        uint32_t packed[4];  // of columns j and j + 1, each rows r and r + 8
        HT_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
          const float* v = sums + piece * kPiece / 2 + (j + i / 2) * 4 + i % 2 * 2;
          float x[2] = {1, 1};
          if (f.row_scales != nullptr) {
            const uint32_t m = t.m0 + piece * kPiece + (j + i / 2) * 8 + lane % 4 * 2;
            HT_UNROLL
            for (uint32_t e = 0; e < 2; ++e) {
              if (m + e < p.m) x[e] = hw::load_global(f.row_scales + (m + e) * f.row_scale_step);
            }
          }
          packed[i] =
              pipe::narrow_pair(f.out_format, hw::fma(v[0] * scale[i % 2], x[0], bias[i % 2]),
                                hw::fma(v[1] * scale[i % 2], x[1], bias[i % 2]));
        }
        // Lane l has the address of row l % 8 of matrix l / 8: 8 outputs of a row of x.
        const uint32_t m = (j + lane / 16) * 8 + lane % 8, chunk = warp * 2 + lane / 8 % 2;
        hw::stmatrix_trans(buffer + (m * 128 + ((chunk ^ (m % 8)) * 16)), packed);
      }
      hw::fence_proxy_async_shared();
      sync();
      if (thread == 0) {
        hw::tensor_store(
            &params.out,
            {static_cast<int32_t>(t.n0 + group * 64), static_cast<int32_t>(t.m0 + piece * kPiece)},
            buffer);
        hw::bulk_commit();
      }
    }
  }
  // Before the block ends, and its shared memory with it.
  HT_DEVICE void drain() const {
    if (thread == 0) hw::bulk_wait_read<0>();
  }
};

}  // namespace halftone::gemm
