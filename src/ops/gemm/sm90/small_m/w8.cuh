// Small-M GEMM y = x W^T on sm_90a: 9 to 64 rows of BF16 x by 8-bit weights (E4M3, E5M2, INT8). One
// CTA a tile of 128 rows of W by 8 kTiles rows of x, whose thread 0 issues the TMA copies.
//
// Eight warps run mma.sync (small_m/w8_mainloop.cuh): four along the rows of W, 32 each, by two
// along K, which reduce in shared memory at the end together with the other CTAs of a cluster that
// split the K of a tile.
#pragma once
#include "hw/copy/tma.h"
#include "hw/griddep.h"
#include "ops/gemm/sm90/epilogue_rows.cuh"
#include "ops/gemm/sm90/small_m/w8_mainloop.cuh"
#include "pipe/uniform.h"

namespace halftone::gemm {

template <GpuCode kCode, ScaleMode kScales, uint32_t kTiles>
struct Sm90SmallMW8 {
  using Params = Sm90SmallMParams;
  using Stages = Sm90SmallMW8Stages<kCode, kScales, kTiles>;
  using Mainloop = Sm90SmallMW8Mainloop<kCode, Stages>;
  using Ring = typename Stages::Ring;
  using Lane = typename Mainloop::Lane;
  using Accumulator = typename Mainloop::Accumulator;
  static constexpr uint32_t kThreads = Stages::kThreads, kMinBlocks = Stages::kMinBlocks;
  static constexpr bool kPromotes = Mainloop::kPromotes;

  // The TMA copies of thread 0.
  struct Copies {
    const Params& params;
    hw::SharedAddress base;
    const Sm90Tile& tile;

    HT_DEVICE void weights(const pipe::Slot& slot, uint32_t step) const {
      const hw::SharedAddress to = base + slot.stage * Stages::kBytes;
      const auto matrix = hw::load_shared<uint32_t>(base + Stages::kMatrix);
      HT_UNROLL
      for (uint32_t r = 0; r < Stages::kRows; r += 32) {
        const uint32_t half = tile.gate ? tile.half_of(r) : matrix;
        const auto row = static_cast<int32_t>(tile.output(r));
        hw::tensor_load(to + r / 32 * Stages::kRowBlockBytes, &params.w[half],
                        {0, row, static_cast<int32_t>(step * Stages::kLines)}, slot.full,
                        hw::kEvictFirst);
        if constexpr (Stages::kSmemScales) {
          // Boxes are 16 bytes wide and start at multiples of that: UE8M0 scales of several stages.
          const uint32_t column = step * Stages::kScaleBytes / 16 * 16;
          hw::tensor_load(to + (Stages::kScaleOffset + r * 16), &params.scales[half],
                          {static_cast<int32_t>(column), row}, slot.full);
        }
      }
    }
    HT_DEVICE void rows(const pipe::Slot& slot, uint32_t step) const {
      hw::tensor_load(
          base + (slot.stage * Stages::kBytes + Stages::kX), &params.x,
          {0, static_cast<int32_t>(tile.m0), static_cast<int32_t>(step * (Stages::kDepth / 64))},
          slot.full);
    }
  };

  HT_DEVICE static void run(const Params& params) {
    const GpuGemm& p = params.gemm;
    const hw::SharedAddress base = pipe::uniform_shared_memory();
    const Ring ring{base + Stages::kBarriers};
    const uint32_t warp = pipe::uniform(hw::warp_index()), lane_index = hw::lane_index();
    const uint32_t blocks = hw::cluster_size(), rank = hw::cluster_rank();
    const Sm90FusedTile fused_tile(p, params.fused_gemms, hw::block_index().x / blocks);
    const bool gate = p.epilogue.gate;
    const Sm90Tile tile{{fused_tile.source(p, params.fused_gemms), p.source[1]},
                        fused_tile.tile * (gate ? 64 : 128),
                        hw::block_index().y * Stages::kColumns,
                        p.m,
                        0,
                        gate};
    const uint32_t steps = p.k / Stages::kDepth;
    const uint32_t begin = rank * steps / blocks, end = (rank + 1) * steps / blocks;
    if (hw::thread_index().x == 0) {
      ring.init(1, Stages::kWarps);
      hw::store_shared(base + Stages::kMatrix, fused_tile.matrix);
      hw::fence_mbarrier_init();
    }
    hw::barrier_sync();

    const Copies copies{params, base, tile};
    auto fill = ring.producer();
    const uint32_t prefetched =
        end - begin < Stages::kStages - 1 ? end - begin : Stages::kStages - 1;
    const bool producer = warp == 0 && lane_index == 0;
    if (!p.static_weights) hw::griddepcontrol_wait();
    pipe::Slot slots[Stages::kStages - 1];
    if (producer) {
      HT_UNROLL
      for (uint32_t s = 0; s + 1 < Stages::kStages; ++s) {
        if (s >= prefetched) break;
        slots[s] = fill.acquire();
        copies.weights(slots[s], begin + s);
      }
    }
    hw::griddepcontrol_wait();
    if (producer) {
      HT_UNROLL
      for (uint32_t s = 0; s + 1 < Stages::kStages; ++s) {
        if (s < prefetched) copies.rows(slots[s], begin + s);
      }
    }
    hw::warp_sync();

    Sm90EpilogueRows epilogue(p);
    fused_tile.set_outputs(params.fused_gemms, epilogue);
    const uint32_t panel = warp / 4;
    const hw::SharedAddress scale_bias = base + (Stages::kScaleBias + panel * kSm90ScaleBiasBytes);
    epilogue.stage_scale_bias(tile, scale_bias, panel);
    const uint32_t n_warp = warp % 4, k_half = warp / 4;
    const Lane lane(n_warp, k_half);
    typename Mainloop::IntervalScale scale;
    if constexpr (kPromotes) {
      scale.locate(p, fused_tile.n, tile, n_warp, k_half);
      scale.prefetch(p, params.log2_groups, begin);
    }
    auto read = ring.consumer();
    Accumulator promoted = {};
    HT_ROLLED
    for (uint32_t step = begin; step < end; ++step) {
      if (step + Stages::kStages - 1 < end) {
        if (producer) {
          const pipe::Slot slot = fill.acquire();
          copies.weights(slot, step + Stages::kStages - 1);
          copies.rows(slot, step + Stages::kStages - 1);
        }
        hw::warp_sync();
      } else if (step + 1 == end) {
        hw::griddepcontrol_launch_dependents();
      }
      const float interval_scale = kPromotes ? scale.value(p) : 1;
      if constexpr (kPromotes) {
        if (step + 1 < end) scale.prefetch(p, params.log2_groups, step + 1);
      }
      const hw::SharedAddress stage = base + read.wait() * Stages::kBytes;
      if constexpr (kPromotes) {
        Accumulator accumulator = {};
        Mainloop::mma(stage, lane, accumulator);
        Mainloop::promote(accumulator, interval_scale, promoted);
      } else {
        Lane now = lane;
        if constexpr (Stages::kSmemScales) now.scales += step * Stages::kScaleBytes % 16;
        Mainloop::mma(stage, now, promoted);
      }
      // Read by ld.shared (generic proxy), overwritten by TMA (async proxy).
      hw::fence_proxy_async_shared();
      hw::warp_sync();
      read.release(lane_index == 0);
    }

    // The stages are free. First the two K halves of the CTA are reduced, then the partials of the
    // cluster, each CTA for a share of the rows of x.
    hw::barrier_sync();
    if (k_half == 1) Mainloop::template exchange_accumulators<true>(base, n_warp, promoted);
    hw::barrier_sync();
    if (k_half == 0) {
      Mainloop::template exchange_accumulators<false>(base, n_warp, promoted);
      Mainloop::template exchange_accumulators<true>(base, n_warp, promoted);
    }
    if (blocks == 1) {
      hw::barrier_sync();
    } else {
      hw::cluster_arrive();
      hw::cluster_wait();
    }
    // Computed again: registers are short in the mainloop.
    Sm90FusedTile(p, params.fused_gemms, pipe::uniform(hw::block_index().x / blocks))
        .set_outputs(params.fused_gemms, epilogue);
    const uint32_t left = tile.end - tile.m0;
    const uint32_t used = left < Stages::kColumns ? left : Stages::kColumns;
    const uint32_t share = (used + blocks - 1) / blocks, first = rank * share;
    if (first < used) {
      const uint32_t count = used - first < share ? used - first : share;
      const Sm90StagedTile staged{base + panel * 64 * 4, scale_bias, Stages::kAccumulatorRow, 4,
                                  panel};
      epilogue.store_rows(tile, staged, first, count, tile.m0 + first, blocks);
    }
    if (blocks > 1) {
      // Other CTAs may still read this CTA's shared memory.
      hw::warp_sync();
      hw::cluster_arrive_relaxed();
      hw::cluster_wait();
    }
  }
};

}  // namespace halftone::gemm
