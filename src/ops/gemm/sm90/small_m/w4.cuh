// Small-M GEMM y = x W^T on sm_90a: 9 to 64 rows of BF16 x by 4-bit weights (NVFP4, MXFP4, INT4).
// One CTA a tile of 128 rows of W by kColumns rows of x, or a range of its K: the CTAs of a cluster
// split K.
//
// A producer thread issues the TMA copies, three warps permute x along K (small_m/k_permute.cuh),
// and two warpgroups dequantise and run wgmma, 64 rows of W each. The CTAs of a cluster reduce
// their partials through distributed shared memory.
#pragma once
#include "hw/copy/tma.h"
#include "hw/griddep.h"
#include "ops/gemm/sm90/epilogue_rows.cuh"
#include "ops/gemm/sm90/small_m/w4_mainloop.cuh"
#include "pipe/named_barrier.h"
#include "pipe/uniform.h"

namespace halftone::gemm {

template <GpuCode kCode, ScaleMode kScales, uint32_t kColumns>
struct Sm90SmallMW4 {
  using Params = Sm90SmallMParams;
  using Stages = Sm90SmallMW4Stages<kScales, kColumns>;
  using Ring = Sm90SmallMW4Ring<kCode, Stages>;
  using Reader = typename Ring::Reader;
  using Accumulator = Sm90SmallMW4Accumulator<kCode, Stages>;
  using Scales = Sm90GroupScales<Stages>;
  static constexpr uint32_t kThreads = Stages::kThreads, kMinBlocks = Stages::kMinBlocks;
  static constexpr uint32_t kWarps = Stages::kWarps;
  enum class Barrier { mma_warps, count };
  enum class Worker { mma, load };

  // The CTA's range of K, stages [begin, end), and its tile.
  struct KRange {
    const Params& params;
    Ring stages;
    Sm90Tile tile;
    uint32_t matrix, begin, end;

    // Where in a stage the scales of a step start: TMA boxes of scales are 16 bytes wide and start
    // at multiples of that, so one holds the UE8M0 scales of several steps.
    HT_DEVICE static uint32_t scales(uint32_t step) {
      return Stages::kScaleOffset + step * Stages::kScaleBytes % 16;
    }

    HT_DEVICE void copy_weights(const pipe::Slot& slot, uint32_t step) const {
      const hw::SharedAddress to = stages.stage(slot.stage);
      HT_UNROLL
      for (uint32_t r = 0; r < Stages::kRows; r += 32) {
        const uint32_t half = tile.gate ? tile.half_of(r) : matrix;
        const auto row = static_cast<int32_t>(tile.output(r));
        hw::tensor_load(to + r * Stages::kLine, &params.w[half],
                        {0, row, static_cast<int32_t>(step)}, slot.full, hw::kEvictFirst);
        if constexpr (Stages::kSmemScales) {
          const uint32_t column = step * Stages::kScaleBytes / 16 * 16;
          hw::tensor_load(to + (Stages::kScaleOffset + r * 16), &params.scales[half],
                          {static_cast<int32_t>(column), row}, slot.full);
        }
      }
    }
    HT_DEVICE void copy_rows(const pipe::Slot& slot, uint32_t step) const {
      hw::tensor_load(
          stages.stage(slot.stage) + Stages::kX, &params.x,
          {0, static_cast<int32_t>(tile.m0), static_cast<int32_t>(step * (Stages::kDepth / 64))},
          slot.full);
    }
  };

  // By one thread.
  HT_DEVICE static void load(const KRange& k_range) {
    auto fill = k_range.stages.ring.producer();
    uint32_t step = k_range.begin;
    // x is read only after griddepcontrol.wait; the weights of the first stages are prefetched
    // before it.
    for (uint32_t s = 0; s < Stages::kStages && step < k_range.end; ++s, ++step) {
      k_range.copy_weights(fill.acquire(), step);
    }
    hw::griddepcontrol_wait();
    for (uint32_t s = 0; k_range.begin + s < step; ++s) {
      k_range.copy_rows({s, k_range.stages.ring.full(s)}, k_range.begin + s);
    }
    for (; step < k_range.end; ++step) {
      const pipe::Slot slot = fill.acquire();
      k_range.copy_weights(slot, step);
      k_range.copy_rows(slot, step);
    }
  }

  HT_DEVICE static void run(const Params& params) {
    const GpuGemm& p = params.gemm;
    const hw::SharedAddress base = pipe::uniform_shared_memory();
    const uint32_t warp = pipe::uniform(hw::warp_index());
    const uint32_t blocks = hw::cluster_size(), rank = hw::cluster_rank();
    const Sm90FusedTile fused_tile(p, params.fused_gemms, hw::block_index().x / blocks);
    const bool gate = p.epilogue.gate;
    const uint32_t steps = p.k / Stages::kDepth;
    const KRange k_range{params,
                         Ring(base),
                         {{fused_tile.source(p, params.fused_gemms), p.source[1]},
                          fused_tile.tile * (gate ? 64 : 128),
                          hw::block_index().y * kColumns,
                          p.m,
                          0,
                          gate},
                         fused_tile.matrix,
                         rank * steps / blocks,
                         (rank + 1) * steps / blocks};
    if (hw::thread_index().x == 0) k_range.stages.init(1);
    hw::barrier_sync();
    if (!p.static_weights) hw::griddepcontrol_wait();

    if (pipe::enter<Stages::kRoles, Worker::load, kMinBlocks>()) {
      if (warp > kWarps) {
        typename Ring::Permuter permuter(k_range.stages, warp - kWarps - 1);
        for (uint32_t step = k_range.begin; step < k_range.end; ++step)
          permuter.next(KRange::scales(step));
      } else {
        if (hw::lane_index() == 0) load(k_range);
        hw::warp_sync();
      }
      hw::griddepcontrol_launch_dependents();
      split_k_sync(blocks);
      wait_for_readers(blocks);
    } else if (pipe::enter<Stages::kRoles, Worker::mma, kMinBlocks>()) {
      mma(k_range, fused_tile, warp, rank, blocks);
    }
  }
  HT_DEVICE static void mma(const KRange& k_range, const Sm90FusedTile& fused_tile, uint32_t warp,
                            uint32_t rank, uint32_t blocks) {
    const Params& params = k_range.params;
    const uint32_t panel = warp / 4;
    const hw::SharedAddress scale_bias =
        k_range.stages.base + (Stages::kScaleBias + panel * kSm90ScaleBiasBytes);
    hw::griddepcontrol_wait();
    Sm90EpilogueRows epilogue(params.gemm);
    fused_tile.set_outputs(params.fused_gemms, epilogue);
    epilogue.stage_scale_bias(k_range.tile, scale_bias, panel);
    {
      Accumulator accumulator(warp);
      Reader read(k_range.stages);
      Scales scales(params.gemm, params.log2_groups, warp);
      if constexpr (Accumulator::kPromotes) {
        scales.locate(k_range.tile, fused_tile.n);
        scales.prefetch(k_range.begin);
      }
      Sm90SmallMW4Mainloop<Ring, Accumulator, true>::add(
          read, k_range.begin, k_range.end, accumulator, scales,
          [](uint32_t step) { return KRange::scales(step); },
          [&](uint32_t step) {
            if (step < k_range.end) scales.prefetch(step);
          });
      // The stages are free: nobody reads them any more.
      pipe::sync<Barrier::mma_warps>(kWarps * 32);
      accumulator.store(k_range.stages.base);
    }
    hw::griddepcontrol_launch_dependents();
    split_k_sync(blocks);
    // Split-K reduction: each CTA of the cluster finishes a share of the rows of x.
    const uint32_t left = k_range.tile.end - k_range.tile.m0;
    const uint32_t used = left < kColumns ? left : kColumns;
    const uint32_t share = (used + blocks - 1) / blocks, first = rank * share;
    if (first < used) {
      const uint32_t count = used - first < share ? used - first : share;
      const Sm90StagedTile staged{k_range.stages.base + panel * 64 * 4, scale_bias,
                                  Stages::kAccumulatorRow, 4, panel};
      epilogue.store_rows(k_range.tile, staged, first, count, k_range.tile.m0 + first, blocks);
    }
    wait_for_readers(blocks);
  }
  // All partial accumulators of the tile are in shared memory.
  HT_DEVICE static void split_k_sync(uint32_t blocks) {
    if (blocks == 1) {
      hw::barrier_sync();
    } else {
      hw::cluster_arrive();
      hw::cluster_wait();
    }
  }
  // Other CTAs may still read this CTA's shared memory.
  HT_DEVICE static void wait_for_readers(uint32_t blocks) {
    if (blocks == 1) return;
    hw::warp_sync();
    hw::cluster_arrive_relaxed();
    hw::cluster_wait();
  }
};

}  // namespace halftone::gemm
