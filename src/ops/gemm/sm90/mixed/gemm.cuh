// Mixed-input GEMM y = x W^T on sm_90a for more than 8 rows of x: 16-, 8- and 4-bit weights by BF16
// or FP16 activations, and FP8 by FP8, in wgmma. Swap-AB, as in every GPU kernel here: W is the M
// operand, so that quantised weights are dequantised into A fragments in registers and never pass
// through shared memory as BF16; x is the B operand, read from shared memory.
//
// Persistent CTAs walk over tiles of 128 rows of W by kColumns rows of x. One producer warp issues
// the TMA copies of both operands, three warps stage scales in shared memory, two consumer
// warpgroups dequantise and run wgmma. Where tiles are few, the CTAs of a cluster split K; tiles of
// 64 columns whose weights cost many instructions to dequantise have four consumer warpgroups, two
// for each parity of the stages (intra-CTA split-K).
//
// In a grouped GEMM a list of M-chunks in device memory says which expert's matrix multiplies which
// rows of x (contiguous layout): a tile has the rows of one chunk, and only those are loaded.
//
// Numerics: one FP32 accumulation over K (or over every other stage), 16 elements an instruction;
// with group scales that cannot enter the weights exactly, an accumulation per 64 elements that is
// scaled and promoted into an FP32 sum (mixed/mainloop.cuh), or one accumulator that is rescaled
// wherever the scale changes. Split-K partials are added in rank order. So the bits of an output
// are a function of its rows of W and x, the format, the split factor and whether the tile uses the
// rescaled accumulator.
#pragma once
#include "base/launch.h"
#include "hw/griddep.h"
#include "ops/gemm/sm90/mixed/epilogue.cuh"
#include "ops/gemm/sm90/mixed/mainloop.cuh"
#include "ops/gemm/sm90/mixed/rescaled_scales.cuh"
#include "ops/gemm/sm90/mixed/scales.cuh"
#include "ops/gemm/sm90/tile.cuh"
#include "pipe/roles.h"
#include "pipe/schedule.h"
#include "pipe/uniform.h"

namespace halftone::gemm {

template <GpuCode kCode, ScaleMode kScales, uint32_t kTileColumns,
          tile::Major kMajorW = tile::Major::k>
struct Sm90MixedGemm : Sm90Stages<kCode, kScales, kTileColumns> {
  using Params = Sm90Params;
  using Stages = Sm90Stages<kCode, kScales, kTileColumns>;
  using Mainloop = Sm90Mainloop<kCode, kScales, kTileColumns, kMajorW>;
  using Epilogue = Sm90Epilogue<Stages>;
  using Tile = Sm90Tile;
  using Schedule = pipe::PersistentSchedule<pipe::TailSplitGrid>;
  static constexpr uint32_t kColumns = kTileColumns, kXSteps = Stages::kXSteps;
  static constexpr bool kScaleTables = Stages::kSlots > 0,
                        kScalesAccumulator = Stages::kScalesAccumulator;
  // Whether a tile may compute only the first half of its columns, where x has no more rows.
  static constexpr bool kHalfTiles = Mainloop::kHalfTiles;
  // Whether several horizontally fused GEMMs may share the launch (sm90/fused_gemms.h).
  static constexpr bool kFuses = kColumns == 64 && kMajorW == tile::Major::k;

  enum class Worker { load, mma };
  // Warps that decode scales need more registers than a producer thread.
  static constexpr uint32_t kMinBlocks = Stages::kBlocks;
  static constexpr uint32_t kKGroups = Stages::kKGroups;
  static constexpr bool kHeavyScaleStaging =
      Stages::kGroup32 ||
      (kScalesAccumulator && Stages::kSlots > 1 && kMinBlocks == 1 && kKGroups == 1);
  static constexpr uint32_t kLoadRegisters = kHeavyScaleStaging ? 72 : kScaleTables ? 56 : 40;
  // All warps start with 168, 80 or 96 registers a thread: the consumers get what the producers
  // give back.
  static constexpr uint32_t kMmaRegisters =
      kKGroups == 2 ? 120 - kLoadRegisters / 4 : (kMinBlocks == 1 ? 252 : 120) - kLoadRegisters / 2;
  static constexpr pipe::Roles kRoles{
      {{"load", 4, kLoadRegisters}, {"multiply", 8 * kKGroups, kMmaRegisters / 8 * 8}}};
  static constexpr uint32_t kThreads = kRoles.threads();
  static constexpr uint32_t kMmaWarps = 8, kScaleWarps = Sm90StagingShare<Stages::kRows>::kWarps;
  static constexpr uint32_t kSharedBytes = Stages::kSharedBytes;

  // With M-chunks: `chunks` of them; else all rows of x.
  HT_HOST_DEVICE static pipe::TailSplitGrid tiles(const Params& params, uint32_t chunks) {
    const GpuGemm& p = params.gemm;
    const uint32_t rows = p.epilogue.gate ? Stages::kRows / 2 : Stages::kRows;
    const uint32_t columns = params.max_chunks > 0 ? chunks : (p.m + kColumns - 1) / kColumns;
    // Rasterisation: a wave covers about as many rows of W as rows of x.
    return {{(p.n + rows - 1) / rows, columns, 1, kColumns / 16}, params.tail_tiles};
  }
  static LaunchShape shape(const Params& p, uint32_t multiprocessors) {
    const uint32_t wanted = tiles(p, p.max_chunks).count(),
                   fit = multiprocessors * kMinBlocks / p.split;
    // Split-K CTAs have one tile each: the partial accumulator takes the place of the stages.
    return {.grid = {(wanted < fit || p.split > 1 ? wanted : fit) * p.split, 1, 1},
            .block = {kThreads, 1, 1},
            .cluster = {p.split, 1, 1},
            .shared_bytes = kSharedBytes};
  }

  // The range of W's stages along K that this CTA computes.
  struct Range {
    uint32_t begin, end;
    HT_DEVICE explicit Range(const Params& p) {
      const uint32_t steps = (p.gemm.k + Stages::kDepth - 1) / Stages::kDepth;
      const uint32_t rank = p.split > 1 ? hw::cluster_rank() : 0;
      begin = steps * rank / p.split, end = steps * (rank + 1) / p.split;
    }
  };
  HT_DEVICE static Tile tile_of(const Params& params, const pipe::TailTile& t) {
    using Part = pipe::TailTile::Part;
    Tile tile = sm90_tile(params, t.m, t.n, kColumns);
    if constexpr (kHalfTiles) {
      if (t.part != Part::whole) {
        if (t.part == Part::second) tile.m0 += kColumns / 2;
        const uint32_t most = tile.m0 + kColumns / 2;
        tile.end = tile.end < most ? tile.end : most;
      }
    }
    if constexpr (kFuses) {
      const Sm90FusedTile fused_tile(params.gemm, params.fused_gemms, t.m);
      if (fused_tile.matrix > 0) {
        tile.source[0] = fused_tile.source(params.gemm, params.fused_gemms);
        tile.n0 = fused_tile.tile * Stages::kRows;
      }
    }
    return tile;
  }

  // Whether W may be prefetched before griddepcontrol.wait (PDL).
  HT_DEVICE static bool prefetches_weights(const Params& p) {
    return p.gemm.static_weights && p.max_chunks == 0;
  }

  struct Rings {
    typename Stages::Ring w;
    typename Stages::XRing x;
  };

  HT_DEVICE static void run(const Params& p) {
    const hw::SharedAddress base = pipe::uniform_shared_memory();
    const Rings rings{{base + Stages::kBarriers}, {base + Stages::kXBarriers}};
    hw::griddepcontrol_launch_dependents();
    if (hw::thread_index().x == 0) {
      hw::prefetch_tensor_map(&p.w);
      hw::prefetch_tensor_map(&p.x);
      // Arrivals that fill a stage: the TMA copies, and the warps that stage scales.
      rings.w.init(1 + (kScaleTables ? kScaleWarps : 0), kMmaWarps);
      rings.x.init(1, kMmaWarps);
      rings.w.name("w full", "w empty");
      hw::fence_mbarrier_init();
    }
    if (p.x_rows < (kHalfTiles ? kColumns / 2 : kColumns)) clear_x(base);
    // Each role runs griddepcontrol.wait only when it has computed its addresses: a CTA's first
    // touch of parameters and instructions takes as long as the first copy. Chunk lists are outputs
    // of the previous kernel.
    if (p.max_chunks > 0) hw::griddepcontrol_wait();
    hw::barrier_sync();
    const uint32_t chunks = p.max_chunks > 0 ? hw::load_global(p.gemm.chunk_count) : 0;
    const Schedule schedule(tiles(p, chunks), hw::block_index().x / p.split,
                            hw::grid_size().x / p.split);
    if (pipe::enter<kRoles, Worker::load, kMinBlocks>()) {
      const uint32_t warp = hw::warp_index();
      if (warp == 0 && hw::lane_index() == 0) load(p, rings, base, schedule);
      if constexpr (kScaleTables) {
        if (warp > 0) stage_scales(p, rings, base, schedule, warp - 1);
      }
      if (p.split == 1) return;
      hw::warp_sync();
      hw::cluster_arrive();
      hw::cluster_wait();
    } else if (pipe::enter<kRoles, Worker::mma, kMinBlocks>()) {
      mma(p, rings, base, schedule);
    }
    if (p.split == 1) return;
    // No CTA exits while another reads its partials through distributed shared memory.
    hw::cluster_arrive();
    hw::cluster_wait();
  }

  // Columns beyond the end of a chunk are computed too: from zeros, or from what the stage held
  // before.
  HT_DEVICE static void clear_x(hw::SharedAddress base) {
    for (uint32_t i = hw::thread_index().x * 16; i < Stages::kXStages * Stages::kXBytes;
         i += kThreads * 16) {
      hw::store_shared(base + (Stages::kX + i), hw::Words4{});
    }
    hw::fence_proxy_async_shared();
  }

  // Loads one stage of W.
  HT_DEVICE static void load_weights(const Params& p, const Tile& tile, const Sm90MapCoords& matrix,
                                     uint32_t step, hw::SharedAddress to, hw::Mbarrier full,
                                     hw::CachePolicy policy) {
    if constexpr (kMajorW == tile::Major::mn) {
      const auto n = static_cast<int32_t>(2 * tile.n0);  // in bytes
      const auto k = static_cast<int32_t>(step * Stages::kDepth);
      hw::tensor_load(to, &p.w, {n, k}, full, policy);
      hw::tensor_load(to + Stages::kBytes / 2, &p.w, {n + 128, k}, full, policy);
    } else {
      matrix.load(p, tile, step, to, full, policy);
    }
  }

  HT_DEVICE static void load(const Params& p, const Rings& rings, hw::SharedAddress base,
                             Schedule schedule) {
    const Range range(p);
    auto fill = rings.w.producer();
    auto fill_x = rings.x.producer();
    // Stages of W to be filled before griddepcontrol.wait.
    uint32_t prefetched = prefetches_weights(p) ? Stages::kStages : 0;
    for (pipe::TailTile t; schedule.next(t);) {
      const Tile tile = tile_of(p, t);
      const Sm90MapCoords matrix(p, tile);
      const uint32_t copies = (tile.end - tile.m0 + p.x_rows - 1) / p.x_rows;
      const uint32_t columns = copies < kColumns / p.x_rows ? copies * p.x_rows : kColumns;
      const hw::CachePolicy policy = tile.weight_policy(p, kColumns);
      uint32_t next = range.begin;
      const auto fill_weights = [&] {
        const pipe::Slot slot = fill.acquire();
        const hw::SharedAddress to = base + slot.stage * Stages::kBytes;
        load_weights(p, tile, matrix, next++, to, slot.full, policy);
      };
      for (; prefetched > 0; --prefetched) {
        if (next < range.end) fill_weights();
      }
      hw::griddepcontrol_wait();
      for (uint32_t step = range.begin; step < range.end; ++step) {
        if (next == step) fill_weights();
        for (uint32_t i = 0; i < kXSteps; ++i) {
          const pipe::Slot x = fill_x.wait();
          hw::mbarrier_arrive_expect_tx(x.full, columns * Stages::kLine);
          const hw::SharedAddress x_to = base + (Stages::kX + x.stage * Stages::kXBytes);
          const uint32_t k = step * Stages::kDepth + i * Stages::kXDepth;
          for (uint32_t c = 0; c < columns; c += p.x_rows) {
            hw::tensor_load(x_to + c * Stages::kLine, &p.x,
                            {static_cast<int32_t>(k), static_cast<int32_t>(tile.m0 + c)}, x.full);
          }
        }
      }
    }
  }

  // Each warp stages a part of every stage's scales, so that none can run a stage ahead of the
  // others.
  template <class Staging>
  HT_DEVICE static void stage_scales(const Params& p, const Rings& rings, hw::SharedAddress base,
                                     Schedule schedule, uint32_t mine) {
    const Range range(p);
    pipe::Cursor<Stages::kStages> at;
    // Scales of x are an output of the previous kernel.
    const bool prefetch = prefetches_weights(p) && p.factors == ScaledSide::weight;
    for (pipe::TailTile t; schedule.next(t);) {
      Staging staging(p, tile_of(p, t), mine);
      if (!prefetch) hw::griddepcontrol_wait();
      for (uint32_t step = range.begin; step < range.end; ++step, at.advance()) {
        const uint32_t stage = at.stage();
        staging.load(step);
        hw::mbarrier_wait(rings.w.empty(stage), at.phase() ^ 1);
        staging.store(base + (Stages::kScaleTables + stage * Stages::kScaleTableBytes));
        hw::warp_sync();
        if (hw::lane_index() == 0) hw::mbarrier_arrive(rings.w.full(stage));
      }
    }
  }
  HT_DEVICE static void stage_scales(const Params& p, const Rings& rings, hw::SharedAddress base,
                                     Schedule schedule, uint32_t mine) {
    if constexpr (!kScalesAccumulator) {
      stage_scales<Sm90ElementScaleStaging<Stages, kScales>>(p, rings, base, schedule, mine);
    } else if constexpr (Stages::kRescaled) {
      if (!Stages::kGroup32 && p.promote_every_128) {
        stage_scales<Sm90RescaledScaleStaging<Stages, Stages::kGroup32 ? 1 : 2>>(p, rings, base,
                                                                                 schedule, mine);
      } else {
        stage_scales<Sm90RescaledScaleStaging<Stages, 1>>(p, rings, base, schedule, mine);
      }
    } else if (p.factors == ScaledSide::weight) {
      stage_scales<Sm90AccumulatorScaleStaging<Stages, ScaledSide::weight>>(p, rings, base,
                                                                            schedule, mine);
    } else if (p.factors == ScaledSide::x) {
      stage_scales<Sm90AccumulatorScaleStaging<Stages, ScaledSide::x>>(p, rings, base, schedule,
                                                                       mine);
    } else {
      stage_scales<Sm90AccumulatorScaleStaging<Stages, ScaledSide::both>>(p, rings, base, schedule,
                                                                          mine);
    }
  }

  HT_DEVICE static void mma(const Params& p, const Rings& rings, hw::SharedAddress base,
                            Schedule schedule) {
    const Range range(p);
    const uint32_t warpgroup = pipe::uniform(hw::warp_index()) / 4 - 1;
    const Epilogue unfused(p, base);
    Mainloop mainloop(p, base, warpgroup, rings.w, rings.x);
    hw::griddepcontrol_wait();
    for (pipe::TailTile t; schedule.next(t);) {
      Epilogue epilogue = unfused;
      if constexpr (kFuses) {
        const Sm90FusedTile fused_tile(p.gemm, p.fused_gemms, t.m);
        if (fused_tile.matrix > 0) fused_tile.set_outputs(p.fused_gemms, epilogue);
      }
      // Split-K CTAs have a single tile: its scales and biases are staged before the mainloop.
      if (Stages::kCanSplit && p.split > 1 && warpgroup < 2)
        epilogue.stage_scale_bias(tile_of(p, t));
      const uint32_t steps = range.end - range.begin;
      if constexpr (kHalfTiles) {
        const Tile rows = tile_of(p, t);
        if (rows.end - rows.m0 <= kColumns / 2) {
          mainloop.template accumulate<kColumns / 2>(steps);
        } else {
          mainloop.accumulate(steps);
        }
      } else {
        mainloop.accumulate(steps);
      }
      if constexpr (kKGroups == 2) {
        if (warpgroup >= 2) {
          mainloop.store_partials();
          continue;
        }
        mainloop.add_partials();
      }
      const Tile tile = tile_of(p, t);
      if constexpr (Stages::kCanSplit) {
        if (p.split > 1) {
          epilogue.split_k_tile(tile, mainloop.result());
          continue;
        }
      }
      epilogue.tile(tile, mainloop.result());
    }
    if (warpgroup < 2) {
      unfused.drain();
    } else if (p.split > 1) {
      hw::cluster_arrive();
      hw::cluster_wait();
    }
  }
};

}  // namespace halftone::gemm
