// y = x W^T on Hopper's wgmma, for many rows of x. The weights are the rows of the MMA, as in the
// product of every GPU (gpu_multiply.cuh): weights of few bits become its A operand in registers,
// and never pass through shared memory as bf16; x is its B operand, read from shared memory.
//
// Blocks stay on the chip and walk over tiles of 128 rows of W by kColumns rows of x. A warp starts
// the copies of both, three more make what multiplies codes or sums, two warpgroups multiply. Where
// tiles are few, the blocks of a cluster share K; tiles of 64 columns whose W takes many
// instructions have four warpgroups, two for every other stage.
//
// Of experts a list in device memory says whose matrix is multiplied by which rows of x, which lie
// by expert: a tile has rows of one part of the list, and only those are loaded.
//
// Sums: one chain of MMAs over K (of every other stage), 16 elements each; with scales of groups,
// one for every 64 elements (sm90_sums.cuh), which the scales multiply on its way to an f32 sum, or
// one that is multiplied wherever the scale changes.
// Parts of K are added in their order. So the bits of an output are a function of its rows of W and
// x, the format, the number of parts and whether the sums of a tile are in units of the last scale.
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

template <GpuCode kCode, Sm90Scales kScales, uint32_t kTileColumns,
          tile::Major kMajorW = tile::Major::k>
struct Sm90MixedGemm : Sm90Stages<kCode, kScales, kTileColumns> {
  using Params = Sm90Params;
  using Stages = Sm90Stages<kCode, kScales, kTileColumns>;
  using Sums = Sm90Mainloop<kCode, kScales, kTileColumns, kMajorW>;
  using Finish = Sm90Epilogue<Stages>;
  using Tile = Sm90Tile;
  using Schedule = pipe::PersistentSchedule<pipe::TailSplitGrid>;
  static constexpr uint32_t kColumns = kTileColumns, kXSteps = Stages::kXSteps;
  static constexpr bool kTables = Stages::kSlots > 0, kSums = Stages::kSums;
  // Whether half a tile's rows of x or fewer are multiplied alone.
  static constexpr bool kNarrow = Sums::kNarrow;
  // Whether there may be several matrices (sm90_more.h).
  static constexpr bool kJoins = kColumns == 64 && kMajorW == tile::Major::k;

  enum class Worker { load, multiply };
  // Warps that decode scales need more registers than one thread that starts copies.
  static constexpr uint32_t kMinBlocks = Stages::kBlocks;
  static constexpr uint32_t kPairs = Stages::kPairs;
  static constexpr bool kManyScales =
      Stages::kShort || (kSums && Stages::kSlots > 1 && kMinBlocks == 1 && kPairs == 1);
  static constexpr uint32_t kLoaders = kManyScales ? 72 : kTables ? 56 : 40;
  // Of what all warps start with, 168, 80 or 96 a thread: what the loaders leave.
  static constexpr uint32_t kMultiply =
      kPairs == 2 ? 120 - kLoaders / 4 : (kMinBlocks == 1 ? 252 : 120) - kLoaders / 2;
  static constexpr pipe::Roles kRoles{
      {{"load", 4, kLoaders}, {"multiply", 8 * kPairs, kMultiply / 8 * 8}}};
  static constexpr uint32_t kThreads = kRoles.threads();
  static constexpr uint32_t kMultipliers = 8, kTableWarps = Sm90StagingShare<Stages::kRows>::kWarps;
  static constexpr uint32_t kSharedBytes = Stages::kSharedBytes;

  // Of `parts` parts of experts; without experts of all rows of x.
  HT_HOST_DEVICE static pipe::TailSplitGrid tiles(const Params& params, uint32_t parts) {
    const GpuGemm& p = params.gemm;
    const uint32_t rows = p.epilogue.gate ? Stages::kRows / 2 : Stages::kRows;
    const uint32_t columns = params.max_chunks > 0 ? parts : (p.m + kColumns - 1) / kColumns;
    // As many rows of W as of x in work at a time.
    return {{(p.n + rows - 1) / rows, columns, 1, kColumns / 16}, params.tail_tiles};
  }
  static LaunchShape shape(const Params& p, uint32_t multiprocessors) {
    const uint32_t wanted = tiles(p, p.max_chunks).count(),
                   fit = multiprocessors * kMinBlocks / p.split;
    // Blocks that share K have one tile: its sums take the place of the stages.
    return {.grid = {(wanted < fit || p.split > 1 ? wanted : fit) * p.split, 1, 1},
            .block = {kThreads, 1, 1},
            .cluster = {p.split, 1, 1},
            .shared_bytes = kSharedBytes};
  }

  // The stages of W along K that this block multiplies.
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
    if constexpr (kNarrow) {
      if (t.part != Part::whole) {
        if (t.part == Part::second) tile.m0 += kColumns / 2;
        const uint32_t most = tile.m0 + kColumns / 2;
        tile.end = tile.end < most ? tile.end : most;
      }
    }
    if constexpr (kJoins) {
      const Sm90FusedTile place(params.gemm, params.more, t.m);
      if (place.matrix > 0) {
        tile.source[0] = place.source(params.gemm, params.more);
        tile.n0 = place.tile * Stages::kRows;
      }
    }
    return tile;
  }

  // Whether W may be read before the kernel's turn.
  HT_DEVICE static bool is_early(const Params& p) {
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
      // The copies, and the warps that make a table.
      rings.w.init(1 + (kTables ? kTableWarps : 0), kMultipliers);
      rings.x.init(1, kMultipliers);
      rings.w.name("w full", "w empty");
      hw::fence_mbarrier_init();
    }
    if (p.x_rows < (kNarrow ? kColumns / 2 : kColumns)) clear_x(base);
    // Each role waits for the kernels ahead when it has its addresses: what a block first touches,
    // parameters and instructions, takes as long as the first copy. Lists of parts are results.
    if (p.max_chunks > 0) hw::griddepcontrol_wait();
    hw::barrier_sync();
    const uint32_t parts = p.max_chunks > 0 ? hw::load_global(p.gemm.chunk_count) : 0;
    const Schedule schedule(tiles(p, parts), hw::block_index().x / p.split,
                            hw::grid_size().x / p.split);
    if (pipe::enter<kRoles, Worker::load, kMinBlocks>()) {
      const uint32_t warp = hw::warp_index();
      if (warp == 0 && hw::lane_index() == 0) load(p, rings, base, schedule);
      if constexpr (kTables) {
        if (warp > 0) make_tables(p, rings, base, schedule, warp - 1);
      }
      if (p.split == 1) return;
      hw::warp_sync();
      hw::cluster_arrive();
      hw::cluster_wait();
    } else if (pipe::enter<kRoles, Worker::multiply, kMinBlocks>()) {
      multiply(p, rings, base, schedule);
    }
    if (p.split == 1) return;
    // No block ends while another reads its sums.
    hw::cluster_arrive();
    hw::cluster_wait();
  }

  // Columns that a part does not have are multiplied too: by zeros, or by what was there before.
  HT_DEVICE static void clear_x(hw::SharedAddress base) {
    for (uint32_t i = hw::thread_index().x * 16; i < Stages::kXStages * Stages::kXBytes;
         i += kThreads * 16) {
      hw::store_shared(base + (Stages::kX + i), hw::Words4{});
    }
    hw::fence_proxy_async_shared();
  }

  // One stage of W.
  HT_DEVICE static void load_weights(const Params& p, const Tile& tile, const Sm90MapCoords& matrix,
                                     uint32_t step, hw::SharedAddress to, hw::Mbarrier full,
                                     hw::CachePolicy policy) {
    if constexpr (kMajorW == tile::Major::mn) {
      const auto n = static_cast<int32_t>(2 * tile.n0);  // bytes
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
    // Stages of W to be filled before the kernel's turn.
    uint32_t ahead = is_early(p) ? Stages::kStages : 0;
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
      for (; ahead > 0; --ahead) {
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

  // Each warp has a part of every stage, so that none can go on to another that others have not
  // finished.
  template <class Tables>
  HT_DEVICE static void make_tables(const Params& p, const Rings& rings, hw::SharedAddress base,
                                    Schedule schedule, uint32_t mine) {
    const Range range(p);
    pipe::Cursor<Stages::kStages> at;
    // Scales of x are what a kernel ahead has written.
    const bool early = is_early(p) && p.factors == Sm90Factors::rows;
    for (pipe::TailTile t; schedule.next(t);) {
      Tables tables(p, tile_of(p, t), mine);
      if (!early) hw::griddepcontrol_wait();
      for (uint32_t step = range.begin; step < range.end; ++step, at.advance()) {
        const uint32_t stage = at.stage();
        tables.load(step);
        hw::mbarrier_wait(rings.w.empty(stage), at.phase() ^ 1);
        tables.store(base + (Stages::kTables + stage * Stages::kTable));
        hw::warp_sync();
        if (hw::lane_index() == 0) hw::mbarrier_arrive(rings.w.full(stage));
      }
    }
  }
  HT_DEVICE static void make_tables(const Params& p, const Rings& rings, hw::SharedAddress base,
                                    Schedule schedule, uint32_t mine) {
    using Factors = Sm90Factors;
    if constexpr (!kSums) {
      make_tables<Sm90ElementScaleStaging<Stages, kScales>>(p, rings, base, schedule, mine);
    } else if constexpr (Stages::kUnits) {
      if (!Stages::kShort && p.promote_every_128) {
        make_tables<Sm90RescaledScaleStaging<Stages, Stages::kShort ? 1 : 2>>(p, rings, base,
                                                                              schedule, mine);
      } else {
        make_tables<Sm90RescaledScaleStaging<Stages, 1>>(p, rings, base, schedule, mine);
      }
    } else if (p.factors == Factors::rows) {
      make_tables<Sm90AccumulatorScaleStaging<Stages, Factors::rows>>(p, rings, base, schedule,
                                                                      mine);
    } else if (p.factors == Factors::columns) {
      make_tables<Sm90AccumulatorScaleStaging<Stages, Factors::columns>>(p, rings, base, schedule,
                                                                         mine);
    } else {
      make_tables<Sm90AccumulatorScaleStaging<Stages, Factors::both>>(p, rings, base, schedule,
                                                                      mine);
    }
  }

  HT_DEVICE static void multiply(const Params& p, const Rings& rings, hw::SharedAddress base,
                                 Schedule schedule) {
    const Range range(p);
    const uint32_t warpgroup = pipe::uniform(hw::warp_index()) / 4 - 1;
    const Finish alone(p, base);
    Sums sums(p, base, warpgroup, rings.w, rings.x);
    hw::griddepcontrol_wait();
    for (pipe::TailTile t; schedule.next(t);) {
      Finish finish = alone;
      if constexpr (kJoins) {
        const Sm90FusedTile place(p.gemm, p.more, t.m);
        if (place.matrix > 0) place.set_end(p.more, finish);
      }
      // Where K is split a block has one tile: its factors are there before its sums.
      if (Stages::kCanSplit && p.split > 1 && warpgroup < 2) finish.store_factors(tile_of(p, t));
      const uint32_t steps = range.end - range.begin;
      if constexpr (kNarrow) {
        const Tile rows = tile_of(p, t);
        if (rows.end - rows.m0 <= kColumns / 2) {
          sums.template add_up<kColumns / 2>(steps);
        } else {
          sums.add_up(steps);
        }
      } else {
        sums.add_up(steps);
      }
      if constexpr (kPairs == 2) {
        if (warpgroup >= 2) {
          sums.hand_over();
          continue;
        }
        sums.take_over();
      }
      const Tile tile = tile_of(p, t);
      if constexpr (Stages::kCanSplit) {
        if (p.split > 1) {
          finish.split_tile(tile, sums.result());
          continue;
        }
      }
      finish.tile(tile, sums.result());
    }
    if (warpgroup < 2) {
      alone.drain();
    } else if (p.split > 1) {
      hw::cluster_arrive();
      hw::cluster_wait();
    }
  }
};

}  // namespace halftone::gemm
