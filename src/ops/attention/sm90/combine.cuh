// Split-KV combine of attention on sm_90a: merges the unnormalised O and the row statistics of all
// splits into O and LSE. A warp has a row and adds the splits in order, so the bits do not depend
// on which CTA ended first.
#pragma once
#include "base/launch.h"
#include "hw/thread.h"
#include "ops/attention/sm90/epilogue.cuh"
#include "ops/attention/sm90/general/general.cuh"

namespace halftone::attention_sm90 {

template <hw::Type kType>
struct Combine {
  using Params = GeneralParams;
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1, kRows = kThreads / 32;

  HT_HOST_DEVICE static uint32_t rows(const Params& p) {
    return p.batch * p.heads * static_cast<uint32_t>(p.range.queries);
  }
  static LaunchShape shape(const Params& p, uint32_t) {
    return {.grid = {(rows(p) + kRows - 1) / kRows, 1, 1}, .block = {kThreads, 1, 1}};
  }

  HT_DEVICE static void run(const Params& p) {
    const uint32_t row = hw::block_index().x * kRows + hw::warp_index(), lane = hw::lane_index();
    if (row >= rows(p)) return;
    const uint32_t queries = static_cast<uint32_t>(p.range.queries);
    const uint32_t query = row % queries, head = row / queries % p.heads;
    pipe::AttentionTile tile;
    tile.sequence = row / queries / p.heads;
    const General::Work work(p, tile);
    if (static_cast<int32_t>(query) >= work.range.queries) return;

    const float sink = p.sinks == nullptr
                           ? -kInfinity
                           : hw::mul(hw::load_global(p.sinks + head * p.sink_stride), kLog2e);
    float row_max = sink;
    for (uint32_t i = 0; i < p.splits; ++i)
      row_max = hw::max(row_max, stats_of(p, i, row).max_log2);
    // With all keys masked and no sink there is nothing to be relative to.
    const float reference = row_max == -kInfinity ? 0 : row_max;
    float total = hw::ex2_approx_ftz(hw::add(sink, -reference));
    for (uint32_t i = 0; i < p.splits; ++i) {
      const SplitStats stats = stats_of(p, i, row);
      total = hw::fma(stats.sum, hw::ex2_approx_ftz(hw::add(stats.max_log2, -reference)), total);
    }
    const float inverse = total == 0 ? 0 : 1 / total;
    if (p.lse != nullptr && lane == 0) {
      hw::store_global(
          p.lse + tile.sequence * p.lse_batch + head * p.lse_head + query * p.lse_row,
          total == 0 ? -kInfinity : hw::mul(hw::add(reference, hw::lg2_approx(total)), kLn2));
    }
    uint16_t* out = p.out + tile.sequence * p.out_batch +
                    (work.first_query + static_cast<int32_t>(query)) * p.out_row +
                    head * p.out_head;
    // Four columns a lane.
    for (uint32_t column = 4 * lane; column < p.value_dim; column += 128) {
      float o[4] = {};
      for (uint32_t i = 0; i < p.splits; ++i) {
        const SplitStats stats = stats_of(p, i, row);
        if (stats.sum == 0) continue;
        const float rescale = hw::ex2_approx_ftz(hw::add(stats.max_log2, -reference));
        const auto x = hw::load_global(reinterpret_cast<const hw::Vector<float, 4>*>(
            p.partial_out + index(p, i, row) * p.partial_stride + column));
        HT_UNROLL
        for (uint32_t e = 0; e < 4; ++e) o[e] = hw::fma(x[e], rescale, o[e]);
      }
      HT_UNROLL
      for (uint32_t e = 0; e < 4; ++e) o[e] = hw::mul(o[e], inverse);
      const uint32_t pairs[2] = {round_pair<kType>(o[0], o[1]), round_pair<kType>(o[2], o[3])};
      if (p.out_by_elements) {
        HT_UNROLL
        for (uint32_t e = 0; e < 4; ++e) {
          if (column + e >= p.value_dim) break;
          hw::store_global(out + column + e, static_cast<uint16_t>(pairs[e / 2] >> 16 * (e % 2)));
        }
      } else {
        hw::store_global(reinterpret_cast<hw::Vector<uint32_t, 2>*>(out + column),
                         hw::Vector<uint32_t, 2>{{pairs[0], pairs[1]}});
      }
    }
  }

 private:
  HT_DEVICE static int64_t index(const Params& p, uint32_t split, uint32_t row) {
    return int64_t{split} * rows(p) + row;
  }
  HT_DEVICE static SplitStats stats_of(const Params& p, uint32_t split, uint32_t row) {
    return hw::load_global(p.partial_stats + index(p, split, row));
  }
};

}  // namespace halftone::attention_sm90
