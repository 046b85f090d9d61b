// The epilogue of the mixed-input GEMM on sm_90a: scales, bias, activation or gate, residual and
// conversion of a tile of 128 rows of W by kColumns rows of x. A warpgroup holds its 64 x kColumns
// accumulator in wgmma fragments, a row of W across the lanes of a quad, while consecutive outputs
// of a row of x belong together in memory. So results are transposed through shared memory: as BF16
// or FP16 for a TMA store where scales and bias are all there is, or as FP32 for threads that run
// the general epilogue by rows (sm90/epilogue_rows.cuh).
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
  partials_full0,  // partial accumulators of the second K group, by warpgroup row
  partials_full1,
  partials_empty0,
  partials_empty1,
  count
};

template <class Stages>
struct Sm90Epilogue : Sm90EpilogueRows {
  using Tile = Sm90Tile;
  static constexpr uint32_t kColumns = Stages::kColumns, kPiece = Stages::kPiece;
  static constexpr EpilogueSet kSet = kColumns > 64 || Stages::kKGroups == 2 ? EpilogueSet::none
                                      : Stages::kBlocks == 2                 ? EpilogueSet::ungated
                                                                             : EpilogueSet::all;

  const Sm90Params& params;
  hw::SharedAddress base;
  uint32_t group;  // the warpgroup, which owns one panel of 64 rows of W

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

  // Behind the staged accumulator.
  HT_DEVICE hw::SharedAddress scale_bias() const { return staging() + kPiece * Stages::kPieceRow; }
  HT_DEVICE void stage_scale_bias(const Tile& t) const {
    // In tiles of 256 columns no registers are left for weight scales, which 16-bit weights lack
    // anyway.
    Sm90EpilogueRows::stage_scale_bias<!Stages::kUnquantised>(t, scale_bias(), group);
  }
  HT_DEVICE Sm90StagedTile staged_at(hw::SharedAddress sums, uint32_t pitch) const {
    return {sums, scale_bias(), pitch, 4, group};
  }

  HT_DEVICE void tile(const Tile& t, const float (&sums)[kColumns / 2]) const {
    if constexpr (Stages::kCanTmaStore) {
      if (params.tma_store) return tma_store_tile(t, sums);
    }
    sync();  // the previous tile's staging has been read
    stage_scale_bias(t);
    const Sm90StagedTile staged = staged_at(staging(), Stages::kPieceRow);
    HT_ROLLED
    for (uint32_t piece = 0; piece < kColumns / kPiece; ++piece) {
      if (t.m0 + piece * kPiece >= t.end) break;
      if (piece > 0) sync();
      HT_UNROLL
      for (uint32_t i = 0; i < kColumns / kPiece; ++i) {
        if (i == piece) store_sums<kPiece>(sums + i * kPiece / 2, staged);
      }
      sync();
      store_rows<kSet>(t, staged, 0, kPiece, t.m0 + piece * kPiece, 1);
    }
  }

  // A thread's accumulator columns to the staging buffer.
  template <uint32_t kCount>
  HT_DEVICE void store_sums(const float* sums, const Sm90StagedTile& staged,
                            hw::Site site = hw::Site::current()) const {
    HT_UNROLL
    for (uint32_t j = 0; j < kCount / 8; ++j) {
      HT_UNROLL
      for (uint32_t e = 0; e < 4; ++e) {
        const uint32_t column = j * 8 + lane % 4 * 2 + e % 2;
        const uint32_t row = warp * 16 + lane / 4 + e / 2 * 8;
        hw::store_shared(staged.sums + (column * staged.pitch + row * 4), sums[j * 4 + e], site);
      }
    }
  }

  // Cluster split-K: each CTA of the cluster holds the partial accumulator of its range of K and
  // finishes its share of the rows of x, adding the partials in rank order through distributed
  // shared memory. Scales and biases have been staged already.
  HT_DEVICE void split_k_tile(const Tile& t, const float (&sums)[kColumns / 2]) const {
    pipe::sync<Sm90Barrier::both>(2 * kThreads);  // the mainloop's stages are free now
    const Sm90StagedTile staged = staged_at(base + group * 64 * 4, Stages::kSumRow);
    store_sums<kColumns>(sums, staged);
    hw::cluster_arrive();
    hw::cluster_wait();
    const uint32_t share = (kColumns + params.split - 1) / params.split;
    const uint32_t first = hw::cluster_rank() * share;
    const uint32_t end = first + share < kColumns ? first + share : kColumns;
    store_rows<kSet>(t, staged, first, end - first, t.m0 + first, params.split);
  }

  // Scales, bias, rounding, and TMA stores of 64 outputs by 32 rows.
  HT_DEVICE void tma_store_tile(const Tile& t, const float (&sums)[kColumns / 2]) const {
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
      // Two pieces at a time, so that the next tile starts with the buffer that this one did not
      // use last. Rows beyond the end of x are clipped by the tensor map.
      if (piece % 2 == 0 && t.m0 + piece * kPiece >= t.end) break;
      const hw::SharedAddress buffer = staging() + piece % 2 * Stages::kPieceBytes;
      if (thread == 0) hw::bulk_wait_read<1>();  // the store before the last has read its buffer
      sync();
      HT_UNROLL
      for (uint32_t j = 0; j < kPiece / 8; j += 2) {
        uint32_t packed[4];  // columns j and j + 1, rows r and r + 8 of each
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
        // Lane l supplies the address of row l % 8 of 8x8 matrix l / 8: 8 outputs of a row of x.
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
  // Shared memory must outlive the TMA stores that read it.
  HT_DEVICE void drain() const {
    if (thread == 0) hw::bulk_wait_read<0>();
  }
};

}  // namespace halftone::gemm
