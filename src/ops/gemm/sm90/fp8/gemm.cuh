// FP8 GEMM y = x W^T on sm_90a: E4M3 by E4M3 for many rows of x, with scales of any granularity of
// 128 elements of K or more. Neither operand passes through registers, so unlike in mixed/gemm.cuh
// x is the M operand: a lane then has two rows of x, whose scales are two registers, and outputs
// are contiguous. Tiles are 256 rows of x by 128 of W. At the FP8 rate shared memory bandwidth is
// as scarce as the tensor cores, 128 bytes a clock: per stage, copies write 48 KB and MMAs read 96,
// in 1,024 clocks of MMAs. Two CTAs of a cluster share the rows of x, and each multicasts half of
// them.
//
// The tensor cores accumulate FP8 products with few bits: every 128 elements of K are a promotion
// interval, which is scaled and added to an FP32 sum. A warpgroup has two accumulators, sub-tiles
// of 64 rows each; while it promotes one, the tensor cores belong to the other warpgroup.
//
// Results are bitwise those of the FP8 mode of mixed/mainloop.cuh, whatever the tile.
#pragma once
#include "base/launch.h"
#include "hw/griddep.h"
#include "hw/mma/setmaxnreg.h"
#include "hw/warp.h"
#include "ops/gemm/sm90/fp8/epilogue.cuh"
#include "ops/gemm/sm90/fp8/promotion.cuh"
#include "ops/gemm/sm90/fp8/scales.cuh"
#include "pipe/roles.h"
#include "pipe/schedule.h"
#include "pipe/uniform.h"

namespace halftone::gemm {

struct Sm90Fp8Gemm : Sm90Fp8Stages {
  using Params = Sm90Params;
  using Schedule = pipe::PersistentSchedule<pipe::GemmGrid>;
  using Promotion = Sm90Fp8Promotion<Sm90Fp8Stages>;
  using Accumulator = Promotion::Accumulator;
  static constexpr uint32_t kLoadWarps = 4, kMmaWarps = 8;  // warps, and registers a thread:
  static constexpr uint32_t kLoadRegisters = 40, kMmaRegisters = 232;
  static constexpr pipe::Roles kRoles{
      {{"load", kLoadWarps, kLoadRegisters}, {"multiply", kMmaWarps, kMmaRegisters}}};
  static constexpr uint32_t kThreads = kRoles.threads(), kMinBlocks = 1;
  static_assert(kRoles.broken_rule(kMinBlocks) == nullptr);
  static constexpr uint32_t kScaleWarps = Sm90Fp8Scales<Sm90Fp8Stages>::kWarps;
  static constexpr uint32_t kRasterGroup = 8;

  // With M-chunks: `chunks` of them; else all rows of x. In pairs of tiles of W where x is
  // multicast.
  HT_HOST_DEVICE static pipe::GemmGrid tiles(const Params& params, uint32_t chunks) {
    const GpuGemm& p = params.gemm;
    const uint32_t rows = (p.epilogue.gate ? kRows / 2 : kRows) * params.multicast;
    return {(p.n + rows - 1) / rows, params.max_chunks > 0 ? chunks : (p.m + kXRows - 1) / kXRows,
            1, kRasterGroup};
  }
  static LaunchShape shape(const Params& p, uint32_t multiprocessors) {
    const uint32_t wanted = tiles(p, p.max_chunks).count(), fit = multiprocessors / p.multicast;
    return {.grid = {(wanted < fit ? wanted : fit) * p.multicast, 1, 1},
            .block = {kThreads, 1, 1},
            .cluster = {p.multicast, 1, 1},
            .shared_bytes = kSharedBytes};
  }
  HT_DEVICE static uint32_t rank_of(const Params& p) {
    return p.multicast > 1 ? hw::cluster_rank() : 0;
  }
  HT_DEVICE static Sm90Tile tile_of(const Params& p, const pipe::GemmTile& t) {
    return sm90_tile(p, t.m * p.multicast + rank_of(p), t.n, kXRows);
  }
  HT_DEVICE static uint32_t steps_of(const Params& p) { return (p.gemm.k + kDepth - 1) / kDepth; }

  HT_DEVICE static void run(const Params& p) {
    const hw::SharedAddress base = pipe::uniform_shared_memory();
    const Ring ring{base + kBarriers};
    hw::griddepcontrol_launch_dependents();
    if (hw::thread_index().x == 0) {
      hw::prefetch_tensor_map(&p.w);
      hw::prefetch_tensor_map(&p.x);
      ring.init(1 + kScaleWarps, kMmaWarps * p.multicast);  // the TMA copies, and the scales
      hw::fence_mbarrier_init();
    }
    // A CTA's first touch of parameters and instructions takes as long as the first copy: each role
    // runs griddepcontrol.wait when it has its addresses. Chunk lists are outputs of the previous
    // kernel.
    if (p.max_chunks > 0) hw::griddepcontrol_wait();
    if (p.multicast > 1) {
      hw::cluster_arrive();
      hw::cluster_wait();
    } else {
      hw::barrier_sync();
    }
    const uint32_t chunks =
        pipe::uniform(p.max_chunks > 0 ? hw::load_global(p.gemm.chunk_count) : 0);
    const Schedule schedule(tiles(p, chunks), hw::block_index().x / p.multicast,
                            hw::grid_size().x / p.multicast);
    const uint32_t warp = pipe::uniform(hw::warp_index());
    if (warp < kLoadWarps) {
      hw::set_role("load");
      hw::setmaxnreg_dec<kLoadRegisters>();
      if (warp == 0 && hw::lane_index() == 0) load(p, ring, base, schedule);
      if (warp > 0 && warp <= kScaleWarps) stage_scales(p, ring, base, schedule, warp - 1);
    } else {
      hw::set_role("multiply");
      hw::setmaxnreg_inc<kMmaRegisters>();
      mma(p, ring, base, schedule, warp - kLoadWarps);
    }
  }

  HT_DEVICE static void load(const Params& p, const Ring& ring, hw::SharedAddress base,
                             Schedule schedule) {
    const uint32_t rank = rank_of(p), steps = steps_of(p);
    const auto blocks = static_cast<uint16_t>((1u << p.multicast) - 1);
    auto fill = ring.producer();
    for (pipe::GemmTile t; schedule.next(t);) {
      const Sm90Tile tile = tile_of(p, t);
      const Sm90MapCoords matrix(p, tile);
      const uint32_t tma_stores = (tile.end - tile.m0 + p.x_rows - 1) / p.x_rows;
      const uint32_t rows = tma_stores < kXRows / p.x_rows ? tma_stores * p.x_rows : kXRows;
      const hw::CachePolicy policy = tile.weight_policy(p, kXRows);
      hw::griddepcontrol_wait();
      for (uint32_t step = 0; step < steps; ++step) {
        const pipe::Slot slot = fill.wait();
        hw::mbarrier_arrive_expect_tx(slot.full, rows * kSm90Line + (kBytes - kXBytes));
        const hw::SharedAddress x = base + slot.stage * kBytes;
        const auto k = static_cast<int32_t>(step * kDepth);
        for (uint32_t r = rank * p.x_rows; r < rows; r += p.multicast * p.x_rows) {
          hw::tensor_load_multicast(x + r * kSm90Line, &p.x, {k, static_cast<int32_t>(tile.m0 + r)},
                                    slot.full, blocks);
        }
        matrix.load(p, tile, step, x + kXBytes, slot.full, policy);
      }
    }
    fill.drain();  // the other CTA releases its stages to this barrier
  }

  HT_DEVICE static void stage_scales(const Params& p, const Ring& ring, hw::SharedAddress base,
                                     Schedule schedule, uint32_t mine) {
    const uint32_t steps = steps_of(p);
    pipe::Cursor<kStages> at;
    for (pipe::GemmTile t; schedule.next(t);) {
      Sm90Fp8Scales<Sm90Fp8Stages> scales(p, tile_of(p, t), mine);
      hw::griddepcontrol_wait();
      for (uint32_t step = 0; step < steps; ++step, at.advance()) {
        const uint32_t stage = at.stage();
        scales.load(step);
        hw::mbarrier_wait(ring.empty(stage), at.phase() ^ 1);
        scales.store(base + (kScales + stage * kScaleBytes));
        hw::warp_sync();
        if (hw::lane_index() == 0) hw::mbarrier_arrive(ring.full(stage));
      }
    }
  }

  HT_DEVICE static void mma(const Params& p, const Ring& ring, hw::SharedAddress base,
                            Schedule schedule, uint32_t warp) {
    const uint32_t steps = steps_of(p), first = warp / 4 * kWarpgroupRows;
    Sm90Fp8Epilogue epilogue(p, base, warp);
    Release read{ring.consumer(), p.multicast, rank_of(p)};
    Accumulator promoted[kSubTiles];
    hw::griddepcontrol_wait();
    for (pipe::GemmTile t; schedule.next(t);) {
      const Sm90Tile tile = tile_of(p, t);
      const uint32_t rows = pipe::uniform(tile.end - tile.m0);
      epilogue.begin(tile);
      // The number of sub-tiles with rows is decided outside the loop over K.
      if (rows > kSubTileRows + first) {
        if (p.factors == ScaledSide::x) {
          accumulate<2, true>(base, read, steps, warp, promoted);
        } else {
          accumulate<2, false>(base, read, steps, warp, promoted);
        }
      } else if (rows > first) {
        accumulate<1, false>(base, read, steps, warp, promoted);
      } else {
        for (uint32_t step = 0; step < steps; ++step) {
          static_cast<void>(read.consumer.wait());
          read();
        }
      }
      epilogue.tile(tile, promoted);
    }
    epilogue.out.drain();
  }

  // Releases stages in both CTAs. Scales were read by ld.shared, and the CTA's own warps overwrite
  // them; x, which the other CTA's multicast overwrites, was read by wgmma alone, which has
  // retired.
  struct Release {
    Ring::Consumer consumer;
    uint32_t multicast, rank;
    HT_DEVICE void operator()() {
      const uint32_t lane = hw::lane_index();
      hw::warp_sync();
      const hw::Mbarrier empty = consumer.next_release();
      if (lane == rank) hw::mbarrier_arrive(empty);
      if (lane < multicast && lane != rank) {
        hw::mbarrier_arrive_cluster_relaxed(hw::map_shared_rank(empty.address, lane), 1);
      }
    }
  };

  template <uint32_t kUsedSubTiles, bool kOneRowGroup>
  HT_DEVICE static void accumulate(hw::SharedAddress base, Release& read, uint32_t steps,
                                   uint32_t warp, Accumulator (&promoted)[kSubTiles]) {
    const uint32_t first = warp / 4 * kWarpgroupRows,
                   row = first + warp % 4 * 16 + hw::lane_index() / 4;
    HT_UNROLL
    for (uint32_t sub = 0; sub < kUsedSubTiles; ++sub) {
      HT_UNROLL
      for (uint32_t i = 0; i < kRows / 2; ++i) promoted[sub][i] = 0;
    }
    Accumulator accumulator;
    for (uint32_t step = 0; step < steps; ++step) {
      const uint32_t stage = read.consumer.wait();
      const hw::SharedAddress x = base + stage * kBytes,
                              scales = base + (kScales + stage * kScaleBytes);
      // Before the first MMA: ptxas hoists multiplications of what is loaded after an MMA in front
      // of the next one, which would wait for the load.
      Promotion::RowScales f[kUsedSubTiles];
      HT_UNROLL
      for (uint32_t sub = 0; sub < kUsedSubTiles; ++sub) {
        f[sub] = Promotion::load_scales<kOneRowGroup>(scales, sub * kSubTileRows + row);
      }
      HT_UNROLL
      for (uint32_t sub = 0; sub < kUsedSubTiles; ++sub) {
        Promotion::start_mma(x + (sub * kSubTileRows + first) * kSm90Line, x + kXBytes,
                             accumulator);
        hw::wgmma_wait<0>();
        hw::hold_registers(accumulator);
        if (sub + 1 == kUsedSubTiles) read();
        Promotion::promote(f[sub], accumulator, promoted[sub]);
      }
    }
  }
};

}  // namespace halftone::gemm
