// What a warpgroup of the product on Hopper adds up, 64 rows of W by kColumns rows of x, in one of
// three ways. Of codes without scales that multiply sums: one chain of MMAs over K. Of codes in
// registers with such scales: a chain for every step of x, 64 elements, that joins an f32 sum. Of
// FP8 by FP8: chains of 128 elements.
//
// The tensor cores must not wait for what the warps do in between. While a chain runs the codes of
// the next step are expanded, or, where these need no registers, the chain before joins the sum;
// and two warpgroups share the tensor cores.
#pragma once
#include "hw/fence.h"
#include "hw/warp.h"
#include "ops/product/sm90_operand.cuh"

namespace halftone::product {

template <GpuCode kCode, Sm90Scales kScales, uint32_t kColumns, tile::Major kMajorW>
struct Sm90Sums {
  using Stages = Sm90Stages<kCode, kScales, kColumns>;
  using Operand = Sm90Operand<kCode, kScales, kColumns>;
  using Fragment = typename Operand::Fragment;
  using Chain = float[kColumns / 2];
  static constexpr uint32_t kXSteps = Stages::kXSteps, kPair = kXSteps < 2 ? 1 : 2;
  static constexpr bool kExpands = Stages::kExpands, kSums = Stages::kSums;

  const Sm90Params& params;
  const hw::SharedAddress base;
  typename Stages::Ring::Consumer read;
  typename Stages::XRing::Consumer read_x;
  const uint32_t group = hw::warp_index() / 4 - 1;
  const bool first_lane = hw::lane_index() == 0;
  const Operand operand;
  // Two sets of registers: one is filled, or joins, while the tensor cores use the other.
  Fragment a[2] = {};
  Chain chain[Stages::kFp8 ? 2 : 1];
  Chain total;

  HT_DEVICE Sm90Sums(const Sm90Params& p, hw::SharedAddress shared,
                     typename Stages::Ring::Consumer w, typename Stages::XRing::Consumer x)
      : params(p),
        base(shared),
        read(w),
        read_x(x),
        operand(group * 64 + hw::warp_index() % 4 * 16) {}

  HT_DEVICE const Chain& result() const {
    if constexpr (kSums) {
      return total;
    } else {
      return chain[0];
    }
  }
  // The next stages of W.
  HT_DEVICE void add_up(uint32_t stages) {
    HT_UNROLL
    for (uint32_t i = 0; i < kColumns / 2; ++i) total[i] = 0;
    if constexpr (Stages::kFp8) {
      add_fp8(stages);
    } else if constexpr (kSums) {
      add_groups(stages);
    } else {
      add_chain(stages);
    }
  }

 private:
  HT_DEVICE hw::SharedAddress codes(uint32_t stage) const { return base + stage * Stages::kBytes; }
  HT_DEVICE hw::SharedAddress table(uint32_t stage) const {
    return base + (Stages::kTables + stage * Stages::kTable);
  }

  // Starts adding the elements of K of the next step of x to sum `c`: rows of W in stage `stage`,
  // or in registers `f`.
  HT_DEVICE void start(uint32_t c, uint32_t stage, uint32_t f, bool fresh,
                       hw::Site site = hw::Site::current()) {
    constexpr uint32_t kDepth = Stages::kXDepth, kBits = Stages::kLine * 8 / kDepth;
    constexpr hw::Type kType = Stages::kFp8 ? hw::Type::e4m3 : Stages::Policy::kType;
    constexpr tile::SharedTile x_tile{tile::Major::k, tile::Swizzle::b128, kBits, kColumns, kDepth};
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
        hw::wgmma<kType>(chain[c], a[f].step[j], b, !fresh || j > 0, site);
      } else {
        hw::wgmma<kType, kType, kMajorW>(chain[c], w_start.advanced(w_tile.advance(0, k)), b,
                                         !fresh || j > 0, site);
      }
    }
    hw::wgmma_commit(site);
  }
  HT_DEVICE void hold(uint32_t f, hw::Site site = hw::Site::current()) {
    HT_UNROLL
    for (uint32_t j = 0; j < 4; ++j) hw::hold_registers(a[f].step[j], site);
  }
  // Codes and scales were read by loads, copies take their place.
  HT_DEVICE void release_read(hw::Site site = hw::Site::current()) {
    hw::fence_proxy_async_shared(site);
    hw::warp_sync(hw::kFullWarp, site);
    read.release(first_lane, site);
  }

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
          start(0, stage, f, fresh);
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
    hw::hold_registers(chain[0]);
    if (running) release();
  }

  HT_DEVICE void add_groups(uint32_t steps) {
    uint32_t stage = read.wait();
    operand.expand(codes(stage), table(stage), 0, a[0]);
    for (uint32_t step = 1; step <= steps; ++step) {
      const uint32_t current = stage;
      HT_ROLLED
      for (uint32_t pair = 0; pair < kXSteps; pair += kPair) {
        HT_UNROLL
        for (uint32_t f = 0; f < kPair; ++f) {
          start(0, current, f, true);
          const uint32_t i = pair + f, next = (i + 1) % kXSteps;
          if (next == 0 && step < steps) stage = read.wait();
          if (next != 0 || step < steps) operand.expand(codes(stage), table(stage), next, a[1 - f]);
          hw::wgmma_wait<0>();
          hw::hold_registers(chain[0]);
          hold(f);
          read_x.release(first_lane);
          join(0, table(current), i);
        }
      }
      release_read();
    }
  }

  // Chains take turns: one joins while the other runs.
  HT_DEVICE void add_fp8(uint32_t steps) {
    uint32_t stage[2];
    const auto begin = [&](uint32_t c) {
      stage[c] = read.wait();
      start(c, stage[c], 0, true);
    };
    const auto finish = [&](uint32_t c) {
      hw::hold_registers(chain[c]);
      read_x.release(first_lane);
      join(c, table(stage[c]), 0);
      hw::warp_sync();
      read.release(first_lane);
    };
    begin(0);
    for (; steps > 2; steps -= 2) {
      begin(1);
      hw::wgmma_wait<1>();
      finish(0);
      begin(0);
      hw::wgmma_wait<1>();
      finish(1);
    }
    if (steps == 2) {
      begin(1);
      hw::wgmma_wait<1>();
      finish(0);
      hw::wgmma_wait<0>();
      finish(1);
    } else {
      hw::wgmma_wait<0>();
      finish(0);
    }
  }

  // A chain times the scales of its group joins the sum.
  HT_DEVICE void join(uint32_t c, hw::SharedAddress scales, uint32_t x_step,
                      hw::Site site = hw::Site::current()) {
    if (params.factors == Sm90Factors::rows) {
      join_by<Sm90Factors::rows>(c, scales, x_step, site);
    } else if (params.factors == Sm90Factors::columns) {
      join_by<Sm90Factors::columns>(c, scales, x_step, site);
    } else {
      join_by<Sm90Factors::both>(c, scales, x_step, site);
    }
  }
  template <Sm90Factors kFactors>
  HT_DEVICE void join_by(uint32_t c, hw::SharedAddress scales, uint32_t x_step, hw::Site site) {
    float w[2] = {1, 1};
    if constexpr (kFactors != Sm90Factors::columns) {
      HT_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t row = (operand.row + 8 * half) * Stages::kTableRow;
        w[half] = hw::load_shared<float>(scales + (row + x_step * 4), site);
      }
    }
    const hw::SharedAddress of_x =
        scales + (Stages::kXScales + (x_step * kColumns + operand.quad * 4) * 4);
    HT_UNROLL
    for (uint32_t j = 0; j < kColumns; j += 16) {
      hw::Vector<float, 4> x{};
      if constexpr (kFactors != Sm90Factors::rows) {
        x = hw::load_shared<hw::Vector<float, 4>>(of_x + j * 4, site);
      }
      HT_UNROLL
      for (uint32_t e = 0; e < 8; ++e) {  // column pair e / 4, row e / 2 % 2 of the pair
        const float of_column = x[e / 4 * 2 + e % 2], of_row = w[e / 2 % 2];
        const float factor = kFactors == Sm90Factors::rows      ? of_row
                             : kFactors == Sm90Factors::columns ? of_column
                                                                : of_row * of_column;
        float& sum = total[j / 2 + e];
        sum = hw::fma(chain[c][j / 2 + e], factor, sum);
      }
    }
  }
};

}  // namespace halftone::product
