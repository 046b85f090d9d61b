// Some dozens of rows of x times W in codes of four bits on Hopper: a block has a tile, or a part
// of its K, which the blocks of a cluster share.
//
// A lane copies stages, three warps bring their x into the order of the codes (sm90_order.cuh), and
// two warpgroups multiply, 64 rows of W each. The sums of a cluster's blocks meet in shared memory.
#pragma once
#include "hw/griddep.h"
#include "hw/tma.h"
#include "hw/vote.h"
#include "ops/product/sm90_finish_rows.cuh"
#include "ops/product/sm90_ordered_sums.cuh"
#include "pipe/named_barrier.h"
#include "pipe/uniform.h"

namespace halftone::product {

template <GpuCode kCode, Sm90Scales kScales, uint32_t kColumns>
struct Sm90Ordered {
  using Params = Sm90DozensParams;
  using Stages = Sm90OrderedStages<kScales, kColumns>;
  using Order = Sm90Order<kCode, kScales, kColumns>;
  using Sums = Sm90OrderedSums<kCode, kScales, kColumns>;
  using Ring = typename Stages::Ring;
  static constexpr uint32_t kThreads = Stages::kThreads, kMinBlocks = Stages::kMinBlocks;
  static constexpr uint32_t kWarps = Stages::kWarps;
  enum class Barrier { multipliers, count };
  enum class Worker { multiply, load };

  // The stages of a block, [begin, end) of its tile's K.
  struct Part {
    const Params& params;
    hw::SharedAddress base;
    Ring ring;
    Sm90Tile tile;
    uint32_t matrix, begin, end;

    HT_DEVICE hw::SharedAddress stage(uint32_t i) const { return base + i * Stages::kBytes; }
    HT_DEVICE hw::Mbarrier ordered(uint32_t i) const { return {base + (Stages::kOrdered + i * 8)}; }
    HT_DEVICE hw::SharedAddress fit(uint32_t i) const { return base + (Stages::kFit + i * 4); }
    // Where those of a step lie: boxes of scales are 16 bytes wide and begin at multiples of that,
    // powers of several steps.
    HT_DEVICE hw::SharedAddress scales(uint32_t i, uint32_t step) const {
      return stage(i) + (Stages::kOfScales + step * Stages::kScaleBytes % 16);
    }

    HT_DEVICE void copy_weights(const pipe::Slot& slot, uint32_t step) const {
      const hw::SharedAddress to = stage(slot.stage);
      HT_UNROLL
      for (uint32_t r = 0; r < Stages::kRows; r += 32) {
        const uint32_t half = tile.gate ? tile.half_of(r) : matrix;
        const auto row = static_cast<int32_t>(tile.output(r));
        hw::tensor_load(to + r * Stages::kLine, &params.w[half],
                        {0, row, static_cast<int32_t>(step)}, slot.full, hw::kEvictFirst);
        if constexpr (Stages::kCopied) {
          const uint32_t column = step * Stages::kScaleBytes / 16 * 16;
          hw::tensor_load(to + (Stages::kOfScales + r * 16), &params.scales[half],
                          {static_cast<int32_t>(column), row}, slot.full);
        }
      }
    }
    HT_DEVICE void copy_rows(const pipe::Slot& slot, uint32_t step) const {
      hw::tensor_load(
          stage(slot.stage) + Stages::kX, &params.x,
          {0, static_cast<int32_t>(tile.m0), static_cast<int32_t>(step * (Stages::kDepth / 64))},
          slot.full);
    }
  };

  // By one lane.
  HT_DEVICE static void load(const Part& part) {
    auto fill = part.ring.producer();
    uint32_t step = part.begin;
    // Rows of x come when it is this kernel's turn; of the first stages nothing waits.
    for (uint32_t s = 0; s < Stages::kStages && step < part.end; ++s, ++step) {
      part.copy_weights(fill.acquire(), step);
    }
    hw::griddepcontrol_wait();
    for (uint32_t s = 0; part.begin + s < step; ++s) {
      part.copy_rows({s, part.ring.full(s)}, part.begin + s);
    }
    for (; step < part.end; ++step) {
      const pipe::Slot slot = fill.acquire();
      part.copy_weights(slot, step);
      part.copy_rows(slot, step);
    }
  }

  // Scales of the runs of a warp's 16 rows, asked for a stage ahead: lane l has those of row l %
  // 16, of the even runs of the stage or of the odd ones.
  struct RunScales {
    static constexpr uint32_t kEach = Stages::kRuns / 2;
    const Part& part;
    const uint8_t* at = nullptr;
    uint32_t raw[kEach] = {};
    const uint32_t lane = hw::lane_index(), odd = lane / 16;

    HT_DEVICE RunScales(const Part& of, uint32_t n, uint32_t first_row) : part(of) {
      const GpuProduct& p = part.params.product;
      if (!p.scaled) return;
      const uint32_t r = first_row + lane % 16, row = part.tile.output(r);
      at = scale_address(p.weight, part.tile.source_of(r), row < n ? row : n - 1, 0);
    }
    HT_DEVICE void ask(uint32_t step) {
      const GpuLayout& l = part.params.product.weight;
      if (step >= part.end || at == nullptr) return;
      HT_UNROLL
      for (uint32_t i = 0; i < kEach; ++i) {
        const uint32_t run = step * Stages::kRuns + i * 2 + odd;
        raw[i] = load_scale(l.scale_format, at + (run >> part.params.log2_groups) * l.scale_step);
      }
    }
    HT_DEVICE void store(hw::SharedAddress stage, uint32_t first_row,
                         hw::Site site = hw::Site::current()) const {
      const GpuProduct& p = part.params.product;
      HT_UNROLL
      for (uint32_t i = 0; i < kEach; ++i) {
        const float scale = p.scaled ? decode_scale(p.weight.scale_format, raw[i]) : 1.0f;
        const uint32_t place = Stages::scale_of(first_row + lane % 16, i * 2 + odd);
        hw::store_shared(stage + place, scale, site);
      }
    }
  };

  // Whether bf16 can take powers of two as factors of codes: bytes from 16 to 128.
  HT_DEVICE static bool fit(uint32_t exponents) {
    const uint32_t lower = (exponents & 0x7f7f7f7f) + 0x7f7f7f7f;       // 0x80: is not 0
    const uint32_t upper = (exponents >> 1 & 0x78787878) + 0x7f7f7f7f;  // is at least 16
    return (((exponents & lower) | ~upper) & 0x80808080) == 0;
  }
  // Those of the rows of a tile, by a warp.
  HT_DEVICE static bool all_fit(hw::SharedAddress box, uint32_t step,
                                hw::Site site = hw::Site::current()) {
    const bool second = step * Stages::kScaleBytes % 16 != 0;
    bool all = true;
    HT_UNROLL
    for (uint32_t r = 0; r < Stages::kRows; r += 32) {
      const auto both = hw::load_shared<hw::Words4>(box + (r + hw::lane_index()) * 16, site);
      all = fit(second ? both[2] : both[0]) && fit(second ? both[3] : both[1]) && all;
    }
    return hw::vote_all(all, hw::kFullWarp, site);
  }

  // By a warp of those that bring x into order.
  HT_DEVICE static void prepare(const Part& part, uint32_t warp) {
    auto read = part.ring.consumer();
    for (uint32_t step = part.begin; step < part.end; ++step) {
      const uint32_t i = read.wait();
      if (kScales == Sm90Scales::powers && warp == 0) {
        const bool all = all_fit(part.stage(i) + Stages::kOfScales, step);
        if (hw::lane_index() == 0) hw::store_shared(part.fit(i), uint32_t{all});
      }
      Order::permute(part.stage(i) + Stages::kX, warp, Stages::kOrderWarps);
      // Stored by threads, read by MMAs, and overwritten by copies.
      hw::fence_proxy_async_shared();
      hw::warp_sync();
      if (hw::lane_index() == 0) hw::mbarrier_arrive(part.ordered(i));
    }
  }

  // A consumer of stages whose x is in order.
  struct Reader {
    const Part& part;
    typename Ring::Consumer stages;
    pipe::Cursor<Stages::kStages> at;

    HT_DEVICE explicit Reader(const Part& of) : part(of), stages(of.ring.consumer()) {}
    HT_DEVICE uint32_t wait() {
      const uint32_t i = stages.wait();
      hw::mbarrier_wait(part.ordered(i), at.phase());
      at.advance();
      return i;
    }
    HT_DEVICE void release() {
      // Read by loads and MMAs, filled by copies.
      hw::fence_proxy_async_shared();
      hw::warp_sync();
      stages.release(hw::lane_index() == 0);
    }
  };
  HT_DEVICE static void multiply_stages(const Part& part, Sums& sums) {
    Reader read(part);
    HT_ROLLED
    for (uint32_t step = part.begin; step < part.end; ++step) {
      const uint32_t i = read.wait();
      const auto before = [&] {
        if (step > part.begin) read.release();
      };
      if constexpr (kScales == Sm90Scales::powers) {
        if (hw::load_shared<uint32_t>(part.fit(i)) == 0) {
          sums.end_stages();
          before();
          sums.add_apart(part.stage(i), part.scales(i, step));
          continue;
        }
      }
      sums.add_stage(part.stage(i), part.scales(i, step), before);
    }
    sums.end_stages();
  }
  HT_DEVICE static void multiply_runs(const Part& part, Sums& sums, uint32_t n) {
    Reader read(part);
    RunScales scales(part, n, sums.first);
    scales.ask(part.begin);
    uint32_t i = read.wait();
    sums.expand_first(part.stage(i), 0);
    HT_ROLLED
    for (uint32_t step = part.begin; step < part.end; ++step) {
      const hw::SharedAddress stage = part.stage(i);
      scales.store(stage, sums.first);
      scales.ask(step + 1);
      hw::warp_sync();
      HT_UNROLL
      for (uint32_t run = 0; run < Stages::kRuns; ++run) {
        sums.add_run(stage, run, [&] {
          if (run + 1 < Stages::kRuns) {
            sums.expand_first(stage, run + 1);
          } else if (step + 1 < part.end) {
            i = read.wait();
            sums.expand_first(part.stage(i), 0);
          }
        });
      }
      read.release();
    }
  }

  HT_DEVICE static void multiply_short_runs(const Part& part, Sums& sums, uint32_t n) {
    Reader read(part);
    RunScales scales(part, n, sums.first);
    scales.ask(part.begin);
    HT_ROLLED
    for (uint32_t step = part.begin; step < part.end; ++step) {
      const hw::SharedAddress stage = part.stage(read.wait());
      scales.store(stage, sums.first);
      scales.ask(step + 1);
      hw::warp_sync();
      HT_ROLLED
      for (uint32_t chunk = 0; chunk < 2; ++chunk) sums.add_short_runs(stage, chunk);
      read.release();
    }
  }

  HT_DEVICE static void run(const Params& params) {
    const GpuProduct& p = params.product;
    const hw::SharedAddress base = pipe::uniform_shared_memory();
    const uint32_t warp = pipe::uniform(hw::warp_index());
    const uint32_t blocks = hw::cluster_size(), rank = hw::cluster_rank();
    const Sm90Place place(p, params.more, hw::block_index().x / blocks);
    const bool gate = p.finish.gate;
    const uint32_t steps = p.k / Stages::kDepth;
    const Part part{params,
                    base,
                    {base + Stages::kBarriers},
                    {{place.source(p, params.more), p.source[1]},
                     place.tile * (gate ? 64 : 128),
                     hw::block_index().y * kColumns,
                     p.m,
                     0,
                     gate},
                    place.matrix,
                    rank * steps / blocks,
                    (rank + 1) * steps / blocks};
    if (hw::thread_index().x == 0) {
      part.ring.init(1, kWarps);
      for (uint32_t i = 0; i < Stages::kStages; ++i) {
        hw::mbarrier_init(part.ordered(i), Stages::kOrderWarps);
      }
      hw::fence_mbarrier_init();
    }
    hw::barrier_sync();
    if (!p.constant_weight) hw::griddepcontrol_wait();

    if (pipe::enter<Stages::kRoles, Worker::load, kMinBlocks>()) {
      if (warp > kWarps) {
        prepare(part, warp - kWarps - 1);
      } else {
        if (hw::lane_index() == 0) load(part);
        hw::warp_sync();
      }
      hw::griddepcontrol_launch_dependents();
      meet(blocks);
      leave(blocks);
    } else if (pipe::enter<Stages::kRoles, Worker::multiply, kMinBlocks>()) {
      multiply(part, place, warp, rank, blocks);
    }
  }
  HT_DEVICE static void multiply(const Part& part, const Sm90Place& place, uint32_t warp,
                                 uint32_t rank, uint32_t blocks) {
    const Params& params = part.params;
    const uint32_t panel = warp / 4;
    const hw::SharedAddress factors = part.base + (Stages::kFactors + panel * kSm90Factors);
    hw::griddepcontrol_wait();
    Sm90FinishRows ends(params.product);
    place.set_end(params.more, ends);
    ends.store_factors(part.tile, factors, panel);
    {
      Sums sums(panel * 64 + warp % 4 * 16);
      if constexpr (!Sums::kJoined) {
        multiply_stages(part, sums);
      } else if constexpr (Stages::kShort) {
        multiply_short_runs(part, sums, place.n);
      } else {
        multiply_runs(part, sums, place.n);
      }
      // Nobody reads the stages any more.
      pipe::sync<Barrier::multipliers>(kWarps * 32);
      sums.store(part.base);
    }
    hw::griddepcontrol_launch_dependents();
    meet(blocks);
    // The blocks' parts meet, each block has a share of the rows of x.
    const uint32_t left = part.tile.end - part.tile.m0;
    const uint32_t used = left < kColumns ? left : kColumns;
    const uint32_t share = (used + blocks - 1) / blocks, first = rank * share;
    if (first < used) {
      const uint32_t count = used - first < share ? used - first : share;
      const Sm90Area area{part.base + panel * 64 * 4, factors, Stages::kSumRow, 4, panel};
      ends.finish_rows(part.tile, area, first, count, part.tile.m0 + first, blocks);
    }
    leave(blocks);
  }
  // All sums of the tile are there.
  HT_DEVICE static void meet(uint32_t blocks) {
    if (blocks == 1) {
      hw::barrier_sync();
    } else {
      hw::cluster_arrive();
      hw::cluster_wait();
    }
  }
  // Others may still read of this block's shared memory.
  HT_DEVICE static void leave(uint32_t blocks) {
    if (blocks == 1) return;
    hw::warp_sync();
    hw::cluster_arrive_relaxed();
    hw::cluster_wait();
  }
};

}  // namespace halftone::product
