// The mainloop of the mixed-input GEMM on sm_90a: the accumulator of a consumer warpgroup, 64 rows
// of W by kColumns rows of x, over K. There are four modes. Without scales that multiply the
// accumulator: one wgmma accumulation over all of K. With such scales and weights in registers: a
// promotion interval of 64 elements of K (one stage of x), or of 128 where no scale changes in
// between, after which the accumulator is scaled and added to an FP32 sum. In tiles of 256 columns,
// where registers do not suffice for both accumulators, and wherever a scale covers 32 elements:
// one accumulator in units of the last scale, rescaled by the quotient of two scales where the
// scale changes. FP8 by FP8: promotion intervals of 128 elements.
//
// Tiles of 64 columns of E4M3, E5M2 and INT4 have two K groups of two warpgroups, one for each
// parity of the stages: four warps a scheduler hide the latency of the integer instructions that
// dequantise, where two leave the scheduler idle for half of the time.
//
// The tensor cores must not wait for the CUDA cores. While the wgmma of an interval run, the
// weights of the next step are dequantised and the interval's scales are loaded; while the
// accumulator is promoted, the tensor cores belong to the other warpgroup. So a warp must be quick
// between the end of an interval and the start of the next: the scales are in registers by then,
// and the stage is released first.
#pragma once
#include <type_traits>

#include "hw/fence.h"
#include "hw/warp.h"
#include "ops/gemm/sm90/mixed/epilogue.cuh"
#include "ops/gemm/sm90/mixed/operand.cuh"

namespace halftone::gemm {

template <GpuCode kCode, ScaleMode kScales, uint32_t kColumns, tile::Major kMajorW>
struct Sm90Mainloop {
  using Stages = Sm90Stages<kCode, kScales, kColumns>;
  using Operand = Sm90Operand<kCode, kScales, kColumns>;
  using Fragment = typename Operand::Fragment;
  using Accumulator = float[kColumns / 2];
  static constexpr uint32_t kXSteps = Stages::kXSteps, kUnrolledSteps = kXSteps < 2 ? 1 : 2;
  static constexpr bool kDequantises = Stages::kDequantises, kRescaled = Stages::kRescaled;
  static constexpr bool kScalesAccumulator = Stages::kScalesAccumulator && !kRescaled;
  static constexpr uint32_t kSteps = 2 * Operand::kChunks;  // MMAs of one register buffer
  // Tiles of 256 columns can compute their first 128 columns alone.
  static constexpr bool kHalfTiles = kColumns == 256;
  // With two K groups, each reads every other stage of W into an accumulator of its own.
  static constexpr uint32_t kKGroups = Stages::kKGroups;
  template <class Ring, uint32_t kStagesPerTurn>
  using ReaderOf = typename std::conditional_t<
      kKGroups == 2, std::type_identity<typename Ring::template TurnConsumer<kStagesPerTurn>>,
      std::type_identity<typename Ring::Consumer>>::type;
  using Reader = ReaderOf<typename Stages::Ring, 1>;
  using XReader = ReaderOf<typename Stages::XRing, kXSteps>;

  const Sm90Params& params;
  const hw::SharedAddress base;
  const uint32_t group,
      k_group;  // the warpgroup within its K group, which owns 64 rows of W; and the K group
  Reader read;
  XReader read_x;
  const bool first_lane = hw::lane_index() == 0;
  const Operand operand;
  // Two fragment buffers: one is filled while the tensor cores read the other.
  Fragment a[2] = {};
  Accumulator accumulator;
  Accumulator promoted;

  HT_DEVICE Sm90Mainloop(const Sm90Params& p, hw::SharedAddress shared, uint32_t warpgroup,
                         const typename Stages::Ring& w, const typename Stages::XRing& x)
      : params(p),
        base(shared),
        group(warpgroup % 2),
        k_group(warpgroup / 2),
        read(reader<1>(w)),
        read_x(reader<kXSteps>(x)),
        operand(group * 64 + hw::warp_index() % 4 * 16) {}

  HT_DEVICE const Accumulator& result() const {
    if constexpr (kScalesAccumulator) {
      return promoted;
    } else {
      return accumulator;
    }
  }
  // Intra-CTA split-K reduction: the second K group hands its accumulator to the first, thread by
  // thread, and waits until it has been read.
  HT_DEVICE void store_partials(hw::Site site = hw::Site::current()) {
    const hw::SharedAddress own = partials();
    HT_UNROLL
    for (uint32_t i = 0; i < kColumns / 2; ++i) {
      hw::store_shared(own + i * kPartialRow, result()[i], site);
    }
    pipe::arrive<Sm90Barrier::partials_full0, Sm90Barrier::partials_full1>(group, 256, site);
    pipe::sync<Sm90Barrier::partials_empty0, Sm90Barrier::partials_empty1>(group, 256, site);
  }
  HT_DEVICE void add_partials(hw::Site site = hw::Site::current()) {
    const hw::SharedAddress own = partials();
    Accumulator& sums = const_cast<Accumulator&>(result());
    pipe::sync<Sm90Barrier::partials_full0, Sm90Barrier::partials_full1>(group, 256, site);
    HT_UNROLL
    for (uint32_t i = 0; i < kColumns / 2; ++i) {
      sums[i] += hw::load_shared<float>(own + i * kPartialRow, site);
    }
    pipe::arrive<Sm90Barrier::partials_empty0, Sm90Barrier::partials_empty1>(group, 256, site);
  }
  // Accumulates the next `stages` stages of W into the first kWidth columns.
  template <uint32_t kWidth = kColumns>
  HT_DEVICE void accumulate(uint32_t stages) {
    if constexpr (kKGroups == 2) {
      // Stages alternate between the K groups by their count since the first tile.
      const uint32_t others = k_group ^ stages_begun % 2;
      stages_begun += stages;
      stages = (stages + 1 - others) / 2;
    }
    HT_UNROLL
    for (uint32_t i = 0; i < kColumns / 2; ++i) promoted[i] = 0;
    if constexpr (kHalfTiles || kKGroups == 2) {
      // Nothing of the previous tile may stay live: with accumulator columns live across tiles that
      // this tile may not compute, ptxas serialises every wgmma. For dequantised fragments it sees
      // as much without hold_registers. And a K group without a stage contributes 0.
      HT_UNROLL
      for (uint32_t i = 0; i < kColumns / 2; ++i) accumulator[i] = 0;
      if constexpr (!kDequantises) hw::hold_registers(accumulator);
    }
    if constexpr (Stages::kGroup32) {
      accumulate_rescaled<kWidth, true>(stages);
    } else if constexpr (kRescaled) {
      if (params.promote_every_128) {
        accumulate_rescaled<kWidth, false>(stages);
      } else {
        accumulate_rescaled<kWidth, true>(stages);
      }
    } else if constexpr (!kScalesAccumulator) {
      accumulate_unpromoted<kWidth>(stages);
    } else if (params.factors == ScaledSide::weight) {
      accumulate_promoted<ScaledSide::weight>(stages);
    } else if (params.factors == ScaledSide::x) {
      accumulate_promoted<ScaledSide::x>(stages);
    } else {
      accumulate_promoted<ScaledSide::both>(stages);
    }
  }

 private:
  uint32_t stages_begun = 0;  // of all tiles

  static constexpr uint32_t kPartialRow = 256 * 4;  // one register of all 256 threads of a K group
  HT_DEVICE hw::SharedAddress partials() const {
    return base + (Stages::kPartials + hw::thread_index().x % 256 * 4);
  }
  template <uint32_t kStagesPerTurn, class Ring>
  HT_DEVICE auto reader(const Ring& ring) const {
    if constexpr (kKGroups == 2) {
      return ring.template turn_consumer<kStagesPerTurn>(k_group);
    } else {
      return ring.consumer();
    }
  }
  // The accumulator registers of the first kWidth columns.
  template <uint32_t kWidth>
  HT_DEVICE float (&columns())[kWidth / 2] {
    return reinterpret_cast<float(&)[kWidth / 2]>(accumulator);
  }
  HT_DEVICE hw::SharedAddress weights(uint32_t stage) const {
    return base + stage * Stages::kBytes;
  }
  HT_DEVICE hw::SharedAddress scale_table(uint32_t stage) const {
    return base + (Stages::kScaleTables + stage * Stages::kScaleTableBytes);
  }

  // Starts the wgmma of the next stage of x: W from shared memory stage `stage`, or from fragment
  // buffer `f`.
  template <uint32_t kWidth = kColumns>
  HT_DEVICE void start_mma(uint32_t stage, uint32_t f, bool fresh,
                           hw::Site site = hw::Site::current()) {
    constexpr uint32_t kDepth = Stages::kXDepth, kBits = Stages::kLine * 8 / kDepth;
    constexpr hw::Type kType = Stages::kFp8 ? hw::Type::e4m3 : Stages::Policy::kType;
    constexpr tile::SharedTile x_tile{tile::Major::k, tile::Swizzle::b128, kBits, kWidth, kDepth};
    constexpr tile::SharedTile w_tile{kMajorW, tile::Swizzle::b128, kBits, 64, kDepth};
    static_assert(x_tile.valid() && w_tile.valid());
    const hw::SharedAddress x = base + (Stages::kX + read_x.wait() * Stages::kXBytes);
    const hw::SharedAddress w = weights(stage) + group * 64 * Stages::kLine;
    const auto x_start = tile::WgmmaDescriptor::of(x_tile, x.value);
    const auto w_start = tile::WgmmaDescriptor::of(w_tile, w.value);
    if constexpr (kDequantises) hold(f, site);
    hw::wgmma_fence(site);
    HT_UNROLL
    for (uint32_t j = 0; j < 4; ++j) {
      const uint32_t k = j * kDepth / 4;
      const auto b = x_start.advanced(x_tile.advance(0, k));
      if constexpr (kDequantises) {
        hw::wgmma<kType>(columns<kWidth>(), a[f].step[j], b, !fresh || j > 0, site);
      } else {
        hw::wgmma<kType, kType, kMajorW>(columns<kWidth>(), w_start.advanced(w_tile.advance(0, k)),
                                         b, !fresh || j > 0, site);
      }
    }
    hw::wgmma_commit(site);
  }
  HT_DEVICE void hold(uint32_t f, hw::Site site = hw::Site::current()) {
    HT_UNROLL
    for (uint32_t j = 0; j < kSteps; ++j) hw::hold_registers(a[f].step[j], site);
  }
  // Weights and scales were read by ld.shared (generic proxy); TMA (async proxy) overwrites them.
  HT_DEVICE void release_weights(hw::Site site = hw::Site::current()) {
    hw::fence_proxy_async_shared(site);
    hw::warp_sync(hw::kFullWarp, site);
    read.release(first_lane, site);
  }

  template <uint32_t kWidth>
  HT_DEVICE void accumulate_unpromoted(uint32_t steps) {
    bool fresh = true, running = false;
    // A stage is released once the wgmma group that read it has retired.
    const auto release = [&] {
      read_x.release(first_lane);
      if constexpr (!kDequantises) read.release(first_lane);
    };
    for (uint32_t step = 0; step < steps; ++step) {
      const uint32_t stage = read.wait();
      HT_ROLLED
      for (uint32_t first = 0; first < kXSteps; first += kUnrolledSteps) {
        HT_UNROLL
        for (uint32_t f = 0; f < kUnrolledSteps; ++f) {
          if constexpr (kDequantises)
            operand.dequantise(weights(stage), scale_table(stage), first + f, a[f]);
          start_mma<kWidth>(stage, f, fresh);
          if (running) {
            hw::wgmma_wait<1>();
            release();
          }
          if constexpr (kDequantises) hold(1 - f);
          fresh = false, running = true;
        }
      }
      if constexpr (kDequantises) release_weights();
    }
    hw::wgmma_wait<0>();
    hw::hold_registers(columns<kWidth>());
    if (running) release();
  }

  template <ScaledSide kFactors>
  HT_DEVICE void accumulate_promoted(uint32_t steps) {
    if constexpr (Stages::kFp8) {
      return accumulate_fp8<kFactors>(steps);
    } else if constexpr (kKGroups == 2) {
      return accumulate_promoted_by_k_groups<kFactors>(steps);
    } else {
      uint32_t stage = read.wait();
      operand.dequantise(weights(stage), scale_table(stage), 0, a[0]);
      for (uint32_t step = 1; step <= steps; ++step) {
        const uint32_t current = stage;
        HT_ROLLED
        for (uint32_t i = 0; i < kXSteps; i += 2) {
          start_mma(current, 0, true);
          operand.dequantise(weights(current), scale_table(current), i + 1, a[1]);
          if (!params.promote_every_128) finish_interval<kFactors>(0, scale_table(current), i);
          start_mma(current, 1, !params.promote_every_128);
          if (params.promote_every_128) {
            hw::wgmma_wait<1>();
            hold(0);
            read_x.release(first_lane);
          }
          const uint32_t next = (i + 2) % kXSteps;
          if (next == 0 && step < steps) stage = read.wait();
          if (next != 0 || step < steps)
            operand.dequantise(weights(stage), scale_table(stage), next, a[0]);
          finish_interval<kFactors>(1, scale_table(current), i + 1);
        }
        release_weights();
      }
    }
  }
  // With a single fragment buffer, as registers do not suffice for two: the other K group uses the
  // integer units while the tensor cores read it.
  template <ScaledSide kFactors>
  HT_DEVICE void accumulate_promoted_by_k_groups(uint32_t steps) {
    for (uint32_t step = 0; step < steps; ++step) {
      const uint32_t stage = read.wait();
      HT_ROLLED
      for (uint32_t i = 0; i < kXSteps; ++i) {
        operand.dequantise(weights(stage), scale_table(stage), i, a[0]);
        start_mma(stage, 0, !(params.promote_every_128 && i % 2 == 1));
        if (params.promote_every_128 && i % 2 == 0) {
          hw::wgmma_wait<0>();
          hold(0);
          read_x.release(first_lane);
        } else {
          finish_interval<kFactors>(0, scale_table(stage), i);
        }
      }
      release_weights();
    }
  }
  // One accumulator in units of the last scale: before an interval is added, the accumulator is
  // multiplied by the quotient of the previous scale and its own. One half of the columns is
  // rescaled while the tensor cores accumulate into the other; the weights of the next interval are
  // dequantised while both run. No wgmma is in flight across iterations of the rolled loop: ptxas
  // would serialise each of them. kEveryInterval: the scale may change at every interval, not only
  // at every second one.
  template <uint32_t kWidth, bool kEveryInterval>
  HT_DEVICE void accumulate_rescaled(uint32_t steps) {
    constexpr uint32_t kIntervals = Stages::kSlots, kLast = kParts<kWidth> - 1;
    constexpr uint32_t kIntervalsPerStep = kIntervals / kXSteps;  // intervals of a stage of x
    constexpr uint32_t kUnrolled = kIntervals < 4 ? kIntervals : 4;
    HT_UNROLL
    for (uint32_t i = 0; i < kWidth / 2; ++i) accumulator[i] = 0;
    if (steps == 0) return;
    uint32_t stage = read.wait();
    operand.dequantise(weights(stage), scale_table(stage), 0, a[0]);
    for (uint32_t step = 1; step <= steps; ++step) {
      HT_ROLLED
      for (uint32_t interval = 0; interval < kIntervals; interval += kUnrolled) {
        uint32_t x = read_x.wait();
        start_part_mma<kWidth, 0>(x, 0, 0);
        if constexpr (kLast == 1) start_part_mma<kWidth, 1>(x, 0, 0);
        HT_UNROLL
        for (uint32_t i = 1; i < kUnrolled; ++i) {
          operand.dequantise(weights(stage), scale_table(stage), interval + i, a[i % 2]);
          if (i % kIntervalsPerStep == 0) x = read_x.wait();
          if (kEveryInterval || i % 2 == 0) {
            rescale_and_start<kWidth>(x, i % kIntervalsPerStep, i % 2);
          } else {
            start_part_mma<kWidth, 0>(x, i % kIntervalsPerStep, i % 2);
            if constexpr (kLast == 1) start_part_mma<kWidth, 1>(x, i % kIntervalsPerStep, i % 2);
            hw::wgmma_wait<kLast + 1>();
            hold(1 - i % 2);
          }
          if (i % kIntervalsPerStep == 0) read_x.release(first_lane);
        }
        if (interval + kUnrolled < kIntervals) {
          operand.dequantise(weights(stage), scale_table(stage), interval + kUnrolled, a[0]);
        } else {
          load_last_unit(stage, a[0].rescale);
          release_weights();
          if (step < steps) {
            stage = read.wait();
            operand.dequantise(weights(stage), scale_table(stage), 0, a[0]);
          }
        }
        if constexpr (kLast == 1) finish_part<kWidth, 0, 1>(a[0].rescale);
        finish_part<kWidth, kLast, 0>(a[0].rescale);
        hold(1);
        read_x.release(first_lane);
      }
    }
  }
  // Rescales the accumulator and starts the interval in fragment buffer `f`, one part of the
  // columns after the other.
  template <uint32_t kWidth>
  HT_DEVICE void rescale_and_start(uint32_t x, uint32_t in_step, uint32_t f,
                                   hw::Site site = hw::Site::current()) {
    constexpr uint32_t kLast = kParts<kWidth> - 1;
    if constexpr (kLast == 1) {
      finish_part<kWidth, 0, 1>(a[f].rescale, site);
      start_part_mma<kWidth, 0>(x, in_step, f, site);
    }
    finish_part<kWidth, kLast, kLast>(a[f].rescale, site);
    hold(1 - f, site);
    start_part_mma<kWidth, kLast>(x, in_step, f, site);
  }
  // Waits until at most kUnderWay wgmma groups are in flight, then rescales the part.
  template <uint32_t kWidth, uint32_t kPart, uint32_t kUnderWay>
  HT_DEVICE void finish_part(const float (&by)[2], hw::Site site = hw::Site::current()) {
    hw::wgmma_wait<kUnderWay>(site);
    hw::hold_registers(part<kWidth, kPart>(), site);
    rescale_part<kWidth, kPart>(by);
  }
  // The columns are one part or two halves: a half of fewer than 32 columns takes the tensor cores
  // as long.
  template <uint32_t kWidth>
  static constexpr uint32_t kParts = kWidth >= 64 ? 2 : 1;
  template <uint32_t kWidth, uint32_t kPart>
  HT_DEVICE auto& part() {
    constexpr uint32_t kSumsOfPart = kWidth / 2 / kParts<kWidth>;
    return reinterpret_cast<float(&)[kSumsOfPart]>(accumulator[kPart * kSumsOfPart]);
  }
  // Starts the wgmma of the interval in fragment buffer `f` for one part of the columns.
  template <uint32_t kWidth, uint32_t kPart>
  HT_DEVICE void start_part_mma(uint32_t x_stage, uint32_t in_step, uint32_t f,
                                hw::Site site = hw::Site::current()) {
    constexpr uint32_t kPartColumns = kWidth / kParts<kWidth>;
    constexpr tile::SharedTile x_tile{tile::Major::k, tile::Swizzle::b128, 16, kPartColumns, 64};
    static_assert(x_tile.valid());
    const hw::SharedAddress at =
        base + (Stages::kX + x_stage * Stages::kXBytes + kPart * kPartColumns * Stages::kLine);
    const auto first = tile::WgmmaDescriptor::of(x_tile, at.value);
    hold(f, site);
    hw::wgmma_fence(site);
    HT_UNROLL
    for (uint32_t j = 0; j < kSteps; ++j) {
      hw::wgmma<Stages::Policy::kType>(
          part<kWidth, kPart>(), a[f].step[j],
          first.advanced(x_tile.advance(0, (in_step * kSteps + j) * 16)), true, site);
    }
    hw::wgmma_commit(site);
  }
  template <uint32_t kWidth, uint32_t kPart>
  HT_DEVICE void rescale_part(const float (&by)[2]) {
    auto& sums = part<kWidth, kPart>();
    HT_UNROLL
    for (uint32_t e = 0; e < std::extent_v<std::remove_reference_t<decltype(sums)>>; ++e) {
      sums[e] *= by[e / 2 % 2];
    }
  }
  HT_DEVICE void load_last_unit(uint32_t stage, float (&last)[2],
                                hw::Site site = hw::Site::current()) const {
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t row = (operand.row + 8 * half) * Stages::kScaleRowBytes;
      last[half] = hw::load_shared<float>(scale_table(stage) + (row + Stages::kLastUnit), site);
    }
  }
  // Ends the interval whose last step is in fragment buffer `f`, and promotes it.
  template <ScaledSide kFactors>
  HT_DEVICE void finish_interval(uint32_t f, hw::SharedAddress scales, uint32_t x_step,
                                 hw::Site site = hw::Site::current()) {
    const auto interval_scales = load_interval_scales<kFactors>(scales, x_step, site);
    hw::wgmma_wait<0>(site);
    hw::hold_registers(accumulator, site);
    hold(f, site);
    read_x.release(first_lane, site);
    promote(interval_scales);
  }

  template <ScaledSide kFactors>
  HT_DEVICE void accumulate_fp8(uint32_t steps) {
    for (uint32_t step = 0; step < steps; ++step) {
      const uint32_t stage = read.wait();
      start_mma(stage, 0, true);
      const auto interval_scales = load_interval_scales<kFactors>(scale_table(stage), 0);
      hw::wgmma_wait<0>();
      hw::hold_registers(accumulator);
      read_x.release(first_lane);
      hw::warp_sync();
      read.release(first_lane);
      promote(interval_scales);
    }
  }

  // The scales of an interval: of the lane's two rows of W, and of its columns (rows of x).
  template <ScaledSide kFactors>
  struct IntervalScales {
    float row[2];
    hw::Vector<float, 4> column[kFactors == ScaledSide::weight ? 1 : kColumns / 16];
  };
  template <ScaledSide kFactors>
  HT_DEVICE IntervalScales<kFactors> load_interval_scales(
      hw::SharedAddress scales, uint32_t x_step, hw::Site site = hw::Site::current()) const {
    IntervalScales<kFactors> f{};
    if constexpr (kFactors != ScaledSide::x) {
      HT_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t row = (operand.row + 8 * half) * Stages::kScaleRowBytes;
        f.row[half] = hw::load_shared<float>(scales + (row + x_step * 4), site);
      }
    }
    if constexpr (kFactors != ScaledSide::weight) {
      const hw::SharedAddress of_x =
          scales + (Stages::kXScales + (x_step * kColumns + operand.quad * 4) * 4);
      HT_UNROLL
      for (uint32_t j = 0; j < kColumns / 16; ++j) {
        f.column[j] = hw::load_shared<hw::Vector<float, 4>>(of_x + j * 64, site);
      }
    }
    return f;
  }
  // Promotes the accumulator: FP32 sum += accumulator * scales.
  template <ScaledSide kFactors>
  HT_DEVICE void promote(const IntervalScales<kFactors>& f) {
    HT_UNROLL
    for (uint32_t j = 0; j < kColumns / 16; ++j) {
      HT_UNROLL
      for (uint32_t e = 0; e < 8; ++e) {  // column pair e / 4, row e / 2 % 2 of the fragment
        const uint32_t column = e / 4 * 2 + e % 2;
        float factor = 1;
        if constexpr (kFactors == ScaledSide::weight) {
          factor = f.row[e / 2 % 2];
        } else if constexpr (kFactors == ScaledSide::x) {
          factor = f.column[j][column];
        } else {
          factor = f.row[e / 2 % 2] * f.column[j][column];
        }
        promoted[j * 8 + e] = hw::fma(accumulator[j * 8 + e], factor, promoted[j * 8 + e]);
      }
    }
  }
};

}  // namespace halftone::gemm
