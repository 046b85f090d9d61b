// Combine of decode attention: merges O and the row statistics of a CTA's warps in shared memory,
// then those of a sequence's split-KV CTAs, and writes O and LSE. The last CTA of a tile to arrive
// combines the splits; every sum is in a fixed order, so the bits do not depend on which CTA is
// last.
#pragma once
#include "hw/atomic.h"
#include "hw/barrier.h"
#include "ops/attention/decode/params.cuh"

namespace halftone::attention_decode {

// A warp has O^T in mma.sync accumulators: of MMA m lane 4 g + t has rows 2t and 2t + 1 of columns
// m and m + kDim / 16 of those that lane g has of V, `kPieceValues` at a time. Thread 32 m + l goes
// on with MMA m of lane l.
template <uint32_t kDim, uint32_t kWarps, uint32_t kPieceValues>
struct Combine {
  static constexpr uint32_t kSteps = kDim / 16;
  static_assert(kSteps <= kWarps, "a warp has one MMA");
  static constexpr uint32_t kStats = 0;  // {row_max, row_sum} a row and warp
  static constexpr uint32_t kRowStats = kStats + kWarps * kRows * 8;  // of the rows
  static constexpr uint32_t kLast = kRowStats + kRows * 8;            // whether the CTA is the last
  static constexpr uint32_t kPartials = kLast + 16;
  static constexpr uint32_t kPartialBytes = kSteps * 32 * 16;
  // Reused for rows of O in FP32, or for the statistics of the splits.
  static constexpr uint32_t kBytes = kPartials + kWarps * kPartialBytes;
  static constexpr uint32_t kMaxSplits = kWarps * kPartialBytes / (kRows * 8);
  static constexpr uint32_t kInFlight = 8;  // splits whose O is in flight

  struct Partial {
    float row_max[2] = {-kInfinity, -kInfinity}, row_sum[2] = {};  // of rows 2t and 2t + 1
    float o[4] = {};
  };

  // `o`, `row_max` and `row_sum` are the warp's, the latter two of row lane / 4.
  HT_DEVICE static void run(const Params& p, const Work& work, hw::SharedAddress base,
                            const float (&o)[kSteps][4], float row_max, float row_sum) {
    const uint32_t warp = hw::warp_index(), lane = hw::lane_index();
    HT_UNROLL
    for (uint32_t m = 0; m < kSteps; ++m) {
      hw::store_shared(partial_at(base, warp, m, lane),
                       hw::Vector<float, 4>{{o[m][0], o[m][1], o[m][2], o[m][3]}});
    }
    if (lane % 4 == 0) {
      hw::store_shared(base + (kStats + (warp * kRows + lane / 4) * 8),
                       hw::Vector<float, 2>{{row_max, row_sum}});
    }
    hw::barrier_sync();
    Partial partial = combine_warps(base);
    if (work.splits > 1) {
      if (!store_partial(p, work, base, partial)) return;
      partial = combine_splits(p, work, base);
    }
    hw::barrier_sync();  // the partials have been read
    store_rows(base, partial);
    hw::barrier_sync();
    if (warp < work.rows) write_row(p, work, base);
  }

  HT_DEVICE static hw::SharedAddress partial_at(hw::SharedAddress base, uint32_t warp, uint32_t m,
                                                uint32_t lane) {
    return base + (kPartials + warp * kPartialBytes + (m * 32 + lane) * 16);
  }
  // {row_max, row_sum} of the thread's two rows in a list of 8 rows.
  HT_DEVICE static hw::Vector<float, 4> stats_at(hw::SharedAddress list) {
    return hw::load_shared<hw::Vector<float, 4>>(list + hw::lane_index() % 4 * 16);
  }
  // 2^(row_max - total_max), 0 where there are no keys.
  HT_DEVICE static float rescale_of(float row_max, float total_max) {
    return hw::ex2_approx_ftz(hw::add(row_max, total_max == -kInfinity ? 0 : -total_max));
  }
  HT_DEVICE static void accumulate(Partial& to, const hw::Vector<float, 4>& stats,
                                   const hw::Vector<float, 4>& o) {
    HT_UNROLL
    for (uint32_t r = 0; r < 2; ++r) {
      const float rescale = rescale_of(stats.at[2 * r], to.row_max[r]);
      to.row_sum[r] = hw::fma(stats.at[2 * r + 1], rescale, to.row_sum[r]);
      to.o[r] = hw::fma(o.at[r], rescale, to.o[r]);
      to.o[r + 2] = hw::fma(o.at[r + 2], rescale, to.o[r + 2]);
    }
  }
  HT_DEVICE static void raise_max(Partial& to, const hw::Vector<float, 4>& stats) {
    to.row_max[0] = hw::max(to.row_max[0], stats.at[0]),
    to.row_max[1] = hw::max(to.row_max[1], stats.at[2]);
  }

  HT_DEVICE static Partial combine_warps(hw::SharedAddress base) {
    const uint32_t m = hw::warp_index(), lane = hw::lane_index();
    Partial partial;
    HT_UNROLL
    for (uint32_t w = 0; w < kWarps; ++w)
      raise_max(partial, stats_at(base + (kStats + w * kRows * 8)));
    HT_UNROLL
    for (uint32_t w = 0; w < kWarps; ++w) {
      hw::Vector<float, 4> o{};
      if (m < kSteps) o = hw::load_shared<hw::Vector<float, 4>>(partial_at(base, w, m, lane));
      accumulate(partial, stats_at(base + (kStats + w * kRows * 8)), o);
    }
    return partial;
  }

  // Stores the partial of the CTA's split; whether this CTA was the last of its tile.
  HT_DEVICE static bool store_partial(const Params& p, const Work& work, hw::SharedAddress base,
                                      const Partial& partial) {
    const uint32_t m = hw::warp_index(), lane = hw::lane_index();
    const uint64_t at = work.tile(p) * p.splits + work.split;
    if (m < kSteps) {
      hw::store_global(
          reinterpret_cast<hw::Vector<float, 4>*>(p.partial_out) + (at * kSteps + m) * 32 + lane,
          hw::Vector<float, 4>{{partial.o[0], partial.o[1], partial.o[2], partial.o[3]}});
    }
    if (m == 0 && lane < 4) {
      hw::store_global(
          reinterpret_cast<hw::Vector<float, 4>*>(p.partial_stats) + at * kRows / 2 + lane,
          hw::Vector<float, 4>{
              {partial.row_max[0], partial.row_sum[0], partial.row_max[1], partial.row_sum[1]}});
    }
    hw::barrier_sync();
    if (hw::thread_index().x == 0) {
      uint32_t* const arrived = p.arrived + work.tile(p);
      const bool last =
          hw::atomic_global<hw::Atomic::add, hw::Order::acq_rel>(arrived, uint32_t{1}) + 1 ==
          work.splits;
      if (last) hw::store_global(arrived, uint32_t{0});
      hw::store_shared(base + kLast, uint32_t{last});
    }
    hw::barrier_sync();
    return hw::load_shared<uint32_t>(base + kLast) != 0;
  }

  HT_DEVICE static Partial combine_splits(const Params& p, const Work& work,
                                          hw::SharedAddress base) {
    using Pair = hw::Vector<float, 2>;
    using Four = hw::Vector<float, 4>;
    const uint32_t m = hw::warp_index(), lane = hw::lane_index();
    const uint64_t first = work.tile(p) * p.splits;
    const Pair* stats = reinterpret_cast<const Pair*>(p.partial_stats) + first * kRows;
    HT_ROLLED
    for (uint32_t i = hw::thread_index().x; i < work.splits * kRows; i += 32 * kWarps) {
      hw::store_shared(base + (kPartials + i * 8),
                       hw::load_global<Pair, hw::Cache::global>(stats + i));
    }
    hw::barrier_sync();
    Partial partial;
    HT_ROLLED
    for (uint32_t i = 0; i < work.splits; ++i)
      raise_max(partial, stats_at(base + (kPartials + i * kRows * 8)));
    const Four* from =
        reinterpret_cast<const Four*>(p.partial_out) + (first * kSteps + m) * 32 + lane;
    HT_ROLLED
    for (uint32_t i = 0; i < work.splits; i += kInFlight) {
      Four o[kInFlight] = {};
      HT_UNROLL
      for (uint32_t j = 0; j < kInFlight; ++j) {
        if (m >= kSteps || i + j >= work.splits) continue;
        o[j] = hw::load_global<Four, hw::Cache::global>(from + (i + j) * (kSteps * 32));
      }
      HT_UNROLL
      for (uint32_t j = 0; j < kInFlight; ++j) {
        if (i + j >= work.splits) continue;
        accumulate(partial, stats_at(base + (kPartials + (i + j) * kRows * 8)), o[j]);
      }
    }
    return partial;
  }

  // A row of O in shared memory: eight lanes, 8 or 16 columns apart, and four pairs of rows hit all
  // banks.
  static constexpr uint32_t kRowWords = kDim + 32 + (kPieceValues == 8 ? 1 : 2);
  HT_DEVICE static hw::SharedAddress row_at(hw::SharedAddress base, uint32_t row, uint32_t column) {
    return base + (kPartials + (row * kRowWords + column + column / 32) * 4);
  }
  HT_DEVICE static void store_rows(hw::SharedAddress base, const Partial& partial) {
    const uint32_t m = hw::warp_index(), lane = hw::lane_index(), row = lane % 4 * 2;
    if (m == 0 && lane < 4) {
      hw::store_shared(base + (kRowStats + row * 8),
                       hw::Vector<float, 4>{{partial.row_max[0], partial.row_sum[0],
                                             partial.row_max[1], partial.row_sum[1]}});
    }
    if (m >= kSteps) return;
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t j = m + i / 2 * kSteps;  // of the lane's columns
      const uint32_t column = (j / kPieceValues * 8 + lane / 4) * kPieceValues + j % kPieceValues;
      hw::store_shared(row_at(base, row + i % 2, column), partial.o[i]);
    }
  }
  // A warp a row.
  HT_DEVICE static void write_row(const Params& p, const Work& work, hw::SharedAddress base) {
    const uint32_t row = hw::warp_index(), lane = hw::lane_index(), head = work.head(p, row);
    const auto stats = hw::load_shared<hw::Vector<float, 2>>(base + (kRowStats + row * 8));
    const attention_sm80::OutputScale scale =
        attention_sm80::finalize_row(p, work.batch, head, 0, stats.at[0], stats.at[1], lane == 0);
    const int64_t at = (p.cu_queries != nullptr ? 0 : work.batch * p.out.batch) +
                       work.query_begin * p.out.row + head * p.out.head;
    HT_ROLLED
    for (uint32_t column = lane; column < kDim; column += 32) {
      const float x = hw::load_shared<float>(row_at(base, row, column));
      attention_sm80::store_pair(p.out, at, column, column + 1,
                                 scale.empty ? 0 : hw::mul(x, scale.factor), 0);
    }
  }
};

}  // namespace halftone::attention_decode
