// What a warpgroup of the product on Hopper adds up, 64 rows of W by kColumns rows of x, in one of
// four ways. Of codes without scales that multiply sums: one chain of MMAs over K. Of codes in
// registers with such scales: a chain for every step of x, 64 elements, or for two where no scale
// changes in between, that joins an f32 sum; or, in tiles of 256 columns, where registers do not
// suffice for both, and wherever a scale has 32 elements, one chain in units of the last scale,
// which quotients of units multiply in between. Of FP8 by FP8: chains of 128 elements.
//
// Tiles of 64 columns of E4M3 and INT4 have two pairs of warpgroups, each for every other stage:
// four warps a scheduler hide the latency of the integer units that expand codes, where two leave
// them idle for half of the time.
//
// The tensor cores must not wait for what the warps do in between. While a chain runs the codes of
// the next step are expanded, and what multiplies the chain is loaded; while it joins the sum, the
// tensor cores belong to the other warpgroup. So a warp must be quick from the end of a chain to
// the start of the next: it finds the factors in registers, and gives the stage back first.
#pragma once
#include <type_traits>

#include "hw/fence.h"
#include "hw/warp.h"
#include "ops/gemm/sm90/mixed/epilogue.cuh"
#include "ops/gemm/sm90/mixed/operand.cuh"

namespace halftone::gemm {

template <GpuCode kCode, Sm90Scales kScales, uint32_t kColumns, tile::Major kMajorW>
struct Sm90Mainloop {
  using Stages = Sm90Stages<kCode, kScales, kColumns>;
  using Operand = Sm90Operand<kCode, kScales, kColumns>;
  using Fragment = typename Operand::Fragment;
  using Chain = float[kColumns / 2];
  static constexpr uint32_t kXSteps = Stages::kXSteps, kPair = kXSteps < 2 ? 1 : 2;
  static constexpr bool kExpands = Stages::kExpands, kUnits = Stages::kUnits;
  static constexpr bool kSums = Stages::kSums && !kUnits;
  static constexpr uint32_t kSteps = 2 * Operand::kPieces;  // MMAs of a set of registers
  // Tiles of 256 columns can be multiplied by their first 128 alone.
  static constexpr bool kNarrow = kColumns == 256;
  // Where two pairs of warpgroups take the stages of W by turns, each has sums of its own.
  static constexpr uint32_t kPairs = Stages::kPairs;
  template <class Ring, uint32_t kRun>
  using ReaderOf =
      typename std::conditional_t<kPairs == 2,
                                  std::type_identity<typename Ring::template TurnConsumer<kRun>>,
                                  std::type_identity<typename Ring::Consumer>>::type;
  using Reader = ReaderOf<typename Stages::Ring, 1>;
  using XReader = ReaderOf<typename Stages::XRing, kXSteps>;

  const Sm90Params& params;
  const hw::SharedAddress base;
  const uint32_t group, pair;  // of a pair the warpgroup, whose rows of W are 64 of the tile's
  Reader read;
  XReader read_x;
  const bool first_lane = hw::lane_index() == 0;
  const Operand operand;
  // Two sets of registers: one is filled while the tensor cores use the other.
  Fragment a[2] = {};
  Chain chain;
  Chain total;

  HT_DEVICE Sm90Mainloop(const Sm90Params& p, hw::SharedAddress shared, uint32_t warpgroup,
                         const typename Stages::Ring& w, const typename Stages::XRing& x)
      : params(p),
        base(shared),
        group(warpgroup % 2),
        pair(warpgroup / 2),
        read(reader<1>(w)),
        read_x(reader<kXSteps>(x)),
        operand(group * 64 + hw::warp_index() % 4 * 16) {}

  HT_DEVICE const Chain& result() const {
    if constexpr (kSums) {
      return total;
    } else {
      return chain;
    }
  }
  // From the second pair to the first, thread by thread. The one waits until it is taken.
  HT_DEVICE void hand_over(hw::Site site = hw::Site::current()) {
    const hw::SharedAddress own = handover();
    HT_UNROLL
    for (uint32_t i = 0; i < kColumns / 2; ++i) {
      hw::store_shared(own + i * kHandoverRow, result()[i], site);
    }
    pipe::arrive<Sm90Barrier::handed0, Sm90Barrier::handed1>(group, 256, site);
    pipe::sync<Sm90Barrier::taken0, Sm90Barrier::taken1>(group, 256, site);
  }
  HT_DEVICE void take_over(hw::Site site = hw::Site::current()) {
    const hw::SharedAddress own = handover();
    Chain& sums = const_cast<Chain&>(result());
    pipe::sync<Sm90Barrier::handed0, Sm90Barrier::handed1>(group, 256, site);
    HT_UNROLL
    for (uint32_t i = 0; i < kColumns / 2; ++i) {
      sums[i] += hw::load_shared<float>(own + i * kHandoverRow, site);
    }
    pipe::arrive<Sm90Barrier::taken0, Sm90Barrier::taken1>(group, 256, site);
  }
  // The next stages of W, by the first kWidth columns.
  template <uint32_t kWidth = kColumns>
  HT_DEVICE void add_up(uint32_t stages) {
    if constexpr (kPairs == 2) {
      // By the number of a stage since the first, whatever tile it belongs to.
      const uint32_t others = pair ^ begun % 2;
      begun += stages;
      stages = (stages + 1 - others) / 2;
    }
    HT_UNROLL
    for (uint32_t i = 0; i < kColumns / 2; ++i) total[i] = 0;
    if constexpr (kNarrow || kPairs == 2) {
      // Nothing of the tile before: with columns that this one may not have alive from one to the
      // next, ptxas waits for every MMA by itself. Of codes it sees so much without being held to
      // it. And a pair without a stage adds 0.
      HT_UNROLL
      for (uint32_t i = 0; i < kColumns / 2; ++i) chain[i] = 0;
      if constexpr (!kExpands) hw::hold_registers(chain);
    }
    if constexpr (Stages::kShort) {
      add_units<kWidth, true>(stages);
    } else if constexpr (kUnits) {
      if (params.promote_every_128) {
        add_units<kWidth, false>(stages);
      } else {
        add_units<kWidth, true>(stages);
      }
    } else if constexpr (!kSums) {
      add_chain<kWidth>(stages);
    } else if (params.factors == Sm90Factors::rows) {
      add_groups<Sm90Factors::rows>(stages);
    } else if (params.factors == Sm90Factors::columns) {
      add_groups<Sm90Factors::columns>(stages);
    } else {
      add_groups<Sm90Factors::both>(stages);
    }
  }

 private:
  uint32_t begun = 0;  // stages, of all tiles

  static constexpr uint32_t kHandoverRow = 256 * 4;  // of a register, of all threads of a pair
  HT_DEVICE hw::SharedAddress handover() const {
    return base + (Stages::kOfSecond + hw::thread_index().x % 256 * 4);
  }
  template <uint32_t kRun, class Ring>
  HT_DEVICE auto reader(const Ring& ring) const {
    if constexpr (kPairs == 2) {
      return ring.template turn_consumer<kRun>(pair);
    } else {
      return ring.consumer();
    }
  }
  // The registers of the first columns of the chain.
  template <uint32_t kWidth>
  HT_DEVICE float (&columns())[kWidth / 2] {
    return reinterpret_cast<float(&)[kWidth / 2]>(chain);
  }
  HT_DEVICE hw::SharedAddress codes(uint32_t stage) const { return base + stage * Stages::kBytes; }
  HT_DEVICE hw::SharedAddress table(uint32_t stage) const {
    return base + (Stages::kTables + stage * Stages::kTable);
  }

  // Starts adding the elements of K of the next step of x to the chain: rows of W in stage `stage`,
  // or in registers `f`.
  template <uint32_t kWidth = kColumns>
  HT_DEVICE void start(uint32_t stage, uint32_t f, bool fresh,
                       hw::Site site = hw::Site::current()) {
    constexpr uint32_t kDepth = Stages::kXDepth, kBits = Stages::kLine * 8 / kDepth;
    constexpr hw::Type kType = Stages::kFp8 ? hw::Type::e4m3 : Stages::Policy::kType;
    constexpr tile::SharedTile x_tile{tile::Major::k, tile::Swizzle::b128, kBits, kWidth, kDepth};
    constexpr tile::SharedTile w_tile{kMajorW, tile::Swizzle::b128, kBits, 64, kDepth};
    static_assert(x_tile.valid() && w_tile.valid());
    const hw::SharedAddress x = base + (Stages::kX + read_x.wait() * Stages::kXBytes);
    const hw::SharedAddress w = codes(stage) + group * 64 * Stages::kLine;
    const auto x_start = tile::WgmmaDescriptor::of(x_tile, x.value);
    const auto w_start = tile::WgmmaDescriptor::of(w_tile, w.value);
    if constexpr (kExpands) hold(f, site);
    hw::wgmma_fence(site);
    HT_UNROLL
    for (uint32_t j = 0; j < 4; ++j) {
      const uint32_t k = j * kDepth / 4;
      const auto b = x_start.advanced(x_tile.advance(0, k));
      if constexpr (kExpands) {
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
  // Codes and scales were read by loads, copies take their place.
  HT_DEVICE void release_read(hw::Site site = hw::Site::current()) {
    hw::fence_proxy_async_shared(site);
    hw::warp_sync(hw::kFullWarp, site);
    read.release(first_lane, site);
  }

  template <uint32_t kWidth>
  HT_DEVICE void add_chain(uint32_t steps) {
    bool fresh = true, running = false;
    // What one group of wgmma has read is given back when it has ended.
    const auto release = [&] {
      read_x.release(first_lane);
      if constexpr (!kExpands) read.release(first_lane);
    };
    for (uint32_t step = 0; step < steps; ++step) {
      const uint32_t stage = read.wait();
      HT_ROLLED
      for (uint32_t pair = 0; pair < kXSteps; pair += kPair) {
        HT_UNROLL
        for (uint32_t f = 0; f < kPair; ++f) {
          if constexpr (kExpands) operand.expand(codes(stage), table(stage), pair + f, a[f]);
          start<kWidth>(stage, f, fresh);
          if (running) {
            hw::wgmma_wait<1>();
            release();
          }
          if constexpr (kExpands) hold(1 - f);
          fresh = false, running = true;
        }
      }
      if constexpr (kExpands) release_read();
    }
    hw::wgmma_wait<0>();
    hw::hold_registers(columns<kWidth>());
    if (running) release();
  }

  template <Sm90Factors kFactors>
  HT_DEVICE void add_groups(uint32_t steps) {
    if constexpr (Stages::kFp8) {
      return add_fp8<kFactors>(steps);
    } else if constexpr (kPairs == 2) {
      return add_groups_in_turn<kFactors>(steps);
    } else {
      uint32_t stage = read.wait();
      operand.expand(codes(stage), table(stage), 0, a[0]);
      for (uint32_t step = 1; step <= steps; ++step) {
        const uint32_t current = stage;
        HT_ROLLED
        for (uint32_t i = 0; i < kXSteps; i += 2) {
          start(current, 0, true);
          operand.expand(codes(current), table(current), i + 1, a[1]);
          if (!params.promote_every_128) end_chain<kFactors>(0, table(current), i);
          start(current, 1, !params.promote_every_128);
          if (params.promote_every_128) {
            hw::wgmma_wait<1>();
            hold(0);
            read_x.release(first_lane);
          }
          const uint32_t next = (i + 2) % kXSteps;
          if (next == 0 && step < steps) stage = read.wait();
          if (next != 0 || step < steps) operand.expand(codes(stage), table(stage), next, a[0]);
          end_chain<kFactors>(1, table(current), i + 1);
        }
        release_read();
      }
    }
  }
  // With one set of registers, as there are none for two: the other pair has the integer units
  // while the tensor cores read it.
  template <Sm90Factors kFactors>
  HT_DEVICE void add_groups_in_turn(uint32_t steps) {
    for (uint32_t step = 0; step < steps; ++step) {
      const uint32_t stage = read.wait();
      HT_ROLLED
      for (uint32_t i = 0; i < kXSteps; ++i) {
        operand.expand(codes(stage), table(stage), i, a[0]);
        start(stage, 0, !(params.promote_every_128 && i % 2 == 1));
        if (params.promote_every_128 && i % 2 == 0) {
          hw::wgmma_wait<0>();
          hold(0);
          read_x.release(first_lane);
        } else {
          end_chain<kFactors>(0, table(stage), i);
        }
      }
      release_read();
    }
  }
  // One set of sums, in units of the last scale: before a run joins them they are multiplied by the
  // quotient of the unit before and its own. Half the columns are, while the tensor cores add to
  // the others; codes of the next run are expanded while they have both. MMAs on their way from one
  // turn of the loop to the next would make ptxas wait for each by itself.
  // kEveryRun: the scale may be another for every run, not for every two.
  template <uint32_t kWidth, bool kEveryRun>
  HT_DEVICE void add_units(uint32_t steps) {
    constexpr uint32_t kRuns = Stages::kSlots, kLast = kParts<kWidth> - 1;
    constexpr uint32_t kOfStep = kRuns / kXSteps;  // runs of a step of x
    constexpr uint32_t kTurn = kRuns < 4 ? kRuns : 4;
    HT_UNROLL
    for (uint32_t i = 0; i < kWidth / 2; ++i) chain[i] = 0;
    if (steps == 0) return;
    uint32_t stage = read.wait();
    operand.expand(codes(stage), table(stage), 0, a[0]);
    for (uint32_t step = 1; step <= steps; ++step) {
      HT_ROLLED
      for (uint32_t run = 0; run < kRuns; run += kTurn) {
        uint32_t x = read_x.wait();
        start_part<kWidth, 0>(x, 0, 0);
        if constexpr (kLast == 1) start_part<kWidth, 1>(x, 0, 0);
        HT_UNROLL
        for (uint32_t i = 1; i < kTurn; ++i) {
          operand.expand(codes(stage), table(stage), run + i, a[i % 2]);
          if (i % kOfStep == 0) x = read_x.wait();
          if (kEveryRun || i % 2 == 0) {
            follow<kWidth>(x, i % kOfStep, i % 2);
          } else {
            start_part<kWidth, 0>(x, i % kOfStep, i % 2);
            if constexpr (kLast == 1) start_part<kWidth, 1>(x, i % kOfStep, i % 2);
            hw::wgmma_wait<kLast + 1>();
            hold(1 - i % 2);
          }
          if (i % kOfStep == 0) read_x.release(first_lane);
        }
        if (run + kTurn < kRuns) {
          operand.expand(codes(stage), table(stage), run + kTurn, a[0]);
        } else {
          load_last(stage, a[0].quotient);
          release_read();
          if (step < steps) {
            stage = read.wait();
            operand.expand(codes(stage), table(stage), 0, a[0]);
          }
        }
        if constexpr (kLast == 1) end_part<kWidth, 0, 1>(a[0].quotient);
        end_part<kWidth, kLast, 0>(a[0].quotient);
        hold(1);
        read_x.release(first_lane);
      }
    }
  }
  // Lets the run in registers `f` follow the one under way, part by part.
  template <uint32_t kWidth>
  HT_DEVICE void follow(uint32_t x, uint32_t of_step, uint32_t f,
                        hw::Site site = hw::Site::current()) {
    constexpr uint32_t kLast = kParts<kWidth> - 1;
    if constexpr (kLast == 1) {
      end_part<kWidth, 0, 1>(a[f].quotient, site);
      start_part<kWidth, 0>(x, of_step, f, site);
    }
    end_part<kWidth, kLast, kLast>(a[f].quotient, site);
    hold(1 - f, site);
    start_part<kWidth, kLast>(x, of_step, f, site);
  }
  // A part as all MMAs but the last kUnderWay have ended, multiplied.
  template <uint32_t kWidth, uint32_t kPart, uint32_t kUnderWay>
  HT_DEVICE void end_part(const float (&by)[2], hw::Site site = hw::Site::current()) {
    hw::wgmma_wait<kUnderWay>(site);
    hw::hold_registers(part<kWidth, kPart>(), site);
    multiply_part<kWidth, kPart>(by);
  }
  // Sums are those of all columns or of two halves of them: a half of fewer than 32 takes the
  // tensor cores as long.
  template <uint32_t kWidth>
  static constexpr uint32_t kParts = kWidth >= 64 ? 2 : 1;
  template <uint32_t kWidth, uint32_t kPart>
  HT_DEVICE auto& part() {
    constexpr uint32_t kSumsOfPart = kWidth / 2 / kParts<kWidth>;
    return reinterpret_cast<float(&)[kSumsOfPart]>(chain[kPart * kSumsOfPart]);
  }
  // Adds a run in registers `f` to a part.
  template <uint32_t kWidth, uint32_t kPart>
  HT_DEVICE void start_part(uint32_t x_stage, uint32_t of_step, uint32_t f,
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
          first.advanced(x_tile.advance(0, (of_step * kSteps + j) * 16)), true, site);
    }
    hw::wgmma_commit(site);
  }
  template <uint32_t kWidth, uint32_t kPart>
  HT_DEVICE void multiply_part(const float (&by)[2]) {
    auto& sums = part<kWidth, kPart>();
    HT_UNROLL
    for (uint32_t e = 0; e < std::extent_v<std::remove_reference_t<decltype(sums)>>; ++e) {
      sums[e] *= by[e / 2 % 2];
    }
  }
  HT_DEVICE void load_last(uint32_t stage, float (&last)[2],
                           hw::Site site = hw::Site::current()) const {
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t row = (operand.row + 8 * half) * Stages::kTableRow;
      last[half] = hw::load_shared<float>(table(stage) + (row + Stages::kLastUnit), site);
    }
  }
  // The chain whose last step of x is in registers `f`.
  template <Sm90Factors kFactors>
  HT_DEVICE void end_chain(uint32_t f, hw::SharedAddress scales, uint32_t x_step,
                           hw::Site site = hw::Site::current()) {
    const auto factors = load_factors<kFactors>(scales, x_step, site);
    hw::wgmma_wait<0>(site);
    hw::hold_registers(chain, site);
    hold(f, site);
    read_x.release(first_lane, site);
    join(factors);
  }

  template <Sm90Factors kFactors>
  HT_DEVICE void add_fp8(uint32_t steps) {
    for (uint32_t step = 0; step < steps; ++step) {
      const uint32_t stage = read.wait();
      start(stage, 0, true);
      const auto factors = load_factors<kFactors>(table(stage), 0);
      hw::wgmma_wait<0>();
      hw::hold_registers(chain);
      read_x.release(first_lane);
      hw::warp_sync();
      read.release(first_lane);
      join(factors);
    }
  }

  // What multiplies a chain: scales of the lane's two rows of W, and of its columns.
  template <Sm90Factors kFactors>
  struct Factors {
    float row[2];
    hw::Vector<float, 4> column[kFactors == Sm90Factors::rows ? 1 : kColumns / 16];
  };
  template <Sm90Factors kFactors>
  HT_DEVICE Factors<kFactors> load_factors(hw::SharedAddress scales, uint32_t x_step,
                                           hw::Site site = hw::Site::current()) const {
    Factors<kFactors> f{};
    if constexpr (kFactors != Sm90Factors::columns) {
      HT_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t row = (operand.row + 8 * half) * Stages::kTableRow;
        f.row[half] = hw::load_shared<float>(scales + (row + x_step * 4), site);
      }
    }
    if constexpr (kFactors != Sm90Factors::rows) {
      const hw::SharedAddress of_x =
          scales + (Stages::kXScales + (x_step * kColumns + operand.quad * 4) * 4);
      HT_UNROLL
      for (uint32_t j = 0; j < kColumns / 16; ++j) {
        f.column[j] = hw::load_shared<hw::Vector<float, 4>>(of_x + j * 64, site);
      }
    }
    return f;
  }
  // The chain times its factors joins the sum.
  template <Sm90Factors kFactors>
  HT_DEVICE void join(const Factors<kFactors>& f) {
    HT_UNROLL
    for (uint32_t j = 0; j < kColumns / 16; ++j) {
      HT_UNROLL
      for (uint32_t e = 0; e < 8; ++e) {  // column pair e / 4, row e / 2 % 2 of the pair
        const uint32_t column = e / 4 * 2 + e % 2;
        float factor = 1;
        if constexpr (kFactors == Sm90Factors::rows) {
          factor = f.row[e / 2 % 2];
        } else if constexpr (kFactors == Sm90Factors::columns) {
          factor = f.column[j][column];
        } else {
          factor = f.row[e / 2 % 2] * f.column[j][column];
        }
        total[j * 8 + e] = hw::fma(chain[j * 8 + e], factor, total[j * 8 + e]);
      }
    }
  }
};

}  // namespace halftone::gemm
