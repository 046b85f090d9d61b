// FP8 small-M GEMM y = x W^T on sm_90a: E4M3 by E4M3 for up to 128 rows of x. Neither bytes nor
// MMAs take most of the time here, but the fixed cost of a CTA and the latency of consecutive K
// steps. So a CTA has one tile: all rows of x by as few rows of W as give every SM work, and where
// that is not enough the CTAs of a cluster split K. Static weights are prefetched before
// griddepcontrol.wait; most tiles leave room for two CTAs an SM, so that the next kernel's can
// prefetch while this one's finish. Several accumulators are in flight, scales of many steps are
// loaded at a time, and plain outputs have a short epilogue (docs/findings/gemm-hopper.md).
//
// As in fp8/gemm.cuh x is the M operand, 64 rows a warpgroup, and both operands are in shared
// memory. Sums are bitwise those of that kernel, except that split-K partials are added in rank
// order.
#pragma once
#include "base/launch.h"
#include "hw/cluster.h"
#include "hw/griddep.h"
#include "hw/warp.h"
#include "ops/gemm/sm90/epilogue_rows.cuh"
#include "ops/gemm/sm90/fp8/promotion.cuh"
#include "ops/gemm/sm90/fp8/scales.cuh"
#include "pipe/named_barrier.h"
#include "pipe/ring.h"
#include "pipe/roles.h"

namespace halftone::gemm {

// kTileXRows of x, 64 or 128, by kTileRows of W; `kResident` CTAs an SM.
template <uint32_t kTileXRows, uint32_t kTileRows, uint32_t kResident>
struct Sm90Fp8SmallMStages {
  static constexpr uint32_t kXRows = kTileXRows, kRows = kTileRows, kDepth = kSm90Line;
  static constexpr uint32_t kWarpgroupRows = 64, kGroups = kXRows / kWarpgroupRows,
                            kPanels = kRows / 64;
  static_assert(kXRows % kWarpgroupRows == 0 && kRows % 64 == 0);
  static constexpr uint32_t kXBytes = kXRows * kSm90Line, kBytes = kXBytes + kRows * kSm90Line;

  // As in fp8/stages.h.
  static constexpr uint32_t kRowGroup = 32, kRowGroups = kRows / kRowGroup;
  static constexpr uint32_t kRowGroupScales = kXRows * 4,
                            kScaleBytes = kRowGroupScales + (kRowGroups + 3) / 4 * 16;

  // In the epilogue the sums take the place of the stages: panels of 64 outputs, rows padded so
  // that a warp's pairs fall into all banks.
  static constexpr uint32_t kSumRow = (64 + 8) * 4, kPanel = kXRows * kSumRow;

  static constexpr uint32_t kMaxBytes = 227 * 1024 / kResident - (kResident - 1) * 512;
  static constexpr uint32_t kStages =
      (kMaxBytes - kPanels * kSm90ScaleBiasBytes) / (kBytes + kScaleBytes + 16);
  static_assert(kPanels * kPanel <= kStages * kBytes);
  static constexpr uint32_t kScales = kStages * kBytes;
  static constexpr uint32_t kScaleBias = kScales + kStages * kScaleBytes;
  static constexpr uint32_t kBarriers = kScaleBias + kPanels * kSm90ScaleBiasBytes;
  using Ring = pipe::Ring<kStages, kBytes>;
  static constexpr uint32_t kSharedBytes = kBarriers + Ring::kSharedBytes;
  static_assert(kSharedBytes <= kMaxBytes);
};

template <uint32_t kTileXRows, uint32_t kTileRows, uint32_t kResident>
struct Sm90Fp8SmallM : Sm90Fp8SmallMStages<kTileXRows, kTileRows, kResident> {
  using Params = Sm90Params;
  using Stages = Sm90Fp8SmallMStages<kTileXRows, kTileRows, kResident>;
  using Ring = typename Stages::Ring;
  // Stages whose scales are loaded at a time.
  static constexpr uint32_t kBatch = kTileXRows == 128 ? 5 : 32 / Stages::kRowGroups;
  using Scales = Sm90Fp8Scales<Stages, kBatch>;
  static constexpr uint32_t kXRows = Stages::kXRows, kRows = Stages::kRows;
  using Promotion = Sm90Fp8Promotion<Stages>;
  using Accumulator = typename Promotion::Accumulator;

  enum class Worker { load, mma };
  enum class Barrier { read, stored, count };  // of all consumer warps
  static constexpr uint32_t kMinBlocks = kResident, kMmaWarps = 4 * Stages::kGroups;
  // Registers, and as many accumulators in flight as they suffice for.
  static constexpr bool kManyRegisters = kMmaWarps == 4;
  static constexpr uint32_t kLoadRegisters = 40;
  static constexpr uint32_t kMmaRegisters = kManyRegisters ? 216 : kMinBlocks == 1 ? 232 : 96;
  static constexpr uint32_t kAccumulators = !kManyRegisters ? 1 : kRows == 64 ? 4 : 2;
  static constexpr pipe::Roles kRoles{
      {{"load", 4, kLoadRegisters}, {"multiply", kMmaWarps, kMmaRegisters}}};
  static constexpr uint32_t kThreads = kRoles.threads();

  static LaunchShape shape(const Params& p, uint32_t /*multiprocessors*/) {
    const uint32_t rows = p.gemm.epilogue.gate ? kRows / 2 : kRows;
    return {.grid = {(p.gemm.n + rows - 1) / rows * p.split, 1, 1},
            .block = {kThreads, 1, 1},
            .cluster = {p.split, 1, 1},
            .shared_bytes = Stages::kSharedBytes};
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

  HT_DEVICE static void run(const Params& p) {
    const hw::SharedAddress base = pipe::uniform_shared_memory();
    const Ring ring{base + Stages::kBarriers};
    hw::griddepcontrol_launch_dependents();
    if (hw::thread_index().x == 0) {
      hw::prefetch_tensor_map(&p.w);
      hw::prefetch_tensor_map(&p.x);
      ring.init(1 + Scales::kWarps, kMmaWarps);
      hw::fence_mbarrier_init();
    }
    hw::barrier_sync();
    const Range range(p);
    const Sm90Tile tile = sm90_tile<kRows>(p, hw::block_index().x / p.split, 0, kXRows);
    if (pipe::enter<kRoles, Worker::load, kMinBlocks>()) {
      const uint32_t warp = pipe::uniform(hw::warp_index());
      if (warp == 0) {
        if (hw::lane_index() == 0) load(p, ring, base, tile, range);
      } else {
        stage_scales(p, ring, base, tile, range, warp - 1);
      }
      if (p.split == 1) return;
      hw::warp_sync();
      hw::cluster_arrive();
      hw::cluster_wait();
    } else if (pipe::enter<kRoles, Worker::mma, kMinBlocks>()) {
      mma(p, ring, base, tile, range);
    }
    if (p.split == 1) return;
    // No CTA exits while another reads its sums through distributed shared memory.
    hw::cluster_arrive();
    hw::cluster_wait();
  }

  HT_DEVICE static void load(const Params& p, const Ring& ring, hw::SharedAddress base,
                             const Sm90Tile& tile, const Range& range) {
    const Sm90MapCoords matrix(p, tile);
    const hw::CachePolicy policy{hw::kEvictFirst.bits};
    auto fill = ring.producer();
    const auto load_x = [&](uint32_t step, uint32_t stage) {
      hw::tensor_load(base + stage * Stages::kBytes, &p.x,
                      {static_cast<int32_t>(step * Stages::kDepth), 0}, ring.full(stage));
    };
    // W of as many stages as there are, prefetched before griddepcontrol.wait if static; then x.
    if (!p.gemm.static_weights) hw::griddepcontrol_wait();
    const uint32_t steps = range.end - range.begin;
    const uint32_t ahead = steps < Stages::kStages ? steps : Stages::kStages;
    for (uint32_t i = 0; i < ahead; ++i) {
      const pipe::Slot slot = fill.acquire();
      matrix.template load<kRows>(p, tile, range.begin + i,
                                  base + (slot.stage * Stages::kBytes + Stages::kXBytes), slot.full,
                                  policy);
    }
    if (p.gemm.static_weights) hw::griddepcontrol_wait();
    for (uint32_t i = 0; i < ahead; ++i) load_x(range.begin + i, i);
    for (uint32_t i = ahead; i < steps; ++i) {
      const pipe::Slot slot = fill.acquire();
      matrix.template load<kRows>(p, tile, range.begin + i,
                                  base + (slot.stage * Stages::kBytes + Stages::kXBytes), slot.full,
                                  policy);
      load_x(range.begin + i, slot.stage);
    }
  }

  HT_DEVICE static void stage_scales(const Params& p, const Ring& ring, hw::SharedAddress base,
                                     const Sm90Tile& tile, const Range& range, uint32_t mine) {
    Scales scales(p, tile, mine);
    pipe::Cursor<Stages::kStages> at;
    // Issued before the copies of W, which would delay them.
    if (!p.gemm.static_weights) hw::griddepcontrol_wait();
    scales.load_weights(range.begin);
    if (p.gemm.static_weights) hw::griddepcontrol_wait();
    for (uint32_t step = range.begin; step < range.end; step += kBatch) {
      if (step > range.begin) scales.load_weights(step);
      scales.load_rows(step);
      HT_UNROLL
      for (uint32_t a = 0; a < kBatch; ++a) {
        if (step + a >= range.end) break;
        const uint32_t stage = at.stage();
        hw::mbarrier_wait(ring.empty(stage), at.phase() ^ 1);
        scales.store(base + (Stages::kScales + stage * Stages::kScaleBytes), a);
        hw::warp_sync();
        if (hw::lane_index() == 0) hw::mbarrier_arrive(ring.full(stage));
        at.advance();
      }
    }
  }

  HT_DEVICE static void mma(const Params& p, const Ring& ring, hw::SharedAddress base,
                            const Sm90Tile& tile, const Range& range) {
    const uint32_t group = pipe::uniform(hw::warp_index()) / 4 - 1;
    const Sm90EpilogueRows epilogue(p.gemm);
    hw::griddepcontrol_wait();
    for (uint32_t panel = group; panel < Stages::kPanels; panel += Stages::kGroups) {
      epilogue.stage_scale_bias(tile, base + (Stages::kScaleBias + panel * kSm90ScaleBiasBytes),
                                panel);
    }
    Accumulator promoted;
    if (p.factors == ScaledSide::x) {
      accumulate<true>(ring, base, range.end - range.begin, group, promoted);
    } else {
      accumulate<false>(ring, base, range.end - range.begin, group, promoted);
    }
    constexpr uint32_t kAll = kMmaWarps * 32;
    pipe::sync<Barrier::read>(kAll);  // the stages are free
    store_sums(base, group * Stages::kWarpgroupRows + epilogue.warp * 16 + epilogue.lane / 4,
               promoted);
    if (p.split > 1) {
      hw::cluster_arrive();
      hw::cluster_wait();
    } else {
      pipe::sync<Barrier::stored>(kAll);
    }
    // The CTA finishes a share of the rows, and each warpgroup a share of that.
    const uint32_t shares = p.split * Stages::kGroups, share = (kXRows + shares - 1) / shares;
    const uint32_t rank = p.split > 1 ? hw::cluster_rank() : 0;
    const uint32_t first = (rank * Stages::kGroups + group) * share;
    const uint32_t end = first + share < kXRows ? first + share : kXRows;
    if (first >= end) return;
    HT_ROLLED
    for (uint32_t panel = 0; panel < Stages::kPanels; ++panel) {
      const Sm90StagedTile staged{base + panel * Stages::kPanel,
                                  base + (Stages::kScaleBias + panel * kSm90ScaleBiasBytes),
                                  Stages::kSumRow, 2, panel};
      epilogue.store_rows<EpilogueSet::ungated>(tile, staged, first, end - first, tile.m0 + first,
                                                p.split);
    }
  }

  // Of the lane's rows, `row` and the one eight behind it.
  HT_DEVICE static void store_sums(hw::SharedAddress base, uint32_t row, const Accumulator& sums,
                                   hw::Site site = hw::Site::current()) {
    HT_UNROLL
    for (uint32_t j = 0; j < kRows / 8; ++j) {
      HT_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t column = j % 8 * 8 + hw::lane_index() % 4 * 2;
        const float* pair = sums + j * 4 + half * 2;
        hw::store_shared(
            base + (j / 8 * Stages::kPanel + (row + half * 8) * Stages::kSumRow + column * 4),
            hw::Vector<float, 2>{{pair[0], pair[1]}}, site);
      }
    }
  }

  // Accumulators of several stages are in flight at once, as one has a longer latency than it takes
  // to issue and promote. None is in flight across loop iterations: ptxas would serialise them.
  template <bool kOneRowGroup>
  HT_DEVICE static void accumulate(const Ring& ring, hw::SharedAddress base, uint32_t steps,
                                   uint32_t group, Accumulator& promoted) {
    HT_UNROLL
    for (uint32_t i = 0; i < kRows / 2; ++i) promoted[i] = 0;
    Read read{ring.consumer(), base, group};
    uint32_t left = steps;
    for (; left >= kAccumulators; left -= kAccumulators)
      accumulate_batch<kOneRowGroup, kAccumulators>(read, promoted);
    if constexpr (kAccumulators == 4) {
      if (left >= 2) accumulate_batch<kOneRowGroup, 2>(read, promoted), left -= 2;
    }
    if constexpr (kAccumulators > 1) {
      if (left > 0) accumulate_batch<kOneRowGroup, 1>(read, promoted);
    }
  }

  struct Read {
    typename Ring::Consumer consumer;
    hw::SharedAddress base;
    uint32_t group;
  };
  template <bool kOneRowGroup, uint32_t kCount>
  HT_DEVICE static void accumulate_batch(Read& read, Accumulator& promoted) {
    const uint32_t first = read.group * Stages::kWarpgroupRows;
    const uint32_t row = first + hw::warp_index() % 4 * 16 + hw::lane_index() / 4;
    Accumulator accumulators[kCount];
    typename Promotion::RowScales scale_bias[kCount];
    HT_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) {
      const uint32_t stage = read.consumer.wait();
      const hw::SharedAddress x = read.base + stage * Stages::kBytes;
      scale_bias[i] = Promotion::template load_scales<kOneRowGroup>(
          read.base + (Stages::kScales + stage * Stages::kScaleBytes), row);
      Promotion::start_mma(x + first * kSm90Line, x + Stages::kXBytes, accumulators[i]);
    }
    HT_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) {
      if (i + 4 == kCount) hw::wgmma_wait<3>();
      if (i + 3 == kCount) hw::wgmma_wait<2>();
      if (i + 2 == kCount) hw::wgmma_wait<1>();
      if (i + 1 == kCount) hw::wgmma_wait<0>();
      hw::hold_registers(accumulators[i]);
      hw::warp_sync();
      read.consumer.release(hw::lane_index() == 0);
      Promotion::promote(scale_bias[i], accumulators[i], promoted);
    }
  }
};

// The tiles: rows of x by rows of W.
using Sm90Fp8SmallM64x64 = Sm90Fp8SmallM<64, 64, 2>;
using Sm90Fp8SmallM64x128 = Sm90Fp8SmallM<64, 128, 2>;
using Sm90Fp8SmallM128x64 = Sm90Fp8SmallM<128, 64, 2>;
using Sm90Fp8SmallM128x192 = Sm90Fp8SmallM<128, 192, 1>;

}  // namespace halftone::gemm
