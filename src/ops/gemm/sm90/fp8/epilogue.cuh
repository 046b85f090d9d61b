// The epilogue of the FP8 GEMM on sm_90a. A warp holds 16 rows of x in fragments, with consecutive
// outputs side by side as memory wants them: BF16 and FP16 leave by TMA stores of each warp;
// anything else passes through shared memory as FP32 and the general epilogue by rows
// (sm90/epilogue_rows.cuh).
#pragma once
#include "ops/gemm/sm90/epilogue_rows.cuh"
#include "ops/gemm/sm90/fp8/stages.h"
#include "pipe/named_barrier.h"

namespace halftone::gemm {

struct Sm90Fp8Epilogue : Sm90EpilogueRows {
  using Stages = Sm90Fp8Stages;
  using Accumulator = float[Stages::kRows / 2];  // of 16 rows of x a warp
  enum class Barrier { first_group, second_group, count };

  const Sm90Params& params;
  const uint32_t group;
  const hw::SharedAddress staging;
  Stages::Store out;

  // `mma_warp`: index among the consumer warps.
  HT_DEVICE Sm90Fp8Epilogue(const Sm90Params& all, hw::SharedAddress base, uint32_t mma_warp)
      : Sm90EpilogueRows(all.gemm),
        params(all),
        group(mma_warp / 4),
        staging(base + (Stages::kOut + group * Stages::kStaging)),
        out(staging + warp * Stages::Store::kSharedBytes) {}

  HT_DEVICE void sync(hw::Site site = hw::Site::current()) const {
    pipe::sync<Barrier::first_group, Barrier::second_group>(group, kThreads, site);
  }
  HT_DEVICE hw::SharedAddress scale_bias(uint32_t panel) const {
    return staging + (Stages::kScaleBias + panel * kSm90ScaleBiasBytes);
  }

  // Stages scales and biases while the mainloop runs.
  HT_DEVICE void begin(const Sm90Tile& t) const {
    sync();  // those of the previous tile have been read
    HT_UNROLL
    for (uint32_t panel = 0; panel < Stages::kPanels; ++panel) {
      stage_scale_bias(t, scale_bias(panel), panel);
    }
    sync();
  }

  // 64 rows of x of each sub-tile, 16 a warp.
  HT_DEVICE void tile(const Sm90Tile& t, Accumulator (&sums)[Stages::kSubTiles]) {
    bool left = false;  // some rows are stored by threads
    HT_UNROLL
    for (uint32_t sub = 0; sub < Stages::kSubTiles; ++sub) {
      if (!tma_stores(t, sub)) {
        left = true;
      } else if (first_row(t, sub) < t.end) {
        const uint32_t own = first_row(t, sub) + warp * 16;
        const Format format = p.epilogue.out_format;
        affine(own, t.end, sums[sub]);
        out.store(sums[sub], &params.out, own, t.n0,
                  [format](float low, float high) { return pipe::narrow_pair(format, low, high); });
      }
    }
    if (left) store_by_threads(t, sums);
  }
  HT_DEVICE uint32_t first_row(const Sm90Tile& t, uint32_t sub) const {
    return t.m0 + sub * Stages::kSubTileRows + group * Stages::kWarpgroupRows;
  }
  // Where a chunk ends within the rows of a sub-tile, the following rows belong to another chunk.
  HT_DEVICE bool tma_stores(const Sm90Tile& t, uint32_t sub) const {
    return params.tma_store &&
           (params.max_chunks == 0 || first_row(t, sub) + Stages::kWarpgroupRows <= t.end);
  }

  // What TMA does not store, 32 rows by 64 outputs at a time: instantiated once, as it is long.
  HT_DEVICE void store_by_threads(const Sm90Tile& t,
                                  const Accumulator (&sums)[Stages::kSubTiles]) const {
    constexpr uint32_t kPieces = Stages::kWarpgroupRows / Stages::kPiece;
    HT_ROLLED
    for (uint32_t i = 0; i < Stages::kSubTiles * Stages::kPanels * kPieces; ++i) {
      const uint32_t sub = i / (Stages::kPanels * kPieces), panel = i / kPieces % Stages::kPanels;
      const uint32_t piece = i % kPieces, m0 = first_row(t, sub) + piece * Stages::kPiece;
      if (tma_stores(t, sub) || m0 >= t.end) continue;
      if (lane == 0) hw::bulk_wait_read<0>();  // earlier TMA stores have read the buffer
      sync();
      const Sm90StagedTile staged{staging, scale_bias(panel), Stages::kPieceRow, 2, panel};
      HT_UNROLL
      for (uint32_t j = 0; j < Stages::kSubTiles * Stages::kPanels; ++j) {
        if (j == i / kPieces && warp / 2 == piece) {
          store_sums(sums[j / Stages::kPanels] + j % Stages::kPanels * 32, staged);
        }
      }
      sync();
      generic_rows(t, staged, 0, Stages::kPiece, m0, 1);
    }
  }

  // Scales and biases of the outputs, scales of rows of x.
  HT_DEVICE void affine(uint32_t m0, uint32_t end, Accumulator& sums) const {
    using Pair = hw::Vector<float, 2>;
    const GpuEpilogue& f = p.epilogue;
    float of_row[2];
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t m = m0 + lane / 4 + half * 8, own = m < end ? m : end - 1;
      of_row[half] =
          f.row_scales != nullptr ? hw::load_global(f.row_scales + own * f.row_scale_step) : 1.0f;
      if (f.row_weights != nullptr) of_row[half] *= hw::load_global(f.row_weights + own);
    }
    HT_UNROLL
    for (uint32_t j = 0; j < Stages::kRows / 8; ++j) {
      const hw::SharedAddress at = scale_bias(j / 8) + (j % 8 * 8 + lane % 4 * 2) * 4;
      const Pair scale = hw::load_shared<Pair>(at), bias = hw::load_shared<Pair>(at + 64 * 4);
      HT_UNROLL
      for (uint32_t e = 0; e < 4; ++e) {
        float& sum = sums[j * 4 + e];
        sum = hw::fma(sum * scale[e % 2], of_row[e / 2], bias[e % 2]);
      }
    }
  }

  // 64 columns of the warp's 16 rows.
  HT_DEVICE void store_sums(const float* sums, const Sm90StagedTile& staged,
                            hw::Site site = hw::Site::current()) const {
    HT_UNROLL
    for (uint32_t j = 0; j < 8; ++j) {
      HT_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t row = warp % 2 * 16 + lane / 4 + half * 8, column = j * 8 + lane % 4 * 2;
        const float* multicast = sums + j * 4 + half * 2;
        hw::store_shared(staged.sums + (row * staged.pitch + column * 4),
                         hw::Vector<float, 2>{{multicast[0], multicast[1]}}, site);
      }
    }
  }
};

}  // namespace halftone::gemm
