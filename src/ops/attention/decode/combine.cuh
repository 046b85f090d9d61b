// Attention of one query token: the sums of a block's warps, and of a sequence's blocks, become
// rows of the result; each in a fixed order.
#pragma once
#include "hw/atomic.h"
#include "hw/barrier.h"
#include "ops/attention/decode/params.cuh"

namespace halftone::attention_decode {

// A warp has O as mma.sync leaves it: of MMA m lane 4 g + t has rows 2t and 2t + 1 of columns m and
// m + kDim / 16 of those that lane g has of V, `kPieceCodes` at a time. Thread 32 m + l goes on
// with MMA m of lane l.
template <uint32_t kDim, uint32_t kWarps, uint32_t kPieceCodes>
struct Join {
  static constexpr uint32_t kSteps = kDim / 16;
  static_assert(kSteps <= kWarps, "a warp has one MMA");
  static constexpr uint32_t kSums = 0;                              // {top, sum} a row and warp
  static constexpr uint32_t kRowSums = kSums + kWarps * kRows * 8;  // of the rows
  static constexpr uint32_t kLast = kRowSums + kRows * 8;           // whether the block is
  static constexpr uint32_t kParts = kLast + 16;
  static constexpr uint32_t kPartBytes = kSteps * 32 * 16;
  // Then rows of O in f32, or what runs are relative to and their sums.
  static constexpr uint32_t kBytes = kParts + kWarps * kPartBytes;
  static constexpr uint32_t kMostRuns = kWarps * kPartBytes / (kRows * 8);
  static constexpr uint32_t kAhead = 8;  // runs whose O is under way

  struct Part {
    float top[2] = {-kInfinity, -kInfinity}, sum[2] = {};  // of rows 2t and 2t + 1
    float o[4] = {};
  };

  // `o`, `top` and `sum` are the warp's, the latter two of row lane / 4.
  HT_DEVICE static void run(const Params& p, const Work& work, hw::SharedAddress base,
                            const float (&o)[kSteps][4], float top, float sum) {
    const uint32_t warp = hw::warp_index(), lane = hw::lane_index();
    HT_UNROLL
    for (uint32_t m = 0; m < kSteps; ++m) {
      hw::store_shared(part_at(base, warp, m, lane),
                       hw::Vector<float, 4>{{o[m][0], o[m][1], o[m][2], o[m][3]}});
    }
    if (lane % 4 == 0) {
      hw::store_shared(base + (kSums + (warp * kRows + lane / 4) * 8),
                       hw::Vector<float, 2>{{top, sum}});
    }
    hw::barrier_sync();
    Part part = join_warps(base);
    if (work.splits > 1) {
      if (!last_to_store(p, work, base, part)) return;
      part = join_runs(p, work, base);
    }
    hw::barrier_sync();  // nobody reads what was joined any more
    store_rows(base, part);
    hw::barrier_sync();
    if (warp < work.rows) finish(p, work, base);
  }

  HT_DEVICE static hw::SharedAddress part_at(hw::SharedAddress base, uint32_t warp, uint32_t m,
                                             uint32_t lane) {
    return base + (kParts + warp * kPartBytes + (m * 32 + lane) * 16);
  }
  // {top, sum} of the thread's two rows in a list of 8 rows.
  HT_DEVICE static hw::Vector<float, 4> sums_at(hw::SharedAddress list) {
    return hw::load_shared<hw::Vector<float, 4>>(list + hw::lane_index() % 4 * 16);
  }
  // 2^(top - all), 0 of what has no keys.
  HT_DEVICE static float weight_of(float top, float all) {
    return hw::ex2_approx_ftz(hw::add(top, all == -kInfinity ? 0 : -all));
  }
  HT_DEVICE static void add(Part& to, const hw::Vector<float, 4>& sums,
                            const hw::Vector<float, 4>& o) {
    HT_UNROLL
    for (uint32_t r = 0; r < 2; ++r) {
      const float weight = weight_of(sums.at[2 * r], to.top[r]);
      to.sum[r] = hw::fma(sums.at[2 * r + 1], weight, to.sum[r]);
      to.o[r] = hw::fma(o.at[r], weight, to.o[r]);
      to.o[r + 2] = hw::fma(o.at[r + 2], weight, to.o[r + 2]);
    }
  }
  HT_DEVICE static void raise(Part& to, const hw::Vector<float, 4>& sums) {
    to.top[0] = hw::max(to.top[0], sums.at[0]), to.top[1] = hw::max(to.top[1], sums.at[2]);
  }

  HT_DEVICE static Part join_warps(hw::SharedAddress base) {
    const uint32_t m = hw::warp_index(), lane = hw::lane_index();
    Part part;
    HT_UNROLL
    for (uint32_t w = 0; w < kWarps; ++w) raise(part, sums_at(base + (kSums + w * kRows * 8)));
    HT_UNROLL
    for (uint32_t w = 0; w < kWarps; ++w) {
      hw::Vector<float, 4> o{};
      if (m < kSteps) o = hw::load_shared<hw::Vector<float, 4>>(part_at(base, w, m, lane));
      add(part, sums_at(base + (kSums + w * kRows * 8)), o);
    }
    return part;
  }

  // Leaves the part of the block's run to whoever comes last.
  HT_DEVICE static bool last_to_store(const Params& p, const Work& work, hw::SharedAddress base,
                                      const Part& part) {
    const uint32_t m = hw::warp_index(), lane = hw::lane_index();
    const uint64_t at = work.tile(p) * p.splits + work.split;
    if (m < kSteps) {
      hw::store_global(
          reinterpret_cast<hw::Vector<float, 4>*>(p.partial_out) + (at * kSteps + m) * 32 + lane,
          hw::Vector<float, 4>{{part.o[0], part.o[1], part.o[2], part.o[3]}});
    }
    if (m == 0 && lane < 4) {
      hw::store_global(
          reinterpret_cast<hw::Vector<float, 4>*>(p.partial_sums) + at * kRows / 2 + lane,
          hw::Vector<float, 4>{{part.top[0], part.sum[0], part.top[1], part.sum[1]}});
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

  HT_DEVICE static Part join_runs(const Params& p, const Work& work, hw::SharedAddress base) {
    using Pair = hw::Vector<float, 2>;
    using Four = hw::Vector<float, 4>;
    const uint32_t m = hw::warp_index(), lane = hw::lane_index();
    const uint64_t first = work.tile(p) * p.splits;
    const Pair* sums = reinterpret_cast<const Pair*>(p.partial_sums) + first * kRows;
    HT_ROLLED
    for (uint32_t i = hw::thread_index().x; i < work.splits * kRows; i += 32 * kWarps) {
      hw::store_shared(base + (kParts + i * 8), hw::load_global<Pair, hw::Cache::global>(sums + i));
    }
    hw::barrier_sync();
    Part part;
    HT_ROLLED
    for (uint32_t i = 0; i < work.splits; ++i)
      raise(part, sums_at(base + (kParts + i * kRows * 8)));
    const Four* from =
        reinterpret_cast<const Four*>(p.partial_out) + (first * kSteps + m) * 32 + lane;
    HT_ROLLED
    for (uint32_t i = 0; i < work.splits; i += kAhead) {
      Four o[kAhead] = {};
      HT_UNROLL
      for (uint32_t j = 0; j < kAhead; ++j) {
        if (m >= kSteps || i + j >= work.splits) continue;
        o[j] = hw::load_global<Four, hw::Cache::global>(from + (i + j) * (kSteps * 32));
      }
      HT_UNROLL
      for (uint32_t j = 0; j < kAhead; ++j) {
        if (i + j >= work.splits) continue;
        add(part, sums_at(base + (kParts + (i + j) * kRows * 8)), o[j]);
      }
    }
    return part;
  }

  // A row of O in shared memory: eight lanes, 8 or 16 columns apart, and four pairs of rows find
  // all banks.
  static constexpr uint32_t kRowWords = kDim + 32 + (kPieceCodes == 8 ? 1 : 2);
  HT_DEVICE static hw::SharedAddress row_at(hw::SharedAddress base, uint32_t row, uint32_t column) {
    return base + (kParts + (row * kRowWords + column + column / 32) * 4);
  }
  HT_DEVICE static void store_rows(hw::SharedAddress base, const Part& part) {
    const uint32_t m = hw::warp_index(), lane = hw::lane_index(), row = lane % 4 * 2;
    if (m == 0 && lane < 4) {
      hw::store_shared(base + (kRowSums + row * 8),
                       hw::Vector<float, 4>{{part.top[0], part.sum[0], part.top[1], part.sum[1]}});
    }
    if (m >= kSteps) return;
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t j = m + i / 2 * kSteps;  // of the lane's columns
      const uint32_t column = (j / kPieceCodes * 8 + lane / 4) * kPieceCodes + j % kPieceCodes;
      hw::store_shared(row_at(base, row + i % 2, column), part.o[i]);
    }
  }
  // A warp has a row.
  HT_DEVICE static void finish(const Params& p, const Work& work, hw::SharedAddress base) {
    const uint32_t row = hw::warp_index(), lane = hw::lane_index(), head = work.head(p, row);
    const auto sums = hw::load_shared<hw::Vector<float, 2>>(base + (kRowSums + row * 8));
    const attention_sm80::Finished end =
        attention_sm80::finish_row(p, work.batch, head, 0, sums.at[0], sums.at[1], lane == 0);
    const int64_t at = (p.query_ends != nullptr ? 0 : work.batch * p.out.batch) +
                       work.query_begin * p.out.row + head * p.out.head;
    HT_ROLLED
    for (uint32_t column = lane; column < kDim; column += 32) {
      const float x = hw::load_shared<float>(row_at(base, row, column));
      attention_sm80::store_pair(p.out, at, column, column + 1,
                                 end.empty ? 0 : hw::mul(x, end.factor), 0);
    }
  }
};

}  // namespace halftone::attention_decode
