// The consumer mainloop of the 4-bit small-M GEMMs on sm_90a: a warp's walk over the stages of a
// tile, one loop for each scale mode.
#pragma once
#include "ops/gemm/sm90/small_m/w4_accumulate.cuh"
#include "ops/gemm/sm90/small_m/w4_ring.cuh"

namespace halftone::gemm {

// kSingleTile: no tile follows, and the last stage is not released: the dense GEMM takes 6 % longer
// if it is (docs/findings/experts-hopper.md).
template <class Ring, class Accumulator, bool kSingleTile>
struct Sm90SmallMW4Mainloop {
  using Stage = typename Accumulator::Stage;
  using Reader = typename Ring::Reader;

  // Steps [begin, end). `scales`: group scales, prefetched for the first step; `prefetch(step)`
  // asks for the next one's or, at the end, for what follows the tile. `place(step)`: the offset in
  // a stage of scales that multiply weights.
  template <class Scales, class Place, class Ask>
  HT_DEVICE static void add(Reader& read, uint32_t begin, uint32_t end, Accumulator& accumulator,
                            Scales& scales, const Place& fused_tile, const Ask& prefetch) {
    if constexpr (!Accumulator::kPromotes) {
      accumulate_stages(read, begin, end, accumulator, fused_tile);
    } else if constexpr (Stage::kGroup32) {
      accumulate_group32s(read, begin, end, accumulator, scales, prefetch);
    } else {
      accumulate_groups(read, begin, end, accumulator, scales, prefetch);
    }
  }

 private:
  template <class Place>
  HT_DEVICE static void accumulate_stages(Reader& read, uint32_t begin, uint32_t end,
                                          Accumulator& accumulator, const Place& fused_tile) {
    HT_ROLLED
    for (uint32_t step = begin; step < end; ++step) {
      const uint32_t i = read.wait();
      const hw::SharedAddress stage = read.stages.stage(i), scales = stage + fused_tile(step);
      const auto before = [&] {
        if (step > begin) read.release();
      };
      if constexpr (Stage::kScaleMode == ScaleMode::ue8m0) {
        if (!read.stages.all_fit(i)) {
          accumulator.wait_all();
          before();
          accumulator.accumulate_per_lane(stage, scales);
          continue;
        }
      }
      accumulator.accumulate_stage(stage, scales, before);
    }
    accumulator.wait_all();
    if (!kSingleTile) read.release();
  }
  template <class Scales, class Ask>
  HT_DEVICE static void accumulate_groups(Reader& read, uint32_t begin, uint32_t end,
                                          Accumulator& accumulator, Scales& scales,
                                          const Ask& prefetch) {
    uint32_t i = read.wait();
    accumulator.dequantise_first(read.stages.stage(i), 0);
    HT_ROLLED
    for (uint32_t step = begin; step < end; ++step) {
      const hw::SharedAddress stage = read.stages.stage(i);
      scales.store(stage);
      prefetch(step + 1);
      hw::warp_sync();
      HT_UNROLL
      for (uint32_t group = 0; group < Stage::kGroups; ++group) {
        accumulator.accumulate_group(stage, group, [&] {
          if (group + 1 < Stage::kGroups) {
            accumulator.dequantise_first(stage, group + 1);
          } else if (step + 1 < end) {
            i = read.wait();
            accumulator.dequantise_first(read.stages.stage(i), 0);
          }
        });
      }
      if (!kSingleTile || step + 1 < end) read.release();
    }
  }
  template <class Scales, class Ask>
  HT_DEVICE static void accumulate_group32s(Reader& read, uint32_t begin, uint32_t end,
                                            Accumulator& accumulator, Scales& scales,
                                            const Ask& prefetch) {
    HT_ROLLED
    for (uint32_t step = begin; step < end; ++step) {
      const hw::SharedAddress stage = read.stages.stage(read.wait());
      scales.store(stage);
      prefetch(step + 1);
      hw::warp_sync();
      HT_ROLLED
      for (uint32_t chunk = 0; chunk < 2; ++chunk) accumulator.accumulate_group32s(stage, chunk);
      if (!kSingleTile || step + 1 < end) read.release();
    }
  }
};

}  // namespace halftone::gemm
