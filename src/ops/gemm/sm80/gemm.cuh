// Tiled GEMM y = x W^T on mma.sync for any GPU from sm_80 on and more than 16 rows of x, weights of
// every format in checkpoint layout, dense or grouped. Tiles of 128 x 128, eight warps of 32 x 64,
// a cp.async ring of stages of 64 elements of K.
//
// Swap-AB: the weights are the M operand, x the N operand, as in the GEMV (sm80/gemv.cuh). A lane
// takes eight consecutive elements of K, an octet, of a row of W and of a row of x: the lanes of a
// quad 32 elements, a chunk, which is two K steps of the MMA whatever the width of the weights.
// Weights are dequantised to BF16 in registers (sm80/dequantise.h).
//
// Numerics: a warp's accumulator starts from zero at every stage, 64 elements of K, and wherever a
// scale group may end; it is scaled and promoted into an FP32 sum. With kHalfSums the accumulator
// of a stage is FP16, rounded after every 16 elements. At the end the terms of x are added, the
// smallest first. So the bits of an output are a function of its rows of W and x and the format.
#pragma once
#include <type_traits>

#include "base/launch.h"
#include "hw/barrier.h"
#include "hw/griddep.h"
#include "hw/mma/mma.h"
#include "ops/gemm/sm80/stages.h"

namespace halftone::gemm {

template <GpuCode kCode, GpuTile kTile>
struct GpuTiledGemm : GpuStages<kCode, kTile> {
  using Params = GpuGemm;
  using Stages = GpuStages<kCode, kTile>;
  using Policy = CodePolicy<kCode>;
  static constexpr uint32_t kRows = Stages::kRows, kColumns = Stages::kColumns;
  static constexpr uint32_t kTilesN = kRows / kTile.warps_n / 16;
  static constexpr uint32_t kTilesM = kColumns / kTile.warps_m / 8;
  static_assert(kTilesN * 16 * kTile.warps_n == kRows && kTilesM * 8 * kTile.warps_m == kColumns,
                "warps share the tile in whole MMAs");

  // In the epilogue the sums take the place of the stages: [column][row].
  static constexpr uint32_t kSumRow = kRows + 4;
  static constexpr uint32_t kSumBytes = kColumns * kSumRow * 4;
  static constexpr uint32_t kSharedBytes = Stages::kUsed > kSumBytes ? Stages::kUsed : kSumBytes;

  // CTAs an SM that shared memory allows (227 KB); registers must not forbid them.
  static constexpr uint32_t kFittingStages = 227 * 1024 / kSharedBytes;
  static constexpr uint32_t kMinBlocks =
      kFittingStages < kTile.blocks ? kFittingStages : kTile.blocks;

  // `chunks`: CTAs along y where x's rows are in M-chunks; 0: they are simply cut into tiles.
  static LaunchShape shape(const Params& p, uint32_t chunks) {
    const auto tiles = [](uint32_t count, uint32_t size) { return (count + size - 1) / size; };
    return {.grid = {tiles(p.n, p.epilogue.gate ? kRows / 2 : kRows),
                     chunks > 0 ? chunks : tiles(p.m, kColumns / p.terms), 1},
            .block = {Stages::kThreads, 1, 1},
            .cluster = {},
            .shared_bytes = kSharedBytes};
  }

  // A thread's fragments in the tile.
  struct Warp {
    uint32_t row, column;  // the thread's first
    uint32_t quad;         // its index among the four lanes of a chunk
    HT_DEVICE Warp() {
      const uint32_t warp = hw::warp_index(), lane = hw::lane_index();
      row = warp % kTile.warps_n * kTilesN * 16 + lane / 4;
      column = warp / kTile.warps_n * kTilesM * 8;
      quad = lane % 4;
    }
  };

  // The octet of a row of W, as stored.
  HT_DEVICE static void load_octet(hw::SharedAddress stage, uint32_t row, uint32_t octet,
                                   uint32_t (&packed)[Policy::kBits / 4],
                                   hw::Site site = hw::Site::current()) {
    constexpr uint32_t kBytes = Policy::kBits < 16 ? Policy::kBits : 16;
    using Load = hw::Vector<uint32_t, kBytes / 4>;
    HT_UNROLL
    for (uint32_t i = 0; i < Policy::kBits / kBytes; ++i) {
      const uint32_t at = octet * Policy::kBits + i * 16;
      const Load words =
          hw::load_shared<Load>(stage + (Stages::w_offset(row, at / 16) + at % 16), site);
      HT_UNROLL
      for (uint32_t w = 0; w < kBytes / 4; ++w) packed[i * 4 + w] = words[w];
    }
  }

  // The accumulator of one MMA: FP32, or FP16 with two columns a register.
  struct Accumulator {
    std::conditional_t<Policy::kHalfSums, uint32_t[2], float[4]> words = {};
    HT_DEVICE float operator[](uint32_t e) const {
      if constexpr (Policy::kHalfSums) {
        return hw::cvt_f32_f16(static_cast<uint16_t>(words[e / 2] >> 16 * (e % 2)));
      } else {
        return words[e];
      }
    }
  };
  struct Sums {
    float promoted[kTilesN][kTilesM][4] = {};
    Accumulator accumulator[kTilesN][kTilesM];
  };

  HT_DEVICE static void mma(const Params& p, const GpuTask& task, const Warp& at, uint32_t step,
                            Sums& sums) {
    const hw::SharedAddress stage = task.base + step % Stages::kStages * Stages::kStageBytes;
    const hw::SharedAddress table =
        task.base + (Stages::kScaleTables + step % 2 * Stages::kScaleTableBytes);
    HT_UNROLL
    for (uint32_t chunk = 0; chunk < Stages::kChunks; ++chunk) {
      const uint32_t octet = chunk * 4 + at.quad;
      uint32_t x[kTilesM][4];
      HT_UNROLL
      for (uint32_t j = 0; j < kTilesM; ++j) {
        const uint32_t column = at.column + j * 8 + hw::lane_index() / 4;
        const auto words = hw::load_shared<hw::Words4>(
            stage + (kRows * Stages::kRowBytes + Stages::x_offset(column, octet)));
        HT_UNROLL
        for (uint32_t w = 0; w < 4; ++w) x[j][w] = words[w];
        Policy::arrange(x[j]);
      }
      HT_UNROLL
      for (uint32_t i = 0; i < kTilesN; ++i) {
        uint32_t w[2][Policy::kTerms][4];  // rows r and r + 8
        HT_UNROLL
        for (uint32_t half = 0; half < 2; ++half) {
          const uint32_t row = at.row + i * 16 + half * 8;
          uint32_t packed[Policy::kBits / 4], pair = 0;
          load_octet(stage, row, octet, packed);
          if constexpr (Policy::kPairExtent != 0) {
            const uint32_t slot = Policy::kPairExtent == 16 ? chunk * 2 + at.quad / 2 : chunk;
            pair = hw::load_shared<uint32_t>(table + (slot * Stages::kScaleTableRow + row) * 4);
          }
          Policy::expand(packed, pair, w[half]);
        }
        HT_UNROLL
        for (uint32_t s = 0; s < 4; s += 2) {
          HT_UNROLL
          for (uint32_t t = 0; t < Policy::kTerms; ++t) {
            const uint32_t a[4] = {w[0][t][s], w[1][t][s], w[0][t][s + 1], w[1][t][s + 1]};
            HT_UNROLL
            for (uint32_t j = 0; j < kTilesM; ++j) {
              const uint32_t b[2] = {x[j][s], x[j][s + 1]};
              auto& accumulator = sums.accumulator[i][j].words;
              hw::mma_m16n8k16<Policy::kType>(accumulator, a, b, accumulator);
            }
          }
        }
      }
      const bool ends = p.period > 0 && (step * Stages::kChunks + chunk + 1) % p.period == 0;
      if (chunk + 1 == Stages::kChunks || ends) promote(p, at, table, chunk, sums);
    }
  }

  // Promotes the accumulator: FP32 sum += accumulator * scales.
  HT_DEVICE static void promote(const Params& p, const Warp& at, hw::SharedAddress table,
                                uint32_t chunk, Sums& sums, hw::Site site = hw::Site::current()) {
    HT_UNROLL
    for (uint32_t i = 0; i < kTilesN; ++i) {
      float w[2] = {p.alpha, p.alpha};
      if constexpr (Stages::kScaleSlots > 0) {
        if (p.scaled) {
          HT_UNROLL
          for (uint32_t half = 0; half < 2; ++half) {
            const uint32_t entry = chunk * Stages::kScaleTableRow + at.row + i * 16 + half * 8;
            w[half] *= hw::load_shared<float>(table + (Stages::kPairBytes + entry * 4), site);
          }
        }
      }
      HT_UNROLL
      for (uint32_t j = 0; j < kTilesM; ++j) {
        hw::Vector<float, 2> x{{1, 1}};
        if (p.x_scales != nullptr) {
          const uint32_t entry = chunk * kColumns + at.column + j * 8 + at.quad * 2;
          x = hw::load_shared<hw::Vector<float, 2>>(
              table + (Stages::kPairBytes + Stages::kScaleBytes + entry * 4), site);
        }
        HT_UNROLL
        for (uint32_t e = 0; e < 4; ++e) {
          sums.promoted[i][j][e] =
              hw::fma(sums.accumulator[i][j][e], w[e / 2] * x[e % 2], sums.promoted[i][j][e]);
        }
        sums.accumulator[i][j] = {};
      }
    }
  }

  // Sums are ordered by output: those of the up half of a gate behind those of the gate.
  HT_DEVICE static void store_sums(const Params& p, const GpuTask& task, const Warp& at,
                                   const Sums& sums) {
    HT_UNROLL
    for (uint32_t i = 0; i < kTilesN; ++i) {
      HT_UNROLL
      for (uint32_t j = 0; j < kTilesM; ++j) {
        HT_UNROLL
        for (uint32_t e = 0; e < 4; ++e) {
          const uint32_t r = at.row + i * 16, half = e / 2;
          const uint32_t row =
              p.epilogue.gate ? half * (kRows / 2) + r / 16 * 8 + r % 8 : r + half * 8;
          const uint32_t column = at.column + j * 8 + at.quad * 2 + e % 2;
          hw::store_shared(task.base + (column * kSumRow + row) * 4, sums.promoted[i][j][e]);
        }
      }
    }
  }

  HT_DEVICE static float reduced_sum(const Params& p, const GpuTask& task, uint32_t m,
                                     uint32_t row) {
    float sum = 0;
    for (uint32_t t = 0; t < p.terms; ++t) {
      sum += hw::load_shared<float>(task.base + ((m * p.terms + t) * kSumRow + row) * 4);
    }
    return sum;
  }

  HT_DEVICE static void epilogue(const Params& p, const GpuTask& task) {
    const uint32_t outputs = p.epilogue.gate ? kRows / 2 : kRows;
    // A warp has outputs of one row of x: those of two would conflict in banks.
    const uint32_t width = outputs < 32 ? 32 : outputs;
    for (uint32_t i = hw::thread_index().x; i < width * task.rows; i += Stages::kThreads) {
      const uint32_t m = i / width, o = i % width, n = task.n0 + o;
      if (o >= outputs || n >= p.n) continue;
      const float sum = reduced_sum(p, task, m, o);
      const float up = p.epilogue.gate ? reduced_sum(p, task, m, outputs + o) : 0;
      epilogue_output(p.epilogue, p.weight, task.source[0], task.source[1], task.expert,
                      task.row0 + m, static_cast<uint32_t>(x_row_of(p, task, m)), n, sum, up);
    }
  }

  HT_DEVICE static void run(const Params& p) {
    hw::launch_dependents_and_wait();
    const GpuTask task = task_of(p, kRows, kColumns);
    if (task.rows == 0) return;
    const uint32_t steps = (p.k + Stages::kDepth - 1) / Stages::kDepth;
    Stages::clear(p, task);
    // One cp.async group for every step, empty beyond the end: then "all but the newest" always
    // means that the stage to be read has arrived.
    const auto fill = [&](uint32_t step) {
      if (step < steps) Stages::fill(p, task, step);
      hw::cp_async_commit();
    };
    for (uint32_t s = 0; s + 1 < Stages::kStages; ++s) fill(s);
    typename Stages::Scales scales;
    Stages::load_scales(p, task, 0, scales);
    Stages::store_scales(p, task, 0, scales);

    const Warp at;
    Sums sums;
    for (uint32_t step = 0; step < steps; ++step) {
      hw::cp_async_wait<Stages::kStages - 2>();  // this thread's copies of the stage, ...
      hw::barrier_sync();  // ... everybody's, and nobody reads the previous stage any more
      fill(step + Stages::kStages - 1);
      const bool more = step + 1 < steps;
      if (more) Stages::load_scales(p, task, step + 1, scales);
      mma(p, task, at, step, sums);
      if (more) Stages::store_scales(p, task, step + 1, scales);
    }
    hw::cp_async_wait<0>();
    hw::barrier_sync();
    store_sums(p, task, at, sums);
    hw::barrier_sync();
    epilogue(p, task);
  }
};

}  // namespace halftone::gemm
