// GEMV y = x W^T on sm_90a: one row of BF16 or FP16 x by weights of 16, 8 or 4 bits, up to three
// horizontally fused matrices in a launch, with an RMS norm of x fused in front. Persistent CTAs:
// each takes every grid-th tile of 16 rows of W as one stream of TMA copies, which starts before
// griddepcontrol.wait where the weights are static; the 8 or 16 warps of a CTA split the K of a
// tile, a span of 128 bytes of each row at a time, in mma.sync, and one more warp runs the
// epilogue.
//
// How a span is computed: gemv/span.cuh; why this is fast: docs/findings/gpu-gemv.md.
#pragma once
#include "hw/copy/tma.h"
#include "hw/griddep.h"
#include "ops/gemm/sm90/gemv/span.cuh"
#include "pipe/named_barrier.h"
#include "pipe/uniform.h"

namespace halftone::gemm {

template <GpuCode kCode, ScaleMode kScales, bool kSmemScales = false>
struct Sm90Gemv {
  using Params = Sm90GemvParams;
  using Stages = Sm90GemvStages<kCode, kScales, kSmemScales>;
  using Span = Sm90GemvSpan<kCode, kScales>;
  using Scales = typename Span::Scales;
  using SmemScales = Sm90GemvSmemScales<Stages, Scales>;
  using Ring = typename Stages::Ring;
  using SumRing = typename Stages::SumRing;
  static constexpr uint32_t kThreads = Stages::kThreads, kMinBlocks = Stages::kMinBlocks;
  static constexpr uint32_t kWarps = Stages::kWarps, kBits = Stages::kBits;
  static constexpr uint32_t kSpan = Stages::kSpan, kRows = Stages::kRows;
  static constexpr bool kLaneScales = kScales != ScaleMode::none && !kSmemScales;
  static constexpr bool kFusesNorm = kCode != GpuCode::f16;  // x is BF16
  // Groups of eight elements of x that a thread keeps in registers: all of rows of up to
  // kSm90GemvKept elements.
  static constexpr uint32_t kKept = kSm90GemvKept / 8 / (kWarps * 32);
  enum class Barrier { mma_warps, count };

  HT_DEVICE static void sync(hw::Site site = hw::Site::current()) {
    pipe::sync<Barrier::mma_warps>(kWarps * 32, site);
  }
  HT_DEVICE static uint32_t outputs(const GpuGemm& p) { return p.epilogue.gate ? 8 : 16; }

  // Stages that are filled before x has been read, half of the ring or more: further copies in the
  // memory queues would delay x.
  static constexpr uint32_t kStagesBeforeX = 2;

  HT_DEVICE static void load(const Params& params, const Ring& ring, hw::Mbarrier x_read,
                             hw::SharedAddress base, uint32_t tiles) {
    const GpuGemm& p = params.gemm;
    if (!p.static_weights) hw::griddepcontrol_wait();
    const uint32_t chunks = (params.spans + kWarps - 1) / kWarps;
    const uint32_t scale_bytes =
        kSmemScales ? kWarps * params.scale_span : 0;  // of a row and stage
    const uint32_t bytes = 2 * (Stages::kHalf + params.scale_rows * scale_bytes);
    auto fill = ring.producer();
    uint32_t filled = 0;
    for (uint32_t tile = hw::block_index().x; tile < tiles; tile += hw::grid_size().x) {
      const Sm90FusedTile place(p, params.fused_gemms, tile);
      const auto row = static_cast<int32_t>(place.tile * outputs(p));
      const int32_t rows[2] = {row, p.epilogue.gate ? row : row + 8};
      int32_t scale_rows[2] = {};
      if constexpr (kSmemScales) {
        const auto shared = static_cast<int32_t>(params.scale_shared);
        scale_rows[0] = rows[0] / shared, scale_rows[1] = rows[1] / shared;
      }
      for (uint32_t c = 0; c < chunks; ++c) {
        if (filled++ == kStagesBeforeX) hw::mbarrier_wait(x_read, 0);
        const pipe::Slot slot = fill.wait();
        hw::mbarrier_arrive_expect_tx(slot.full, bytes);
        const hw::SharedAddress to = base + slot.stage * Stages::kBytes;
        HT_UNROLL
        for (uint32_t half = 0; half < 2; ++half) {
          const uint32_t source = p.epilogue.gate ? half : place.matrix;
          hw::tensor_load(to + half * Stages::kHalf, &params.w[source],
                          {0, rows[half], static_cast<int32_t>(c * kWarps)}, slot.full,
                          hw::kEvictFirst);
          if constexpr (kSmemScales) {
            hw::tensor_load(to + (2 * Stages::kHalf + half * Stages::kScaleHalf),
                            &params.scales[source],
                            {static_cast<int32_t>(c * scale_bytes), scale_rows[half]}, slot.full,
                            hw::kEvictFirst);
          }
        }
      }
    }
  }

  // The epilogue, by a warp of its own, so that its loads of scales, bias and residual stall
  // nobody.
  HT_DEVICE static void epilogue_warp(const Params& params, const SumRing& ring,
                                      hw::SharedAddress base, uint32_t tiles) {
    const GpuGemm& p = params.gemm;
    const uint32_t lane = hw::lane_index();
    hw::griddepcontrol_wait();
    auto read = ring.consumer();
    for (uint32_t tile = hw::block_index().x; tile < tiles; tile += hw::grid_size().x) {
      const Sm90FusedTile place(p, params.fused_gemms, tile);
      const uint32_t n = place.tile * outputs(p) + lane;
      const bool live = lane < outputs(p) && n < place.n;
      const GpuEpilogue f = place.epilogue(p, params.fused_gemms);
      EpilogueInputs in;
      if (live)
        in = epilogue_inputs(f, p.weight, place.source(p, params.fused_gemms), p.source[1], 0, 0, 0,
                             n);
      const hw::SharedAddress sums = base + (Stages::kSums + read.wait() * Stages::kSumBytes);
      const auto exponent = hw::load_shared<int32_t>(base + Stages::kExponent);
      float whole[2] = {};
      if (lane < outputs(p)) {
        HT_UNROLL
        for (uint32_t w = 0; w < kWarps; ++w) {
          whole[0] += hw::load_shared<float>(sums + (w * kRows + lane) * 4);
        }
        if (p.epilogue.gate) {
          HT_UNROLL
          for (uint32_t w = 0; w < kWarps; ++w) {
            whole[1] += hw::load_shared<float>(sums + (w * kRows + lane + 8) * 4);
          }
        }
      }
      hw::warp_sync();
      read.release(lane == 0);
      if (live) {
        epilogue_output(f, in, 0, n, scaled_by(whole[0], exponent), scaled_by(whole[1], exponent));
      }
    }
  }

  HT_DEVICE static void mma_warps(const Params& params, const Ring& ring, const SumRing& sum_ring,
                                  hw::Mbarrier x_read, hw::SharedAddress base, uint32_t tiles,
                                  uint32_t warp) {
    const GpuGemm& p = params.gemm;
    const uint32_t lane = hw::lane_index(), grid = hw::grid_size().x;
    uint32_t tile = hw::block_index().x;
    Scales scales;
    const auto prefetch = [&](uint32_t span) {
      if (span < params.spans) scales.prefetch(p, params.log2_group, span);
    };
    const auto begin_scales = [&](uint32_t of_tile) {
      if constexpr (kLaneScales) {
        const Sm90FusedTile place(p, params.fused_gemms, of_tile);
        const uint32_t first = place.tile * outputs(p) + lane / 4;
        const GpuSource source = place.source(p, params.fused_gemms);
        const bool gate = p.epilogue.gate;
        GpuSource other = source;
        if (gate) other = p.source[1];
        scales.locate(p, params.log2_rows, place.n, source, other, first, gate ? first : first + 8);
        prefetch(warp);
      }
    };
    using Row = Sm90GemvX<kCode, kKept>;
    const Sm90GemvThreads threads{hw::thread_index().x, kWarps * 32, 0};
    const hw::SharedAddress x = base + Stages::kX;
    const auto begin = [&] {
      begin_scales(tile);
      if constexpr (kFusesNorm) {
        if (params.norm.weight != nullptr)
          Row::stage_norm_weights(params.norm, x, p.k / 8, threads);
      }
    };
    if (p.static_weights) begin();
    hw::griddepcontrol_wait();
    if (!p.static_weights) begin();
    Row row(p.x, p.k / 8, threads);
    hw::warp_sync();
    if (lane == 0) hw::mbarrier_arrive(x_read);
    if (hw::thread_index().x < Stages::kZeroBytes / 16) {
      hw::store_shared(base + (Stages::kZeros + hw::thread_index().x * 16), hw::Words4{});
    }
    if constexpr (kFusesNorm) {
      if (params.norm.weight != nullptr) {
        row.normalise(params.norm, x, base + Stages::kSums, [] { sync(); });
      }
    }
    row.place({x, 0, 1, p.k}, base + Stages::kMaxima, [] { sync(); });
    if (hw::thread_index().x == 0) {
      hw::store_shared(base + Stages::kExponent, row.exponent());
    }
    sync();

    const typename Span::Columns columns(x, base + Stages::kZeros, p.k);
    const SmemScales copied(params, warp);
    const uint32_t chunks = (params.spans + kWarps - 1) / kWarps;
    auto read = ring.consumer();
    auto fill = sum_ring.producer();
    while (tile < tiles) {
      float sums[1][2] = {};
      const uint32_t next = tile + grid;
      HT_ROLLED
      for (uint32_t c = 0; c < chunks; ++c) {
        const uint32_t span = c * kWarps + warp;
        Scales now = scales;
        if (c + 1 == chunks) {
          if (next < tiles) begin_scales(next);
        } else if constexpr (kLaneScales) {
          prefetch(span + kWarps);
        }
        const hw::SharedAddress stage = base + read.wait() * Stages::kBytes;
        if (span < params.spans) {
          if constexpr (kSmemScales) copied.read(stage, now);
          Span::mma(stage, warp * 8 * kSpan, Stages::kHalf, columns, span, now,
                    p.weight.scale_format, sums);
        }
        // Read by ld.shared (generic proxy), overwritten by TMA (async proxy).
        hw::fence_proxy_async_shared();
        hw::warp_sync();
        read.release(lane == 0);
      }
      const pipe::Slot slot = fill.wait();
      const hw::SharedAddress at = base + (Stages::kSums + slot.stage * Stages::kSumBytes);
      HT_UNROLL
      for (uint32_t r = 0; r < 2; ++r) {
        if constexpr (kBits <= 8) {
          sums[0][r] += hw::shuffle_xor(sums[0][r], 1);
          sums[0][r] += hw::shuffle_xor(sums[0][r], 2);
        }
        if (lane % 4 == 0) {
          hw::store_shared(at + (warp * kRows + lane / 4 + r * 8) * 4, sums[0][r]);
        }
      }
      hw::warp_sync();
      if (lane == 0) fill.commit(slot);
      tile = next;
    }
  }

  HT_DEVICE static void run(const Params& params) {
    const hw::SharedAddress base = pipe::uniform_shared_memory();
    const Ring ring{base + Stages::kBarriers};
    const SumRing sum_ring{base + Stages::kSumBarriers};
    const hw::Mbarrier x_read{base + Stages::kXRead};
    const uint32_t tiles = params.tiles;
    if (hw::thread_index().x == 0) {
      ring.init(1, kWarps);
      sum_ring.init(kWarps, 1);
      sum_ring.name("sums_full", "sums_empty");
      hw::mbarrier_init(x_read, kWarps);
      hw::name_mbarrier(x_read, "x_read", 0);
      hw::fence_mbarrier_init();
    }
    hw::barrier_sync();
    // All CTAs are resident: those of the next kernel may take what is left.
    hw::griddepcontrol_launch_dependents();
    const uint32_t warp = pipe::uniform(hw::warp_index());
    if (warp < kWarps) {
      mma_warps(params, ring, sum_ring, x_read, base, tiles, warp);
    } else if (warp > kWarps) {
      epilogue_warp(params, sum_ring, base, tiles);
    } else if (hw::lane_index() == 0) {
      load(params, ring, x_read, base, tiles);
    }
  }
};

}  // namespace halftone::gemm
