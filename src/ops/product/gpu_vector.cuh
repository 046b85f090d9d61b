// y = x W^T for up to eight columns of x, or sixteen: W is read once, as fast as memory gives it,
// and the rest stays below that. Weights of every format in checkpoint layout.
//
// A warp takes 16 rows of W, the rows of an MMA, and of K every warps_k-th span of 128 bytes of a
// row; x is the columns. The warp copies its spans to shared memory by cp.async some spans ahead,
// waits for nobody but itself, and makes bf16 of the codes in registers (gpu_codes.h). A lane takes
// eight consecutive elements of K, an octet, of a row of W and of a row of x: the lanes of a quad
// 32 elements, a chunk, which is two steps of the MMA whatever the width of a code. x comes through
// L1, which cp.async leaves to it.
//
// Sums: a warp starts from zero at every span and wherever a group of scales may end, at most 128
// elements of K further; scales multiply that sum, which joins the warp's f32 accumulator. At the
// end the warps along K are added in their order, then the terms of x, the smallest first. So the
// bits of an output are a function of its rows of W and x and the format.
#pragma once
#include "base/launch.h"
#include "hw/barrier.h"
#include "hw/griddep.h"
#include "hw/mma.h"
#include "hw/warp.h"
#include "ops/product/gpu_vector_scales.h"

namespace halftone::product {

template <GpuCode kCode, uint32_t kTilesM>
struct GpuVector {
  using Params = GpuProduct;
  using Policy = CodePolicy<kCode>;
  using Scales = GpuVectorScales<kCode, kTilesM>;
  static constexpr uint32_t kRows = Scales::kRows, kColumns = Scales::kColumns;
  static constexpr uint32_t kSpan = Scales::kSpan, kDepth = Scales::kDepth;
  static constexpr uint32_t kChunks = Scales::kChunks;
  static constexpr uint32_t kWarps = 8, kThreads = kWarps * 32;

  // Two spans of 2 KB under way a warp: with 24 warps a multiprocessor and more 96 KB, more than
  // twice what the latency of memory needs (docs/findings/gpu-gemv.md).
  static constexpr uint32_t kStages = 3, kStageBytes = kRows * kSpan;
  static constexpr uint32_t kTables = kStages * kStageBytes;
  static constexpr uint32_t kWarpBytes = kTables + 2 * Scales::kTableBytes;
  static constexpr uint32_t kSharedBytes = kWarps * kWarpBytes;
  static constexpr uint32_t kFitting = 227 * 1024 / (kSharedBytes + 1024);
  // 64 registers a thread are too few for the terms of wide codes and for two tiles of x.
  static constexpr uint32_t kMost = Policy::kTerms > 1 ? 2 : kTilesM > 1 ? 3 : 4;
  static constexpr uint32_t kMinBlocks = kFitting < kMost ? kFitting : kMost;

  // Warps that share the K of a row: as many as get two spans each. A function of K alone.
  HT_HOST_DEVICE static uint32_t warps_along_k(uint32_t k) {
    const uint32_t spans = (k + kDepth - 1) / kDepth;
    uint32_t warps = kWarps;
    while (warps > 1 && spans < 2 * warps) warps /= 2;
    return warps;
  }
  HT_HOST_DEVICE static uint32_t rows_of_block(uint32_t k) {
    return kWarps / warps_along_k(k) * kRows;
  }

  // `parts` blocks along y where x's rows are not simply cut into tiles.
  static LaunchShape shape(const Params& p, uint32_t parts) {
    const auto tiles = [](uint32_t count, uint32_t size) { return (count + size - 1) / size; };
    const uint32_t rows = rows_of_block(p.k);
    return {.grid = {tiles(p.n, p.finish.gate ? rows / 2 : rows),
                     parts > 0 ? parts : tiles(p.m, kColumns / p.terms), 1},
            .block = {kThreads, 1, 1},
            .cluster = {},
            .shared_bytes = kSharedBytes};
  }

  // What a warp copies. A lane has one chunk of 16 bytes of every fourth row.
  struct Copies {
    static constexpr uint32_t kEach = kRows / 4;
    const uint8_t* rows[kEach];
    uint32_t place[kEach];
    int64_t chunk, end;  // the lane's byte in a span; bytes of a row
    bool aligned = true;

    HT_DEVICE Copies(const Params& p, const GpuTask& task, uint32_t tile_row) {
      const uint32_t lane = hw::lane_index();
      chunk = lane % 8 * 16;
      end = (int64_t{p.k} * Policy::kBits + 7) / 8;
      HT_UNROLL
      for (uint32_t i = 0; i < kEach; ++i) {
        const uint32_t r = lane / 8 + i * 4;
        const uint32_t row = task.output(p.finish.gate, tile_row + r);
        // Rows past the last are the last once more; nobody looks at their sums.
        rows[i] =
            row_address(p.weight, task.source_of(p.finish.gate, r), row < p.n ? row : p.n - 1);
        place[i] = swizzled<Policy::kBits, kSpan>(r, lane % 8);
        aligned = aligned && reinterpret_cast<uintptr_t>(rows[i]) % 16 == 0;
      }
    }
    HT_DEVICE void span(const Params& p, const GpuTask& task, uint32_t tile_row, uint32_t index,
                        hw::SharedAddress to) const {
      const int64_t at = int64_t{index} * kSpan + chunk;
      if constexpr (kCode == GpuCode::f32) {
        if (p.dequantise) return expand(p, task, tile_row, index, to);
      }
      if (aligned && at + 16 <= end) {
        HT_UNROLL
        for (uint32_t i = 0; i < kEach; ++i) hw::cp_async<16>(to + place[i], rows[i] + at);
        return;
      }
      HT_UNROLL
      for (uint32_t i = 0; i < kEach; ++i) {
        copy_chunk(to + place[i], at < end ? rows[i] + at : rows[i], end - at);
      }
    }
    // Codes and scales become f32 here.
    HT_DEVICE void expand(const Params& p, const GpuTask& task, uint32_t tile_row, uint32_t index,
                          hw::SharedAddress to) const {
      const uint32_t lane = hw::lane_index(), k = index * kDepth + lane % 8 * 4;
      HT_UNROLL
      for (uint32_t i = 0; i < kEach; ++i) {
        const uint32_t r = lane / 8 + i * 4;
        hw::store_shared(to + place[i], dequantised(p, task.source_of(p.finish.gate, r),
                                                    task.output(p.finish.gate, tile_row + r), k));
      }
    }
  };

  // The column of x of a lane in a tile of eight.
  struct Column {
    const uint8_t* at = nullptr;  // null: no row of x has it
    bool aligned = false;

    HT_DEVICE void find(const Params& p, const GpuTask& task, uint32_t tile) {
      const uint32_t column = tile * 8 + hw::lane_index() / 4;
      if (column >= task.rows * p.terms) return;
      at = p.x + (x_row_of(p, task, column / p.terms) * p.terms + column % p.terms) * p.x_row;
      aligned = reinterpret_cast<uintptr_t>(at) % 16 == 0;
    }
    // The octet from k on; what does not exist is 0.
    HT_DEVICE void load(const Params& p, uint32_t k, uint32_t (&x)[4],
                        hw::Site site = hw::Site::current()) const {
      HT_UNROLL
      for (uint32_t w = 0; w < 4; ++w) x[w] = 0;
      if (at == nullptr) return;
      const uint8_t* from = at + int64_t{k} * 2;
      if (aligned && k + 8 <= p.k) {
        const auto words = hw::load_global(reinterpret_cast<const hw::Words4*>(from), site);
        HT_UNROLL
        for (uint32_t w = 0; w < 4; ++w) x[w] = words[w];
      } else {
        HT_UNROLL
        for (uint32_t e = 0; e < 8; ++e) {
          if (k + e >= p.k) continue;
          const auto* element = reinterpret_cast<const uint16_t*>(from) + e;
          x[e / 2] |= uint32_t{hw::load_global(element, site)} << 16 * (e % 2);
        }
      }
      Policy::arrange(x);
    }
  };

  // The octet of a row of W, as stored.
  HT_DEVICE static void load_octet(hw::SharedAddress stage, uint32_t row, uint32_t octet,
                                   uint32_t (&codes)[Policy::kBits / 4],
                                   hw::Site site = hw::Site::current()) {
    constexpr uint32_t kBytes = Policy::kBits < 16 ? Policy::kBits : 16;
    using Load = hw::Vector<uint32_t, kBytes / 4>;
    HT_UNROLL
    for (uint32_t i = 0; i < Policy::kBits / kBytes; ++i) {
      const uint32_t at = octet * Policy::kBits + i * 16;
      const auto words = hw::load_shared<Load>(
          stage + (swizzled<Policy::kBits, kSpan>(row, at / 16) + at % 16), site);
      HT_UNROLL
      for (uint32_t w = 0; w < kBytes / 4; ++w) codes[i * 4 + w] = words[w];
    }
  }

  struct Sums {
    float total[kTilesM][4] = {}, part[kTilesM][4] = {};
    uint32_t every = 4;  // chunks after which a part joins the total
  };

  HT_DEVICE static void multiply(const Params& p, const Column (&columns)[kTilesM], bool pairs,
                                 uint32_t index, hw::SharedAddress stage, hw::SharedAddress table,
                                 Sums& sums) {
    const uint32_t row = hw::lane_index() / 4, quad = hw::lane_index() % 4;
    HT_UNROLL
    for (uint32_t c = 0; c < kChunks; ++c) {
      const uint32_t octet = c * 4 + quad;
      uint32_t x[kTilesM][4];
      HT_UNROLL
      for (uint32_t j = 0; j < kTilesM; ++j) columns[j].load(p, index * kDepth + octet * 8, x[j]);
      uint32_t w[2][Policy::kTerms][4];  // rows r and r + 8
      HT_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        uint32_t codes[Policy::kBits / 4], pair = Policy::kUnscaled;
        load_octet(stage, row + half * 8, octet, codes);
        if constexpr (Scales::kPairEntries > 0) {
          const uint32_t slot = Policy::kPair == PairOf::sixteen ? c * 2 + quad / 2 : c;
          if (pairs) {
            pair = hw::load_shared<uint32_t>(
                table + Scales::template place<Scales::kPairEntries>(slot, row + half * 8));
          }
        }
        Policy::expand(codes, pair, w[half]);
      }
      HT_UNROLL
      for (uint32_t s = 0; s < 4; s += 2) {
        HT_UNROLL
        for (uint32_t t = 0; t < Policy::kTerms; ++t) {
          const uint32_t a[4] = {w[0][t][s], w[1][t][s], w[0][t][s + 1], w[1][t][s + 1]};
          HT_UNROLL
          for (uint32_t j = 0; j < kTilesM; ++j) {
            const uint32_t b[2] = {x[j][s], x[j][s + 1]};
            hw::mma_m16n8k16<Policy::kType>(sums.part[j], a, b, sums.part[j]);
          }
        }
      }
      if (c + 1 == kChunks || (c + 1) % sums.every == 0) join(p, table, c, sums);
    }
  }

  // The sums of products since the last time, times their scales.
  HT_DEVICE static void join(const Params& p, hw::SharedAddress table, uint32_t chunk, Sums& sums,
                             hw::Site site = hw::Site::current()) {
    float w[2] = {p.factor, p.factor};
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
        sums.total[j][e] = hw::fma(sums.part[j][e], w[e / 2] * x[e % 2], sums.total[j][e]);
        sums.part[j][e] = 0;
      }
    }
  }

  // At the end the sums take the place of the stages: [warp][column][row], rows of other halves of
  // gates after those of the gates. Warps of neighbouring tiles continue each other's banks.
  static constexpr uint32_t kSumRow = kRows + 4;
  HT_DEVICE static uint32_t sum_place(bool gate, uint32_t warp, uint32_t column, uint32_t row) {
    return (warp * (kColumns * kSumRow + (gate ? 8 : 16)) + column * kSumRow + row) * 4;
  }
  static_assert(kWarps * (kColumns * kSumRow + 16) * 4 <= kWarps * kStages * kStageBytes);

  HT_DEVICE static float whole_sum(const Params& p, const GpuTask& task, uint32_t warps_k,
                                   uint32_t tile, uint32_t m, uint32_t row) {
    float sum = 0;
    for (uint32_t t = 0; t < p.terms; ++t) {
      float term = 0;
      for (uint32_t k = 0; k < warps_k; ++k) {
        const uint32_t warp = k * (kWarps / warps_k) + tile;
        term += hw::load_shared<float>(task.base +
                                       sum_place(p.finish.gate, warp, m * p.terms + t, row));
      }
      sum += term;
    }
    return sum;
  }

  HT_DEVICE static void finish(const Params& p, const GpuTask& task, uint32_t warps_k) {
    const bool gate = p.finish.gate;
    const uint32_t of_tile = gate ? kRows / 2 : kRows, outputs = kWarps / warps_k * of_tile;
    // A warp has outputs of one row of x: those of two would share banks.
    const uint32_t width = outputs < 32 ? 32 : outputs;
    for (uint32_t i = hw::thread_index().x; i < width * task.rows; i += kThreads) {
      const uint32_t m = i / width, o = i % width, n = task.n0 + o;
      if (o >= outputs || n >= p.n) continue;
      const uint32_t tile = o / of_tile, row = o % of_tile;
      const float sum = whole_sum(p, task, warps_k, tile, m, row);
      const float up = gate ? whole_sum(p, task, warps_k, tile, m, row + 8) : 0;
      finish_output(p.finish, p.weight, task.source[0], task.source[1], task.expert, task.row0 + m,
                    static_cast<uint32_t>(x_row_of(p, task, m)), n, sum, up);
    }
  }

  // Gathers what a warp's span needs beside the codes.
  HT_DEVICE static void load_scales(const Params& p, const GpuTask& task, uint32_t tile_row,
                                    uint32_t index, Scales& scales) {
    const uint32_t r = hw::lane_index() / 2, row = task.output(p.finish.gate, tile_row + r);
    scales.load(p, task, task.source_of(p.finish.gate, r), row < p.n ? row : p.n - 1,
                index * kDepth);
  }

  HT_DEVICE static void run(const Params& p) {
    hw::take_turns();
    const uint32_t warps_k = warps_along_k(p.k), tiles = kWarps / warps_k;
    const GpuTask task = task_of(p, tiles * kRows, kColumns);
    if (task.rows == 0) return;
    const uint32_t warp = hw::warp_index(), tile_row = warp % tiles * kRows, first = warp / tiles;
    const uint32_t spans = (p.k + kDepth - 1) / kDepth;
    const bool exists = task.output(p.finish.gate, tile_row) < p.n && first < spans;
    const uint32_t count = exists ? (spans - first + warps_k - 1) / warps_k : 0;
    const hw::SharedAddress ring = task.base + warp * kWarpBytes;
    const Copies copies(p, task, tile_row);
    const auto index_of = [&](uint32_t i) { return first + i * warps_k; };
    // One group of copies for every span, empty ones past the end: then "all but the newest" always
    // means that the span to be read has come.
    const auto fill = [&](uint32_t i) {
      if (i < count) copies.span(p, task, tile_row, index_of(i), ring + i % kStages * kStageBytes);
      hw::cp_async_commit();
    };
    HT_UNROLL
    for (uint32_t s = 0; s + 1 < kStages; ++s) fill(s);
    Column columns[kTilesM];
    HT_UNROLL
    for (uint32_t j = 0; j < kTilesM; ++j) columns[j].find(p, task, j);
    const GpuSource& source = task.source[0];
    const auto table = [&](uint32_t i) { return ring + (kTables + i % 2 * Scales::kTableBytes); };
    Scales scales;
    Sums sums;
    if (p.period > 0) sums.every = p.period % 4 == 0 ? 4 : p.period % 2 == 0 ? 2 : 1;
    if (count > 0) {
      load_scales(p, task, tile_row, index_of(0), scales);
      scales.store(p, source, table(0));
    }
    const bool pairs = kCode == GpuCode::int4 ? source.zeros != nullptr : p.pairs;
    HT_ROLLED
    for (uint32_t i = 0; i < count; ++i) {
      hw::cp_async_wait<kStages - 2>();  // this lane's copies of the span, ...
      hw::warp_sync();                   // ... all lanes', and none reads the span before any more
      fill(i + kStages - 1);
      const bool more = i + 1 < count;
      if (more) load_scales(p, task, tile_row, index_of(i + 1), scales);
      multiply(p, columns, pairs, index_of(i), ring + i % kStages * kStageBytes, table(i), sums);
      if (more) scales.store(p, source, table(i + 1));
    }
    hw::cp_async_wait<0>();
    hw::barrier_sync();
    // Rows of other halves come eight further, as the tile has them.
    HT_UNROLL
    for (uint32_t j = 0; j < kTilesM; ++j) {
      HT_UNROLL
      for (uint32_t e = 0; e < 4; ++e) {
        const uint32_t column = j * 8 + hw::lane_index() % 4 * 2 + e % 2;
        const uint32_t at =
            sum_place(p.finish.gate, warp, column, hw::lane_index() / 4 + e / 2 * 8);
        hw::store_shared(task.base + at, sums.total[j][e]);
      }
    }
    hw::barrier_sync();
    finish(p, task, warps_k);
  }
};

}  // namespace halftone::product
