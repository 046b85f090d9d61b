// Attention in E4M3 on Hopper for many query rows: O = softmax(scale Q K^T) V, with Q, K, V and P
// in 8 bits. Their scales are of tensors, sequences, heads, rows or blocks of 128 rows. Where each
// key has its own, they multiply the columns of S, and P before it is rounded, which takes them
// over the largest of the tile; those of blocks are the softmax's, and P V's.
//
// Where Q and K are given in other formats they come in bf16 (sm90_expand.cpp), S is a product of
// 16 bits, and all else is as said.
//
// As sm90.cuh, with three differences. The loading warps turn V around (sm90_fp8_layout.cuh). P V
// of a tile is added to O in f32 (sm90_fp8_math.cuh). And where the registers do not hold S of a
// tile beside P V and O, a warpgroup has one product at a time, of 128 columns, and leaves it to
// the other to keep the tensor cores busy meanwhile.
#pragma once
#include <numeric>

#include "base/launch.h"
#include "hw/fence.h"
#include "hw/memory.h"
#include "hw/vote.h"
#include "ops/attention/sm90/epilogue.cuh"
#include "ops/attention/sm90/fp8/softmax.cuh"
#include "ops/attention/sm90/fp8/source.cuh"
#include "pipe/named_barrier.h"
#include "pipe/uniform.h"

namespace halftone::attention_sm90 {

template <Fp8Tile kTile, class Source>
struct ForwardFp8 {
  using Params = typename Source::Params;
  using Work = typename Source::Work;
  using L = Fp8Layout<kTile, Source::kGeneral>;
  static constexpr bool kBlocks = Source::kBlocks;
  // Of a tile's keys, those that share a scale for sure.
  static constexpr uint32_t kRuns = kBlocks ? L::kKeys / std::gcd(L::kKeys, 128u) : 1;
  static constexpr bool kKeyRuns = kBlocks && Source::kKeyScales;
  // Whether P is rounded within the softmax: not where V's scales of rows multiply it before, nor
  // where the P of the tile before is an operand meanwhile.
  static constexpr bool kRounded = !L::kOverlap && !Source::kRowScales;
  using Barrier = typename L::Barrier;
  using Worker = typename L::Worker;
  using Schedule = typename Source::Schedule;
  static constexpr uint32_t kThreads = L::kThreads, kMinBlocks = L::kMinBlocks;

  HT_HOST_DEVICE static pipe::AttentionGrid tiles(const Params& p) {
    return Source::template tiles<L>(p);
  }
  static LaunchShape shape(const Params& p, uint32_t multiprocessors) {
    const uint32_t wanted = Schedule::items(tiles(p));
    return {.grid = {wanted < multiprocessors ? wanted : multiprocessors, 1, 1},
            .block = {kThreads, 1, 1},
            .shared_bytes = L::kSharedBytes};
  }
  HT_DEVICE static KeyTiles key_tiles(const Work& work, const pipe::AttentionTile& t) {
    return work.tiles(static_cast<int32_t>(t.query * L::kRows), L::kRows, L::kKeys);
  }
  // The same by whole warps: lengths that are loaded are no uniform numbers by themselves.
  HT_DEVICE static KeyTiles uniform_tiles(const Work& work, const pipe::AttentionTile& t) {
    const KeyTiles keys = key_tiles(work, t);
    if constexpr (!Source::kGeneral) return keys;
    return {pipe::uniform(keys.first), pipe::uniform(keys.end), pipe::uniform(keys.full_first),
            pipe::uniform(keys.full_end)};
  }

  HT_DEVICE static void run(const Params& p) {
    const hw::SharedAddress base = pipe::uniform_shared_memory();
    const auto rings = L::rings(base);
    if (hw::thread_index().x == 0) {
      if constexpr (Source::kGeneral) {
        Schedule::init(base + L::kSchedule, L::kLoadWarps + L::kWarps);
      }
      L::init(rings);
    }
    hw::barrier_sync();
    const Schedule schedule = Source::template schedule<L>(p, base);
    if (pipe::enter<L::kRoles, Worker::load>()) {
      load(p, rings, base, schedule);
    } else if (pipe::enter<L::kRoles, Worker::multiply>()) {
      multiply(p, rings, base, schedule);
    }
  }

  // The loading warps: copies one tile ahead, and V turned around.
  HT_DEVICE static void load(const Params& p, const typename L::Rings& rings,
                             hw::SharedAddress base, Schedule schedule) {
    const bool leads = hw::lane_index() == 0;
    typename Source::template Loader<L> loader{p};
    auto fill_q = rings.q.producer();
    auto fill_k = rings.k.producer();
    auto fill_v = rings.v.producer();
    auto fill_turned = rings.turned.producer();
    auto read_v = rings.v.consumer();
    auto fill_scales = rings.scales.producer();
    const auto lead = [&] {
      if constexpr (Source::kGeneral) {
        if (hw::thread_index().x == 0) schedule.lead(tiles(p));
      }
    };
    for (pipe::AttentionTile t; schedule.next(tiles(p), t); lead()) {
      const Work work(p, t);
      const KeyTiles keys = key_tiles(work, t);
      if (keys.none()) continue;
      const uint32_t key_head = Source::key_head(p, work);
      if constexpr (!Source::kGeneral) loader.key_head = key_head;
      KeyScales scales;
      const auto store_scales = [&](hw::Site site = hw::Site::current()) {
        if (!Source::by_row(p)) return;
        const pipe::Slot slot = fill_scales.wait(site);
        scales.store(base + (L::kScales + slot.stage * L::kScaleBytes));
        hw::warp_sync(hw::kFullWarp, site);
        if (leads) fill_scales.commit(slot, site);
      };
      if (Source::by_row(p)) scales.load(p, work, key_head, keys.end - 1);
      loader.load_k(fill_k, base, work, keys.end - 1);
      loader.load_q(fill_q, base, work, static_cast<int32_t>(t.query * L::kRows));
      loader.load_v(fill_v, base, work, keys.end - 1);
      hw::warp_sync();
      store_scales();
      for (uint32_t n = keys.end; n-- > keys.first;) {
        if (n > keys.first) {
          loader.load_k(fill_k, base, work, n - 1);
          if (L::kValueStages > 1) loader.load_v(fill_v, base, work, n - 1);
        } else {
          // The last V comes late where threads copy: nothing follows that would hand it over.
          loader.finish();
        }
        hw::warp_sync();
        if (Source::by_row(p) && n > keys.first) scales.load(p, work, key_head, n - 1);
        const uint32_t stage = read_v.wait();
        const pipe::Slot slot = fill_turned.wait();
        turn_values<L>(base + (L::kV + stage * L::kVBytes),
                       base + (L::kTurned + slot.stage * L::kVBytes), hw::warp_index());
        // V^T is for the tensor cores, and the place of V for the next copy.
        hw::fence_proxy_async_shared();
        hw::warp_sync();
        if (leads) fill_turned.commit(slot);
        read_v.release(leads);
        if (L::kValueStages == 1 && n > keys.first) loader.load_v(fill_v, base, work, n - 1);
        if (n > keys.first) store_scales();
      }
    }
    loader.drain(fill_q, fill_k, fill_v);
    fill_turned.drain();
    fill_scales.drain();
  }

  // The scales of a tile's keys, on their way through a thread of the loading warps: the one of K
  // is the thread's own, all of V are looked at by every warp for the largest.
  struct KeyScales {
    static constexpr uint32_t kEach = L::kKeys / 32;
    float k[(L::kKeys + 127) / 128], v[kEach];

    HT_DEVICE void load(const Params& p, const Work& work, uint32_t key_head, uint32_t n) {
      const uint32_t first = n * L::kKeys;
      Source::key_scales(p, work, key_head, p.v_scales, first + hw::lane_index(), 32, v);
      if constexpr (!Source::kKeyScales) return;
      Source::key_scales(p, work, key_head, p.k_scales, first + hw::thread_index().x, 128, k);
    }
    // V's by a power of two, so that the largest is at most 1.
    HT_DEVICE void store(hw::SharedAddress to) const {
      float largest = 0x1p-120f;
      HT_UNROLL
      for (uint32_t i = 0; i < kEach; ++i) largest = hw::max(largest, v[i]);
      HT_UNROLL
      for (uint32_t bit = 1; bit < 32; bit *= 2) {
        largest = hw::max(largest, hw::shuffle_xor(largest, bit));
      }
      // The exponent above, and its inverse.
      const uint32_t exponent = (std::bit_cast<uint32_t>(largest) >> 23) + 1;
      const auto inverse = std::bit_cast<float>((254 - exponent) << 23);
      const uint32_t thread = hw::thread_index().x, warp = hw::warp_index();
      HT_UNROLL
      for (uint32_t i = 0; i < kEach; ++i) {
        if (i % L::kLoadWarps != warp) continue;
        hw::store_shared(to + (L::kValueScales + scale_offset(i * 32 + hw::lane_index())),
                         hw::mul(v[i], inverse));
      }
      HT_UNROLL
      for (uint32_t i = 0; Source::kKeyScales && i * 128 < L::kKeys; ++i) {
        if (i * 128 + thread < L::kKeys)
          hw::store_shared(to + scale_offset(i * 128 + thread), k[i]);
      }
      if (thread == 0) {
        hw::store_shared(to + L::kLargestScale, std::bit_cast<float>(exponent << 23));
      }
    }
  };

  HT_DEVICE static void multiply(const Params& p, const typename L::Rings& rings,
                                 hw::SharedAddress base, Schedule schedule) {
    const uint32_t warp = pipe::uniform(hw::warp_index()), lane = hw::lane_index();
    const uint32_t warpgroup = warp / 4 - 1;
    const uint32_t warp_row = warpgroup * 64 + warp % 4 * 16 + lane / 4;
    auto read_q = rings.q.consumer();
    auto read_k = rings.k.consumer();
    auto read_v = rings.turned.consumer();
    auto read_scales = rings.scales.consumer();
    const auto take_turn = [&](hw::Site site = hw::Site::current()) {
      pipe::sync<Barrier::turn0, Barrier::turn3>(warpgroup, L::kTurnThreads, site);
    };
    const auto pass_turn = [&](hw::Site site = hw::Site::current()) {
      const uint32_t next = warpgroup + 1 == L::kWarpgroups ? 0 : warpgroup + 1;
      pipe::arrive<Barrier::turn0, Barrier::turn3>(next, L::kTurnThreads, site);
    };
    if (warpgroup + 1 == L::kWarpgroups) pass_turn();

    Fp8Products<L> math(base, warpgroup);
    for (pipe::AttentionTile t; schedule.next(tiles(p), t);) {
      const Work work(p, t);
      const auto row = static_cast<int32_t>(t.query * L::kRows + warp_row);
      const KeyTiles keys = uniform_tiles(work, t);
      const KeyInterval seen[2] = {work.keys(row), work.keys(row + 8)};
      [[maybe_unused]] const uint32_t key_head = Source::kBlocks ? Source::key_head(p, work) : 0;
      const float key_scale =
          kKeyRuns || (Source::kKeyScales && Source::by_row(p))
              ? Source::score_scale(p)
              : hw::mul(Source::score_scale(p), p.k_scales.of(t.sequence, 0, t.head / p.group));
      const auto row_scale = [&](int32_t at) {
        return hw::mul(key_scale, Source::query_scale(p, work, at));
      };
      TileSoftmax softmax(row_scale(row), row_scale(row + 8));
      HT_UNROLL
      for (float& sum : math.o) sum = 0;
      if (!keys.none()) {
        // After S of tile n: the softmax, once K is given back, and Q with the last tile.
        float kept[2], weight[2];
        uint32_t next_k = 0;
        // Scales of runs of the tile's keys, on their way while S is computed.
        [[maybe_unused]] float key_runs[kRuns] = {}, value_runs[kRuns] = {};
        bool same = false;
        const auto weigh = [&](uint32_t n, float(&of_tile)[2],
                               hw::Site site = hw::Site::current()) {
          hw::hold_registers(math.s);
          read_k.release(lane == 0, site);
          if (n == keys.first) read_q.release(lane == 0, site);
          hw::SharedAddress scales;
          if (Source::by_row(p)) {
            scales = base + (L::kScales + read_scales.wait(site) * L::kScaleBytes);
            if constexpr (Source::kKeyScales) scale_columns(math.s, scales, site);
          }
          float factor[kRuns][2];
          HT_UNROLL
          for (uint32_t i = 0; i < 2 * kRuns; ++i) {
            factor[i / 2][i % 2] =
                kKeyRuns ? softmax.factor(i % 2, key_runs[i / 2]) : softmax.scale[i % 2];
          }
          if constexpr (Source::kGeneral) {
            if (p.scores.given) {
              HT_UNROLL
              for (uint32_t i = 0; i < L::kKeys / 2; ++i) {
                math.s[i] = hw::mul(math.s[i], softmax.scale[i / 2 % 2]);
              }
              factor[0][0] = factor[0][1] = 1;
              Work(p, t).template shape<Source::kMasks>(math.s, row, n, site);
            }
          }
          if (keys.masked(n)) hide(math.s, seen, n);
          const float largest = kBlocks ? take_largest(value_runs) : 1;
          if constexpr (kRounded) {
            softmax.template step_rounded<L::kBatch, L::kLag>(math.s, math.p, factor, value_runs,
                                                              kept, of_tile, site);
          } else {
            softmax.step(math.s, factor, kept, of_tile, site);
            if constexpr (kRuns > 1) multiply_runs(math.s, value_runs);
          }
          HT_UNROLL
          for (uint32_t half = 0; kBlocks && half < 2; ++half) {
            of_tile[half] = hw::mul(of_tile[half], largest);
          }
          same = hw::vote_all(kept[0] == 1 && kept[1] == 1, hw::kFullWarp, site);
          if (!kRounded && Source::by_row(p)) {
            scale_columns(math.s, scales + L::kValueScales, site);
            const auto largest = hw::load_shared<float>(scales + L::kLargestScale, site);
            HT_UNROLL
            for (float& each : of_tile) each = hw::mul(each, largest);
            hw::warp_sync(hw::kFullWarp, site);
            read_scales.release(lane == 0, site);
          }
        };
        // `free`: in a turn that the warpgroup has, or without one; K has been waited for.
        const auto start_scores = [&](uint32_t n, bool free = false,
                                      hw::Site site = hw::Site::current()) {
          const uint32_t stage = free ? next_k : read_k.wait(site);
          if (!free) take_turn(site);
          math.multiply_keys(stage, site);
          if constexpr (kBlocks) {
            constexpr uint32_t kRun = L::kKeys / kRuns;
            const uint32_t first = n * L::kKeys;
            if (kKeyRuns) {
              Source::key_scales(p, work, key_head, p.k_scales, first, kRun, key_runs, site);
            }
            Source::key_scales(p, work, key_head, p.v_scales, first, kRun, value_runs, site);
          }
        };
        // Adds P V of a tile: what has been started of it, and the other columns.
        const auto add_values = [&](uint32_t stage, hw::Site site = hw::Site::current()) {
          const auto add = [&](uint32_t column) {
            hw::wgmma_wait<0>(site);
            const bool last = column + L::kColumns == L::kValueDim;
            if (L::kTurn == Turn::values && last) pass_turn(site);
            math.add_part(column, same, kept, weight);
          };
          add(0);
          HT_UNROLL
          for (uint32_t column = L::kColumns; column < L::kValueDim; column += L::kColumns) {
            math.multiply_values(stage, column, site);
            add(column);
          }
          read_v.release(lane == 0, site);
        };
        read_q.wait();
        if constexpr (L::kOverlap) {
          uint32_t n = keys.end - 1;
          start_scores(n);
          pass_turn();
          hw::wgmma_wait<0>();
          weigh(n, weight);
          math.round();
          while (n-- > keys.first) {
            start_scores(n);
            const uint32_t stage = read_v.wait();
            math.multiply_values(stage, 0);
            pass_turn();
            hw::wgmma_wait<1>();
            float next[2];
            weigh(n, next);
            HT_UNROLL
            for (uint32_t half = 0; half < 2; ++half)
              weight[half] = hw::mul(weight[half], kept[half]);
            add_values(stage);
            HT_UNROLL
            for (uint32_t half = 0; half < 2; ++half) weight[half] = next[half];
            math.round();
          }
          same = true;
          const uint32_t stage = read_v.wait();
          math.multiply_values(stage, 0);
          add_values(stage);
        } else if constexpr (L::kTurn != Turn::scores) {
          constexpr bool kBoth = L::kTurn == Turn::values_and_scores;
          uint32_t n = keys.end - 1;
          start_scores(n);
          pass_turn();
          hw::wgmma_wait<0>();
          // S is waited for in the pass of the loop that starts it: ptxas would have each MMA wait
          // for the one before if a product went on while the loop turns.
          for (;; --n) {
            hw::hold_registers(math.s);
            weigh(n, weight);
            if (!kRounded) math.round();
            const uint32_t stage = read_v.wait();
            take_turn();
            math.multiply_values(stage, 0);
            if (n != keys.first) next_k = read_k.wait();
            add_values(stage);
            if (n == keys.first) break;
            start_scores(n - 1, true);
            if (kBoth) pass_turn();
            hw::wgmma_wait<0>();
          }
          if (kBoth) pass_turn();
        } else {
          for (uint32_t n = keys.end; n-- > keys.first;) {
            start_scores(n);
            pass_turn();
            hw::wgmma_wait<0>();
            weigh(n, weight);
            if (!kRounded) math.round();
            const uint32_t stage = read_v.wait();
            math.multiply_values(stage, 0);
            add_values(stage);
          }
        }
        if (!kBlocks && !Source::by_row(p)) {
          const float value_scale = p.v_scales.of(t.sequence, 0, t.head / p.group);
          HT_UNROLL
          for (float& sum : math.o) sum = hw::mul(sum, value_scale);
        }
      }
      store<hw::Type::bf16, Columns::even_then_odd>(p, Work(p, t), row, keys.none(), softmax,
                                                    math.o);
    }
    if (warpgroup == 0) take_turn();  // the last pass: the barriers end as they began
  }
};

}  // namespace halftone::attention_sm90
