// The stages of a tile whose codes enter in the order of memory (sm90_order.cuh), one after the
// other, by a warp of those that multiply: a loop for each way in which scales enter.
#pragma once
#include "ops/gemm/sm90/small_m/w4_accumulate.cuh"
#include "ops/gemm/sm90/small_m/w4_ring.cuh"

namespace halftone::gemm {

// kOnly: no tile follows, and the last stage is not given back: a dense product takes 6 % longer
// with it (docs/findings/experts-hopper.md).
template <class Ring, class Sums, bool kOnly>
struct Sm90SmallMW4Mainloop {
  using Stage = typename Sums::Stage;
  using Reader = typename Ring::Reader;

  // Steps [begin, end). `scales`: those of runs, asked for the
  // first step; `ask(step)` asks for the next one's, or, of the end, for what follows the tile.
  // `place(step)`: where in a stage scales that multiply codes begin.
  template <class Scales, class Place, class Ask>
  HT_DEVICE static void add(Reader& read, uint32_t begin, uint32_t end, Sums& sums, Scales& scales,
                            const Place& place, const Ask& ask) {
    if constexpr (!Sums::kJoined) {
      add_stages(read, begin, end, sums, place);
    } else if constexpr (Stage::kShort) {
      add_short_runs(read, begin, end, sums, scales, ask);
    } else {
      add_runs(read, begin, end, sums, scales, ask);
    }
  }

 private:
  template <class Place>
  HT_DEVICE static void add_stages(Reader& read, uint32_t begin, uint32_t end, Sums& sums,
                                   const Place& place) {
    HT_ROLLED
    for (uint32_t step = begin; step < end; ++step) {
      const uint32_t i = read.wait();
      const hw::SharedAddress stage = read.stages.stage(i), scales = stage + place(step);
      const auto before = [&] {
        if (step > begin) read.release();
      };
      if constexpr (Stage::kWay == Sm90Scales::powers) {
        if (!read.stages.all_fit(i)) {
          sums.end_stages();
          before();
          sums.add_apart(stage, scales);
          continue;
        }
      }
      sums.add_stage(stage, scales, before);
    }
    sums.end_stages();
    if (!kOnly) read.release();
  }
  template <class Scales, class Ask>
  HT_DEVICE static void add_runs(Reader& read, uint32_t begin, uint32_t end, Sums& sums,
                                 Scales& scales, const Ask& ask) {
    uint32_t i = read.wait();
    sums.expand_first(read.stages.stage(i), 0);
    HT_ROLLED
    for (uint32_t step = begin; step < end; ++step) {
      const hw::SharedAddress stage = read.stages.stage(i);
      scales.store(stage);
      ask(step + 1);
      hw::warp_sync();
      HT_UNROLL
      for (uint32_t run = 0; run < Stage::kRuns; ++run) {
        sums.add_run(stage, run, [&] {
          if (run + 1 < Stage::kRuns) {
            sums.expand_first(stage, run + 1);
          } else if (step + 1 < end) {
            i = read.wait();
            sums.expand_first(read.stages.stage(i), 0);
          }
        });
      }
      if (!kOnly || step + 1 < end) read.release();
    }
  }
  template <class Scales, class Ask>
  HT_DEVICE static void add_short_runs(Reader& read, uint32_t begin, uint32_t end, Sums& sums,
                                       Scales& scales, const Ask& ask) {
    HT_ROLLED
    for (uint32_t step = begin; step < end; ++step) {
      const hw::SharedAddress stage = read.stages.stage(read.wait());
      scales.store(stage);
      ask(step + 1);
      hw::warp_sync();
      HT_ROLLED
      for (uint32_t chunk = 0; chunk < 2; ++chunk) sums.add_short_runs(stage, chunk);
      if (!kOnly || step + 1 < end) read.release();
    }
  }
};

}  // namespace halftone::gemm
