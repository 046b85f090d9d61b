// Grouped small-M GEMM on sm_90a: up to 24 rows of BF16 x per expert by 8-bit weights (E4M3, E5M2,
// INT8; small_m/w8_mainloop.cuh), with the experts and their rows in a list of M-chunks in device
// memory.
//
// Persistent CTAs, two an SM, each take a contiguous range of the tiles (128 rows of W by one
// M-chunk) of all chunks. A thread issues the TMA copies of W and x, a warp copies scales, and
// eight warps dequantise and run mma.sync; the two warps that share rows of W split K and reduce in
// shared memory.
#pragma once
#include "hw/griddep.h"
#include "ops/gemm/sm90/small_m/grouped_copies.cuh"
#include "ops/gemm/sm90/small_m/grouped_params.h"
#include "ops/gemm/sm90/small_m/w8_mainloop.cuh"
#include "pipe/named_barrier.h"
#include "pipe/uniform.h"

namespace halftone::gemm {

template <GpuCode kCode, ScaleMode kScales, uint32_t kTiles>
struct Sm90GroupedSmallMW8 {
  using Params = Sm90GroupedSmallMParams;
  using Stages = Sm90GroupedSmallMW8Stages<kCode, kScales, kTiles>;
  using Mainloop = Sm90SmallMW8Mainloop<kCode, Stages>;
  using Copies = Sm90GroupedCopies<Stages>;
  using Ring = typename Stages::Ring;
  static constexpr uint32_t kThreads = Stages::kThreads, kMinBlocks = Stages::kMinBlocks;
  static constexpr uint32_t kWarps = Stages::kWarps;
  static constexpr EpilogueSet kGroup32 = kTiles > 2 ? EpilogueSet::none : EpilogueSet::ungated;
  enum class Barrier { mma_warps, count };

  HT_DEVICE static void sync(hw::Site site = hw::Site::current()) {
    pipe::sync<Barrier::mma_warps>(kWarps * 32, site);
  }
  HT_DEVICE static void mma_warps(const Params& params, const Ring& ring, hw::SharedAddress base) {
    const GpuGemm& p = params.gemm;
    const uint32_t warp = pipe::uniform(hw::warp_index()), lane_index = hw::lane_index();
    const uint32_t n_warp = warp % 4, k_half = warp / 4, panel = warp / 4;
    const typename Mainloop::Lane lane(n_warp, k_half);
    const Sm90EpilogueRows epilogue(p);
    typename Mainloop::IntervalScale scale;
    auto read = ring.consumer();
    Sm90MChunk chunk;
    uint32_t source = 0;
    for (Sm90TileRange range(p, params.tiles); range.left > 0; range.next()) {
      if (range.new_chunk) chunk.load(p, range.chunk);
      const Sm90Tile tile = chunk.tile(p, range.tile);
      if constexpr (Mainloop::kPromotes) {
        if (range.new_chunk) {
          scale.locate(p, p.n, tile, n_warp, k_half);
          scale.prefetch(p, params.log2_groups, 0);
        }
      }
      const float scale_bias_value = epilogue.load_scale_bias(tile, panel);
      typename Mainloop::Accumulator promoted = {};
      HT_ROLLED
      for (uint32_t step = 0; step < params.steps; ++step) {
        const float interval_scale = Mainloop::kPromotes ? scale.value(p) : 1;
        if constexpr (Mainloop::kPromotes) {
          if (step + 1 < params.steps) {
            scale.prefetch(p, params.log2_groups, step + 1);
          } else if (range.left > 1 && range.tile + 1 < range.tiles) {
            scale.locate(p, p.n, chunk.tile(p, range.tile + 1), n_warp, k_half);
            scale.prefetch(p, params.log2_groups, 0);
          }
        }
        const hw::SharedAddress stage = base + read.wait() * Stages::kBytes;
        if constexpr (Mainloop::kPromotes) {
          typename Mainloop::Accumulator accumulator = {};
          Mainloop::mma(stage, lane, accumulator);
          Mainloop::promote(accumulator, interval_scale, promoted);
        } else {
          Mainloop::mma(stage, lane, promoted);
        }
        // Read by ld.shared (generic proxy), overwritten by TMA (async proxy).
        hw::fence_proxy_async_shared();
        hw::warp_sync();
        read.release(lane_index == 0);
      }
      // Two buffers: a warp that stores accumulators of the tile after the next has passed a
      // barrier after all others read those of this one.
      const hw::SharedAddress accumulator =
          base + (Stages::kSums + source * Stages::kAccumulatorBytes);
      const hw::SharedAddress scale_bias =
          base + (Stages::kScaleBias + (source * 2 + panel) * kSm90ScaleBiasBytes);
      epilogue.store_scale_bias(scale_bias, scale_bias_value);
      if (k_half == 1)
        Mainloop::template exchange_accumulators<true>(accumulator, n_warp, promoted);
      sync();
      if (k_half == 0) {
        Mainloop::template exchange_accumulators<false>(accumulator, n_warp, promoted);
        Mainloop::template exchange_accumulators<true>(accumulator, n_warp, promoted);
      }
      sync();
      const Sm90StagedTile staged{accumulator + panel * 64 * 4, scale_bias, Stages::kAccumulatorRow,
                                  4, panel};
      epilogue.template store_rows<kGroup32>(tile, staged, 0, tile.end - tile.m0, tile.m0, 1);
      if constexpr (Stages::kEpilogueBuffers == 2) {
        source ^= 1;
      } else {
        sync();
      }
    }
  }

  HT_DEVICE static void run(const Params& params) {
    const hw::SharedAddress base = pipe::uniform_shared_memory();
    const Ring ring{base + Stages::kBarriers};
    if (hw::thread_index().x == 0) {
      ring.init(Copies::kProducers, kWarps);
      hw::fence_mbarrier_init();
    }
    hw::barrier_sync();
    // A next kernel with PDL may take this list of chunks as written before it starts: so
    // griddepcontrol.wait comes before launch_dependents.
    if (!params.gemm.static_weights) hw::griddepcontrol_wait();
    hw::griddepcontrol_launch_dependents();
    const uint32_t warp = pipe::uniform(hw::warp_index());
    if (warp == kWarps) {
      if (hw::lane_index() == 0) Copies::load_tensors(params, ring, base);
    } else if (warp > kWarps) {
      if constexpr (Stages::kSmemScales) Copies::load_scales(params, ring, base);
    } else {
      if (params.gemm.static_weights) hw::griddepcontrol_wait();
      mma_warps(params, ring, base);
    }
  }
};

}  // namespace halftone::gemm
