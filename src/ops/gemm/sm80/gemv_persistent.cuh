// Persistent GEMV for any GPU from sm_80 on: of a matrix with more rows than one wave of CTAs
// takes, a CTA takes every grid-th tile of 16 rows, its eight warps split K and stream the spans of
// all their tiles through one cp.async ring, and x is staged in shared memory once, in the order in
// which lanes read it. For whole, aligned spans, in the loops `wide` and `lanes`
// (sm80/gemv_spans.h).
#pragma once
#include "hw/barrier.h"
#include "ops/gemm/sm80/gemv.cuh"

namespace halftone::gemm {

template <GpuCode kCode, GpuLoop kLoop = GpuLoop::wide>
struct GpuGemvPersistent {
  using Params = GpuGemm;
  using Gemv = GpuGemv<kCode, 1>;
  using Spans = GpuGemvSpans<kCode, 1>;
  using Policy = CodePolicy<kCode>;
  using Copies = typename Spans::template Copies<kLoop>;
  using Sums = GpuSums<1>;
  static constexpr uint32_t kRows = Spans::kRows, kWarps = 8, kThreads = kWarps * 32;
  static constexpr uint32_t kMinBlocks = 3;
  static constexpr uint32_t kSumRow = kRows + 4;

  // Shared memory: the rings of the warps, x, the sums of two tiles.
  HT_HOST_DEVICE static uint32_t ring_bytes(const GpuGemm& p) {
    return Spans::kStages * Spans::stage_bytes(p.spans);
  }
  // A lane has the sums of two columns.
  HT_HOST_DEVICE static uint32_t sum_columns(const GpuGemm& p) {
    return (p.m * p.terms + 1) / 2 * 2;
  }
  HT_HOST_DEVICE static uint32_t sum_bytes(const GpuGemm& p) {
    return kWarps * (sum_columns(p) * kSumRow + 16) * 4;
  }
  HT_HOST_DEVICE static uint32_t x_bytes(const GpuGemm& p) { return p.m * p.terms * p.k * 2; }
  HT_HOST_DEVICE static uint32_t shared_bytes(const GpuGemm& p) {
    return kWarps * ring_bytes(p) + x_bytes(p) + 2 * sum_bytes(p);
  }

  HT_DEVICE static uint32_t tile_outputs(const GpuGemm& p) { return p.epilogue.gate ? 8 : 16; }

  // Octets of x of all columns: [octet of a lane][column][lane of a quad].
  HT_DEVICE static void stage_x(const GpuGemm& p, hw::SharedAddress to,
                                hw::Site site = hw::Site::current()) {
    const uint32_t columns = p.m * p.terms, all = p.k / 8 * columns;
    constexpr uint32_t kOctets = Spans::kOctets, kOfHalf = Spans::kHalf / 8;
    for (uint32_t i = hw::thread_index().x; i < all; i += kThreads) {
      const uint32_t quad = i % 4, column = i / 4 % columns, octet = i / 4 / columns;
      const uint32_t from = octet / kOctets * kOfHalf + quad * kOctets + octet % kOctets;
      const auto* row = reinterpret_cast<const hw::Words4*>(p.x + int64_t{column} * p.x_row);
      const auto words = hw::load_global(row + from, site);
      uint32_t x[4] = {words[0], words[1], words[2], words[3]};
      Policy::arrange(x);
      hw::store_shared(to + i * 16, hw::Words4{{x[0], x[1], x[2], x[3]}}, site);
    }
  }

  HT_DEVICE static void run(const GpuGemm& p) {
    if (!p.static_weights) hw::pdl_wait();
    GpuTask task = task_of(p, kRows, 8);
    const uint32_t warp = hw::warp_index(), lane_index = hw::lane_index();
    const uint32_t outputs = tile_outputs(p), grid = hw::grid_size().x;
    const uint32_t tiles = (p.n + outputs - 1) / outputs, first_tile = hw::block_index().x;
    const uint32_t stage = Spans::stage_bytes(p.spans), ring_end = ring_bytes(p);
    const hw::SharedAddress ring = task.base + warp * ring_end;
    const hw::SharedAddress x = task.base + kWarps * ring_end, sums_at = x + x_bytes(p);
    const uint32_t spans = p.k / Spans::kDepth;
    const GpuSpanRange range{0, warp, kWarps, (spans - warp + kWarps - 1) / kWarps};

    // The stream of copies.
    GpuTask next_task = task;
    next_task.n0 = first_tile * outputs;
    Copies copies(p, next_task, range);
    uint32_t tile_ahead = first_tile, span_ahead = 0, filled = 0;
    const auto fill = [&] {
      if (tile_ahead < tiles) {
        copies.next(p, ring + filled, warp + span_ahead * kWarps, kWarps);
        if (++span_ahead == range.count) {
          span_ahead = 0, tile_ahead += grid;
          next_task.n0 = tile_ahead * outputs;
          if (tile_ahead < tiles) {
            copies = Copies(p, next_task, range);
          } else {
            hw::launch_dependents();
          }
        }
      }
      hw::cp_async_commit();
      filled = filled + stage < ring_end ? filled + stage : 0;
    };
    HT_UNROLL
    for (uint32_t s = 0; s + 1 < Spans::kStages; ++s) fill();
    hw::pdl_wait();
    stage_x(p, x);
    hw::barrier_sync();

    const uint32_t columns = p.m * p.terms, row = lane_index / 4, quad = lane_index % 4;
    const uint32_t step = kWarps * 2 * Spans::kOctets;  // octets to the warp's next span
    typename Spans::SharedLane lane;
    lane.unit = columns * 64;
    lane.place = Spans::template chunk_offset<kLoop>(row, quad);
    lane.scale_row = Spans::kScales + row * p.spans.scale_bytes;
    // A column that does not exist reads one in the same banks; nobody reads its sums.
    const uint32_t column = row < columns ? row : columns > 1 ? row % 2 : 0;
    const hw::SharedAddress x_first =
        x + (warp * 2 * Spans::kOctets * lane.unit + (column * 4 + quad) * 16);
    uint32_t read = 0, iteration = 0;
    for (uint32_t tile = first_tile; tile < tiles; tile += grid, ++iteration) {
      task.n0 = tile * outputs;
      lane.x = x_first;
      Sums sums;
      HT_ROLLED
      for (uint32_t i = 0; i < range.count; ++i) {
        hw::cp_async_wait<Spans::kStages - 2>();
        hw::warp_sync();
        fill();
        Spans::template mma<kLoop>(p, lane, ring + read, sums);
        lane.x = lane.x + step * lane.unit;
        read = read + stage < ring_end ? read + stage : 0;
      }
      const hw::SharedAddress at = sums_at + iteration % 2 * sum_bytes(p);
      if (quad * 2 < columns) {
        HT_UNROLL
        for (uint32_t e = 0; e < 4; ++e) {
          const uint32_t place = warp * (sum_columns(p) * kSumRow + (p.epilogue.gate ? 8 : 16)) +
                                 (quad * 2 + e % 2) * kSumRow + row + e / 2 * 8;
          hw::store_shared(at + place * 4, sums.promoted[0][e]);
        }
      }
      // One barrier a tile: whoever reaches the next one has finished with the sums of the tile
      // before.
      hw::barrier_sync();
      Gemv::epilogue(p, task, at, sum_columns(p), Gemv::kLog2Warps, iteration % kWarps);
    }
    hw::cp_async_wait<0>();
  }
};

}  // namespace halftone::gemm
