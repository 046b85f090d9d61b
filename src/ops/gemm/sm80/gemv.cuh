// GEMV y = x W^T for any GPU from sm_80 on: up to 8 or 16 columns (rows of x times terms), weights
// of every format in checkpoint layout, dense or grouped. Bound by the bandwidth of W, which is
// read once.
//
// A warp takes 16 rows of W, the M rows of an MMA, and of K every warps_k-th span of 128 bytes of a
// row; x is the N operand. The warp copies its spans to shared memory by cp.async some spans ahead,
// synchronises with no other warp, and dequantises to BF16 in registers (sm80/dequantise.h). A lane
// takes eight consecutive elements of K, an octet, of a row of W and of a row of x. x comes through
// the L1, which cp.async bypasses. Whole, aligned spans have specialised loops (sm80/gemv_spans.h);
// here is the general one, in which the lanes of a quad have 32 elements, a chunk, two K steps of
// the MMA whatever the width of the weights.
//
// Numerics: a warp's accumulator starts from zero at every span and wherever a scale group may end,
// after at most 128 elements of K; it is scaled and promoted into an FP32 sum. At the end the warps
// along K are added in order, then the terms of x, the smallest first. So the bits of an output are
// a function of its rows of W and x, the format and the loop.
#pragma once
#include "base/launch.h"
#include "hw/barrier.h"
#include "ops/gemm/sm80/gemv_operands.h"
#include "ops/gemm/sm80/gemv_scales.h"
#include "ops/gemm/sm80/gemv_spans.h"

namespace halftone::gemm {

template <GpuCode kCode, uint32_t kTilesM>
struct GpuGemv {
  using Params = GpuGemm;
  using Policy = CodePolicy<kCode>;
  using Scales = GpuGemvScales<kCode, kTilesM>;
  using Spans = GpuGemvSpans<kCode, kTilesM>;
  using Sums = GpuSums<kTilesM>;
  static constexpr uint32_t kRows = Scales::kRows, kColumns = Scales::kColumns;
  static constexpr uint32_t kSpan = Scales::kSpan, kDepth = Scales::kDepth;
  static constexpr uint32_t kChunks = Scales::kChunks;
  static constexpr uint32_t kLog2Warps = 3, kWarps = 1 << kLog2Warps, kThreads = kWarps * 32;

  static constexpr uint32_t kStages = 3, kStageBytes = kRows * kSpan;
  static constexpr uint32_t kTables = kStages * kStageBytes;
  static constexpr uint32_t kAnyBytes = kTables + 2 * Scales::kTableBytes;
  static constexpr uint32_t kWarpBytes =
      Spans::kRingBytes > kAnyBytes ? Spans::kRingBytes : kAnyBytes;
  static constexpr uint32_t kSharedBytes = kWarps * kWarpBytes;
  static constexpr uint32_t kFitting = 227 * 1024 / (kSharedBytes + 1024);
  // 64 registers a thread are too few; 80 are for the terms of wide weights and for two tiles of x.
  static constexpr uint32_t kMaxCtas = Policy::kTerms > 1 || kTilesM > 1 ? 2 : 3;
  static constexpr uint32_t kMinBlocks = kFitting < kMaxCtas ? kFitting : kMaxCtas;

  // FP32 weights are more bytes than any model has: the general loop is enough for them.
  static constexpr bool kHasSpanLoops = kCode != GpuCode::f32 && kCode != GpuCode::dequantised;

  // Warps that split the K of a row: as many as get two spans each. A function of K alone.
  HT_HOST_DEVICE static uint32_t log2_warps_along_k(uint32_t k) {
    const uint32_t spans = (k + kDepth - 1) / kDepth;
    return spans < 4 ? 0 : spans < 8 ? 1 : spans < 16 ? 2 : kLog2Warps;
  }

  // `chunks`: CTAs along y where x's rows are in M-chunks; 0: they are simply cut into tiles.
  static LaunchShape shape(const Params& p, uint32_t chunks) {
    const auto tiles = [](uint32_t count, uint32_t size) { return (count + size - 1) / size; };
    const uint32_t rows = kRows << (kLog2Warps - log2_warps_along_k(p.k));
    return {.grid = {tiles(p.n, p.epilogue.gate ? rows / 2 : rows),
                     chunks > 0 ? chunks : tiles(p.m, kColumns / p.terms), 1},
            .block = {kThreads, 1, 1},
            .cluster = {},
            .shared_bytes = kSharedBytes};
  }

  using Copies = GpuGemvCopies<kCode>;
  using Column = GpuGemvColumn<kCode>;

  // The octet of a chunk of a row of W, as stored. Chunks differ in address bits that the lane's
  // offset in a row leaves zero.
  HT_DEVICE static uint32_t octet_offset(uint32_t row, uint32_t quad) {
    const uint32_t at = quad * Policy::kBits;
    return swizzled<Policy::kBits, kSpan>(row, at / 16) + at % 16;
  }
  HT_DEVICE static void load_octet(hw::SharedAddress stage, uint32_t place, uint32_t chunk,
                                   uint32_t (&packed)[Policy::kBits / 4],
                                   hw::Site site = hw::Site::current()) {
    constexpr uint32_t kBytes = Policy::kBits < 16 ? Policy::kBits : 16;
    using Load = hw::Vector<uint32_t, kBytes / 4>;
    HT_UNROLL
    for (uint32_t i = 0; i < Policy::kBits / kBytes; ++i) {
      const auto words =
          hw::load_shared<Load>(stage + (place ^ (chunk * 4 * Policy::kBits + i * 16)), site);
      HT_UNROLL
      for (uint32_t w = 0; w < kBytes / 4; ++w) packed[i * 4 + w] = words[w];
    }
  }

  // The general span; `every`: chunks after which the accumulator is promoted.
  HT_DEVICE static void mma(const Params& p, const Column (&columns)[kTilesM], bool pairs,
                            uint32_t every, uint32_t index, hw::SharedAddress stage,
                            hw::SharedAddress table, Sums& sums) {
    const uint32_t row = hw::lane_index() / 4, quad = hw::lane_index() % 4;
    const uint32_t place = octet_offset(row, quad);
    HT_ROLLED
    for (uint32_t c = 0; c < kChunks; ++c) {
      uint32_t x[kTilesM][4];
      HT_UNROLL
      for (uint32_t j = 0; j < kTilesM; ++j) {
        columns[j].load(p, index * kDepth + (c * 4 + quad) * 8, x[j]);
      }
      mma_chunk(p, x, pairs, every, c, stage, place, table, sums);
    }
  }
  HT_DEVICE static void mma_chunk(const Params& p, const uint32_t (&x)[kTilesM][4], bool pairs,
                                  uint32_t every, uint32_t c, hw::SharedAddress stage,
                                  uint32_t place, hw::SharedAddress table, Sums& sums,
                                  hw::Site site = hw::Site::current()) {
    const uint32_t row = hw::lane_index() / 4, quad = hw::lane_index() % 4;
    uint32_t w[2][Policy::kTerms][4];  // rows r and r + 8
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      uint32_t packed[Policy::kBits / 4], pair = Policy::kUnscaled;
      load_octet(stage + half * 8 * kSpan, place, c, packed, site);
      if constexpr (Scales::kPairEntries > 0) {
        // Slots c, or 2 c and the next, of the row.
        constexpr bool kTwo = Policy::kPairExtent == 16;
        const uint32_t at =
            Scales::template place<Scales::kPairEntries>(kTwo ? c * 2 : c, half * 8);
        if (pairs) {
          pair = hw::load_shared<uint32_t>(table + (at + ((kTwo ? quad / 2 * kRows : 0) + row) * 4),
                                           site);
        }
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
          hw::mma_m16n8k16<Policy::kType>(sums.accumulator[j], a, b, sums.accumulator[j], site);
        }
      }
    }
    if (c + 1 == kChunks || (c + 1) % 4 == 0 || ((c + 1) & (every - 1)) == 0) {
      promote(p, table, c, sums, site);
    }
  }

  // Promotes the accumulator: FP32 sum += accumulator * scales.
  HT_DEVICE static void promote(const Params& p, hw::SharedAddress table, uint32_t chunk,
                                Sums& sums, hw::Site site = hw::Site::current()) {
    float w[2] = {p.alpha, p.alpha};
    if constexpr (Scales::kScaleEntries > 0) {
      if (p.scaled) {
        HT_UNROLL
        for (uint32_t half = 0; half < 2; ++half) {
          const uint32_t at =
              Scales::template place<Scales::kScaleEntries>(chunk, hw::lane_index() / 4 + half * 8);
          w[half] *= hw::load_shared<float>(table + (Scales::kScaleTable + at), site);
        }
      }
    }
    HT_UNROLL
    for (uint32_t j = 0; j < kTilesM; ++j) {
      hw::Vector<float, 2> x{{1, 1}};
      if (p.x_scales != nullptr) {
        const uint32_t entry = chunk * kColumns + j * 8 + hw::lane_index() % 4 * 2;
        x = hw::load_shared<hw::Vector<float, 2>>(table + (Scales::kXTable + entry * 4), site);
      }
      HT_UNROLL
      for (uint32_t e = 0; e < 4; ++e) {
        sums.promoted[j][e] =
            hw::fma(sums.accumulator[j][e], w[e / 2] * x[e % 2], sums.promoted[j][e]);
        sums.accumulator[j][e] = 0;
      }
    }
  }

  // In the epilogue the sums take the place of the stages: [warp][column][row], rows of the up half
  // of gates behind those of the gates. Warps of neighbouring tiles continue each other's banks.
  static constexpr uint32_t kSumRow = kRows + 4;
  HT_DEVICE static uint32_t sum_offset(bool gate, uint32_t columns, uint32_t warp, uint32_t column,
                                       uint32_t row) {
    return (warp * (columns * kSumRow + (gate ? 8 : 16)) + column * kSumRow + row) * 4;
  }
  static_assert(kWarps * (kColumns * kSumRow + 16) * 4 <= kWarps * kStages * kStageBytes);

  HT_DEVICE static float reduced_sum(const Params& p, hw::SharedAddress sums, uint32_t columns,
                                     uint32_t log2_k, uint32_t tile, uint32_t m, uint32_t row) {
    float sum = 0;
    for (uint32_t t = 0; t < p.terms; ++t) {
      float term = 0;
      for (uint32_t k = 0; k < 1u << log2_k; ++k) {
        const uint32_t warp = (k << (kLog2Warps - log2_k)) + tile;
        term += hw::load_shared<float>(
            sums + sum_offset(p.epilogue.gate, columns, warp, m * p.terms + t, row));
      }
      sum += term;
    }
    return sum;
  }

  // From the sums of `columns` columns; the first warp that has work is `first`.
  HT_DEVICE static void epilogue(const Params& p, const GpuTask& task, hw::SharedAddress sums,
                                 uint32_t columns, uint32_t log2_k, uint32_t first) {
    const bool gate = p.epilogue.gate;
    const uint32_t log2_rows = gate ? 3 : 4;  // outputs of a tile
    const uint32_t log2_outputs = kLog2Warps - log2_k + log2_rows;
    // A warp has outputs of one row of x: those of two would conflict in banks.
    const uint32_t log2_width = log2_outputs < 5 ? 5 : log2_outputs;
    const uint32_t thread = (hw::thread_index().x - first * 32) % kThreads;
    for (uint32_t i = thread; i < task.rows << log2_width; i += kThreads) {
      const uint32_t m = i >> log2_width, o = i & ((1u << log2_width) - 1), n = task.n0 + o;
      if (o >> log2_outputs != 0 || n >= p.n) continue;
      const uint32_t tile = o >> log2_rows, row = o & ((1u << log2_rows) - 1);
      const float sum = reduced_sum(p, sums, columns, log2_k, tile, m, row);
      const float up = gate ? reduced_sum(p, sums, columns, log2_k, tile, m, row + 8) : 0;
      epilogue_output(p.epilogue, p.weight, task.source[0], task.source[1], task.expert,
                      task.row0 + m, static_cast<uint32_t>(x_row_of(p, task, m)), n, sum, up);
    }
  }

  HT_DEVICE static void run_any(const Params& p, const GpuTask& task, const GpuSpanRange& range,
                                hw::SharedAddress ring, Sums& sums) {
    const Copies copies(p, task, range.tile_row);
    const auto index_of = [&](uint32_t i) { return range.first + i * range.step; };
    // Empty groups beyond the end: then "all but the newest" always means the span to be read.
    uint32_t filled = 0;  // offset of the next span to fill
    const auto fill = [&](uint32_t i) {
      if (i < range.count) copies.span(p, task, range.tile_row, index_of(i), ring + filled);
      hw::cp_async_commit();
      filled = filled + kStageBytes < kTables ? filled + kStageBytes : 0;
    };
    HT_UNROLL
    for (uint32_t s = 0; s + 1 < kStages; ++s) fill(s);
    hw::pdl_wait();

    Column columns[kTilesM];
    HT_UNROLL
    for (uint32_t j = 0; j < kTilesM; ++j) columns[j].find(p, task, j);
    // The scales of the lane's row.
    const uint32_t r = hw::lane_index() / 2;
    const uint32_t wanted = task.output(p.epilogue.gate, range.tile_row + r);
    const uint32_t row = wanted < p.n ? wanted : p.n - 1;
    const GpuSource source = task.source_of(p.epilogue.gate, r);
    Scales scales;
    const auto table = [&](uint32_t i) { return ring + (kTables + i % 2 * Scales::kTableBytes); };
    scales.load(p, task, source, row, index_of(0) * kDepth);
    scales.store(p, source, table(0));
    const bool pairs = kCode == GpuCode::int4 ? source.zeros != nullptr : p.pairs;
    const uint32_t every = p.period == 0 || p.period % 4 == 0 ? 4 : p.period % 2 == 0 ? 2 : 1;
    uint32_t read = 0;
    HT_ROLLED
    for (uint32_t i = 0; i < range.count; ++i) {
      hw::cp_async_wait<kStages - 2>();  // this lane's copies of the span, ...
      hw::warp_sync();  // ... all lanes', and none reads the previous span any more
      fill(i + kStages - 1);
      const bool more = i + 1 < range.count;
      if (more) scales.load(p, task, source, row, index_of(i + 1) * kDepth);
      mma(p, columns, pairs, every, index_of(i), ring + read, table(i), sums);
      if (more) scales.store(p, source, table(i + 1));
      read = read + kStageBytes < kTables ? read + kStageBytes : 0;
    }
    hw::cp_async_wait<0>();
  }

  HT_DEVICE static void run_spans(const Params& p, const GpuTask& task, const GpuSpanRange& range,
                                  hw::SharedAddress ring, Sums& sums) {
    if constexpr (kHasSpanLoops) {
      if (p.spans.loop != GpuLoop::any) return Spans::run(p, task, range, ring, sums);
    }
    run_any(p, task, range, ring, sums);
  }

  HT_DEVICE static void run(const Params& p) {
    if (!p.static_weights) hw::pdl_wait();
    const uint32_t log2_k = log2_warps_along_k(p.k), log2_tiles = kLog2Warps - log2_k;
    const GpuTask task = task_of(p, kRows << log2_tiles, kColumns);
    if (task.rows == 0) return;
    const uint32_t warp = hw::warp_index(), tiles = 1u << log2_tiles, warps_k = 1u << log2_k;
    const uint32_t spans = (p.k + kDepth - 1) / kDepth, first = warp >> log2_tiles;
    GpuSpanRange range{(warp & (tiles - 1)) * kRows, first, warps_k, 0};
    if (task.output(p.epilogue.gate, range.tile_row) < p.n && first < spans) {
      range.count = (spans - first + warps_k - 1) >> log2_k;
    }
    Sums sums;
    const hw::SharedAddress ring = task.base + warp * kWarpBytes;
    if (range.count > 0) run_spans(p, task, range, ring, sums);
    hw::pdl_wait();  // for warps without spans
    hw::launch_dependents();
    hw::barrier_sync();
    // Rows of the up half come eight behind, as in the tile.
    HT_UNROLL
    for (uint32_t j = 0; j < kTilesM; ++j) {
      HT_UNROLL
      for (uint32_t e = 0; e < 4; ++e) {
        const uint32_t column = j * 8 + hw::lane_index() % 4 * 2 + e % 2;
        const uint32_t at =
            sum_offset(p.epilogue.gate, kColumns, warp, column, hw::lane_index() / 4 + e / 2 * 8);
        hw::store_shared(task.base + at, sums.promoted[j][e]);
      }
    }
    hw::barrier_sync();
    epilogue(p, task, task.base, kColumns, log2_k, 0);
  }
};

}  // namespace halftone::gemm
