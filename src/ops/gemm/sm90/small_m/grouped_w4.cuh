// Grouped small-M GEMM on sm_90a: up to 32 rows of BF16 x per expert by 4-bit weights (NVFP4,
// MXFP4, INT4), with the experts and their rows in a list of M-chunks in device memory.
//
// Persistent CTAs, two an SM, each take a contiguous range of the tiles (128 rows of W by one
// M-chunk) of all chunks. A thread issues the TMA copies of W and x, a warp copies scales, two or
// three warps permute x along K (small_m/k_permute.cuh), and two warpgroups dequantise and run
// wgmma, 64 rows of W each. A lane has both halves of a gated output, so the epilogue runs from
// registers and the warpgroups never synchronise with each other.
#pragma once
#include "ops/gemm/sm90/small_m/grouped_copies.cuh"
#include "ops/gemm/sm90/small_m/grouped_w4_stages.h"
#include "ops/gemm/sm90/small_m/w4_mainloop.cuh"

namespace halftone::gemm {

template <GpuCode kCode, ScaleMode kScales, uint32_t kColumns>
struct Sm90GroupedSmallMW4 {
  using Params = Sm90GroupedSmallMParams;
  using Stages = Sm90GroupedSmallMW4Stages<kScales, kColumns>;
  using Copies = Sm90GroupedCopies<Stages>;
  using Ring = Sm90SmallMW4Ring<kCode, Stages>;
  using Accumulator = Sm90SmallMW4Accumulator<kCode, Stages>;
  using Scales = Sm90GroupScales<Stages>;
  static constexpr uint32_t kThreads = Stages::kThreads, kMinBlocks = Stages::kMinBlocks;
  static constexpr uint32_t kWarps = Stages::kWarps;
  enum class Worker { mma, load };

  // By one of the warps that permute x.
  HT_DEVICE static void permute_x(const Params& params, const Ring& stages, uint32_t warp) {
    typename Ring::Permuter permuter(stages, warp);
    for (uint32_t left = Sm90TileRange(params.gemm, params.tiles).left; left > 0; --left) {
      for (uint32_t step = 0; step < params.steps; ++step) {
        permuter.next(Stages::kScaleOffset, params.scale_bytes - step * Stages::kScaleBytes);
      }
    }
  }

  // Scales and biases of a lane's two rows of W for the epilogue: lane l holds those of the warp's
  // row l % 16, scales in the lower half of the warp and biases in the upper.
  struct ScaleBias {
    float own;

    HT_DEVICE ScaleBias(const GpuGemm& p, const Sm90Tile& tile, uint32_t warp) : own(0) {
      const GpuEpilogue& f = p.epilogue;
      const uint32_t lane = hw::lane_index(), r = Stages::row_of(warp, lane % 16);
      const uint32_t n = tile.output(r), half = tile.half_of(r);
      if (n >= p.n) return;
      if (lane < 16) {
        own = row_scale(p.weight, tile.source_of(r), n) * p.alpha;
      } else if (const char* bias = half == 0 ? f.bias[0] : f.bias[1]; bias != nullptr) {
        own =
            pipe::load_element(f.bias_format, bias + tile.expert * f.bias_expert + n * f.bias_step);
      }
    }
    HT_DEVICE float scale(uint32_t row_of_16) const { return hw::shuffle(own, row_of_16); }
    HT_DEVICE float bias(uint32_t row_of_16) const { return hw::shuffle(own, 16 + row_of_16); }
  };

  // The epilogue of a tile, from registers.
  HT_DEVICE static void store_rows(const GpuGemm& p, const Sm90Tile& tile,
                                   const ScaleBias& scale_bias, const Accumulator& accumulator) {
    constexpr uint32_t kEach = kColumns / 4;  // outputs of each of the lane's rows
    const GpuEpilogue& f = p.epilogue;
    float y[2][kEach];
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t r = accumulator.row_of_16 + 8 * half;
      const float scale = scale_bias.scale(r), bias = scale_bias.bias(r);
      HT_UNROLL
      for (uint32_t i = 0; i < kEach; ++i) {
        float x_scale = 1;
        const uint32_t m = tile.m0 + column(accumulator, i);
        if (f.row_weights != nullptr && m < tile.end) x_scale = hw::load_global(f.row_weights + m);
        y[half][i] = accumulator.sum(half, i) * scale * x_scale + bias;
      }
    }
    const uint32_t n = tile.output(accumulator.row);
    if (tile.gate) {
      pipe::activate_gate<false>(f.gated, y[0], y[1]);
      return store(p, tile, accumulator, n, y[0]);
    }
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      pipe::activate<false>(f.activation, y[half]);
      store(p, tile, accumulator, n + half * Stages::kRowDistance, y[half]);
    }
  }
  HT_DEVICE static uint32_t column(const Accumulator& accumulator, uint32_t i) {
    return i / 2 * 8 + accumulator.quad * 2 + i % 2;
  }
  template <uint32_t kEach>
  HT_DEVICE static void store(const GpuGemm& p, const Sm90Tile& tile,
                              const Accumulator& accumulator, uint32_t n, const float (&y)[kEach]) {
    const GpuEpilogue& f = p.epilogue;
    if (n >= p.n) return;
    char* at = f.out + tile.m0 * f.out_row + n * pipe::bytes_of(f.out_format);
    HT_UNROLL
    for (uint32_t i = 0; i < kEach; ++i) {
      const uint32_t m = column(accumulator, i);
      if (tile.m0 + m < tile.end) pipe::store_element(f.out_format, at + m * f.out_row, y[i]);
    }
  }

  HT_DEVICE static void mma_warps(const Params& params, const Ring& stages, uint32_t warp) {
    const GpuGemm& p = params.gemm;
    typename Ring::Reader read(stages);
    Scales scales(p, params.log2_groups, warp);
    Sm90MChunk chunk;
    Sm90TileRange range(p, params.tiles);
    range.left = pipe::uniform(range.left);
    for (; range.left > 0; range.next()) {
      if (range.new_chunk) chunk.load(p, range.chunk);
      const Sm90Tile tile = chunk.tile(p, range.tile);
      const ScaleBias scale_bias(p, tile, warp);
      Accumulator accumulator(warp);
      if constexpr (Accumulator::kPromotes) {
        if (range.new_chunk) {
          scales.locate(tile, p.n);
          scales.prefetch(0);
        }
      }
      const auto prefetch = [&](uint32_t step) {
        if (step < params.steps) return scales.prefetch(step);
        if (range.left == 1 || range.tile + 1 == range.tiles) return;
        scales.locate(chunk.tile(p, range.tile + 1), p.n);
        scales.prefetch(0);
      };
      Sm90SmallMW4Mainloop<Ring, Accumulator, false>::add(
          read, 0, params.steps, accumulator, scales, [](uint32_t) { return Stages::kScaleOffset; },
          prefetch);
      store_rows(p, tile, scale_bias, accumulator);
    }
  }

  HT_DEVICE static void run(const Params& params) {
    const Ring stages(pipe::uniform_shared_memory());
    if (hw::thread_index().x == 0) stages.init(Copies::kProducers);
    hw::barrier_sync();
    // A next kernel with PDL may take this list of chunks as written before it starts: so
    // griddepcontrol.wait comes before launch_dependents.
    if (!params.gemm.static_weights) hw::griddepcontrol_wait();
    hw::griddepcontrol_launch_dependents();
    const uint32_t warp = pipe::uniform(hw::warp_index());
    if (pipe::enter<Stages::kRoles, Worker::load, kMinBlocks>()) {
      constexpr uint32_t kFirstPermuteWarp = kWarps + 4 - Stages::kPermuteWarps;
      if (warp >= kFirstPermuteWarp) {
        permute_x(params, stages, warp - kFirstPermuteWarp);
      } else if (warp == kWarps) {
        if (hw::lane_index() == 0) Copies::load_tensors(params, stages.ring, stages.base);
      } else {
        if constexpr (Stages::kSmemScales) Copies::load_scales(params, stages.ring, stages.base);
      }
    } else if (pipe::enter<Stages::kRoles, Worker::mma, kMinBlocks>()) {
      if (params.gemm.static_weights) hw::griddepcontrol_wait();
      mma_warps(params, stages, warp);
    }
  }
};

}  // namespace halftone::gemm
