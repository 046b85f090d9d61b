// Up to some dozens of rows of x for each expert times its W in few bits on Hopper
// (sm90_small_m_multiply.cuh), the experts and their rows known on the device alone.
//
// Blocks stay. Each takes a run of the tiles of all parts on the list, one part after the other; a
// lane copies stages of W and x, of one tile after the other, and a warp their scales, while eight
// warps multiply. Those that share the K of a tile add their sums in shared memory.
#pragma once
#include "hw/griddep.h"
#include "ops/gemm/sm90/small_m/grouped_copies.cuh"
#include "ops/gemm/sm90/small_m/grouped_params.h"
#include "ops/gemm/sm90/small_m/w8_mainloop.cuh"
#include "pipe/named_barrier.h"
#include "pipe/uniform.h"

namespace halftone::gemm {

template <GpuCode kCode, Sm90Scales kScales, uint32_t kTiles>
struct Sm90GroupedSmallMW8 {
  using Params = Sm90GroupedSmallMParams;
  using Stages = Sm90GroupedSmallMW8Stages<kCode, kScales, kTiles>;
  using Multiply = Sm90SmallMW8Mainloop<kCode, Stages>;
  using Copies = Sm90GroupedCopies<Stages>;
  using Ring = typename Stages::Ring;
  static constexpr uint32_t kThreads = Stages::kThreads, kMinBlocks = Stages::kMinBlocks;
  static constexpr uint32_t kWarps = Stages::kWarps;
  static constexpr EpilogueSet kShort = kTiles > 2 ? EpilogueSet::none : EpilogueSet::ungated;
  enum class Barrier { multipliers, count };

  HT_DEVICE static void sync(hw::Site site = hw::Site::current()) {
    pipe::sync<Barrier::multipliers>(kWarps * 32, site);
  }
  HT_DEVICE static void multiply_all(const Params& params, const Ring& ring,
                                     hw::SharedAddress base) {
    const GpuGemm& p = params.gemm;
    const uint32_t warp = pipe::uniform(hw::warp_index()), lane_index = hw::lane_index();
    const uint32_t along_n = warp % 4, along_k = warp / 4, panel = warp / 4;
    const typename Multiply::Lane lane(along_n, along_k);
    const Sm90EpilogueRows ends(p);
    typename Multiply::ChainScale scale;
    auto read = ring.consumer();
    Sm90MChunk chunk;
    uint32_t turn = 0;
    for (Sm90TileRange run(p, params.tiles); run.left > 0; run.next()) {
      if (run.entered) chunk.load(p, run.chunk);
      const Sm90Tile tile = chunk.tile(p, run.tile);
      if constexpr (Multiply::kJoined) {
        if (run.entered) {
          scale.find(p, p.n, tile, along_n, along_k);
          scale.ask(p, params.log2_groups, 0);
        }
      }
      const float factor = ends.factor_of(tile, panel);
      typename Multiply::Sums total = {};
      HT_ROLLED
      for (uint32_t step = 0; step < params.steps; ++step) {
        const float joins = Multiply::kJoined ? scale.value(p) : 1;
        if constexpr (Multiply::kJoined) {
          if (step + 1 < params.steps) {
            scale.ask(p, params.log2_groups, step + 1);
          } else if (run.left > 1 && run.tile + 1 < run.tiles) {
            scale.find(p, p.n, chunk.tile(p, run.tile + 1), along_n, along_k);
            scale.ask(p, params.log2_groups, 0);
          }
        }
        const hw::SharedAddress stage = base + read.wait() * Stages::kBytes;
        if constexpr (Multiply::kJoined) {
          typename Multiply::Sums chain = {};
          Multiply::multiply(stage, lane, chain);
          Multiply::join(chain, joins, total);
        } else {
          Multiply::multiply(stage, lane, total);
        }
        // Read by loads, filled by copies.
        hw::fence_proxy_async_shared();
        hw::warp_sync();
        read.release(lane_index == 0);
      }
      // Of two areas: a warp that stores sums of the tile after the next has met all others after
      // they had read those of this one.
      const hw::SharedAddress sums = base + (Stages::kSums + turn * Stages::kSumBytes);
      const hw::SharedAddress factors =
          base + (Stages::kFactors + (turn * 2 + panel) * kSm90ScaleBiasBytes);
      ends.store_factor(factors, factor);
      if (along_k == 1) Multiply::template pass_sums<true>(sums, along_n, total);
      sync();
      if (along_k == 0) {
        Multiply::template pass_sums<false>(sums, along_n, total);
        Multiply::template pass_sums<true>(sums, along_n, total);
      }
      sync();
      const Sm90StagedTile area{sums + panel * 64 * 4, factors, Stages::kSumRow, 4, panel};
      ends.template finish<kShort>(tile, area, 0, tile.end - tile.m0, tile.m0, 1);
      if constexpr (Stages::kEnds == 2) {
        turn ^= 1;
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
    // The next kernel may take the parts as written before its turn: so this one's comes first.
    if (!params.gemm.static_weights) hw::griddepcontrol_wait();
    hw::griddepcontrol_launch_dependents();
    const uint32_t warp = pipe::uniform(hw::warp_index());
    if (warp == kWarps) {
      if (hw::lane_index() == 0) Copies::load_tensors(params, ring, base);
    } else if (warp > kWarps) {
      if constexpr (Stages::kCopied) Copies::load_scales(params, ring, base);
    } else {
      if (params.gemm.static_weights) hw::griddepcontrol_wait();
      multiply_all(params, ring, base);
    }
  }
};

}  // namespace halftone::gemm
