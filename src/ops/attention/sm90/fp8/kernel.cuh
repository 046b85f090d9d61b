// FP8 attention forward on sm_90a (wgmma, TMA) for 64 query rows and more and head sizes up to 256:
// O = softmax(scale Q K^T) V with Q, K, V and P in E4M3, O in BF16. FP32 scales are per tensor,
// sequence, head, 128-row block or row. Per-row scales of keys multiply the columns of S, and of P
// before it is rounded (V's, normalised by the largest of the tile); per-block scales enter the
// softmax and the P V factors.
//
// Where Q and K are given in other formats they come in BF16 (dequant/launch.cpp), S is a 16-bit
// MMA, and all else is as said.
//
// As ../kernel.cuh, with three differences. The four producer warps transpose V in shared memory
// (layout.cuh). P V of a tile is accumulated into O in FP32 (softmax.cuh). Where the registers do
// not hold S beside P V and O, a warpgroup has one MMA at a time, of 128 columns, and ping-pong
// lets the other warpgroup keep the tensor cores busy meanwhile.
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
  static constexpr bool kBlockScales = Source::kBlockScales;
  // How many 128-key scale blocks a tile's keys are in, so that keys of one certainly share a
  // scale.
  static constexpr uint32_t kScaleBlocks = kBlockScales ? L::kKeys / std::gcd(L::kKeys, 128u) : 1;
  static constexpr bool kKBlockScales = kBlockScales && Source::kKeyScales;
  // Whether P is rounded inside the softmax: not where per-row scales of V multiply it first, nor
  // where P of the tile before is still an MMA operand.
  static constexpr bool kConvertInSoftmax = !L::kOverlap && !Source::kRowScales;
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
  // The same in uniform registers: lengths loaded from memory are not uniform to the compiler.
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
    if (pipe::enter<L::kRoles, Worker::producer>()) {
      load(p, rings, base, schedule);
    } else if (pipe::enter<L::kRoles, Worker::consumer>()) {
      consume(p, rings, base, schedule);
    }
  }

  // The producer warps: loads one tile ahead, and the transpose of V.
  HT_DEVICE static void load(const Params& p, const typename L::Rings& rings,
                             hw::SharedAddress base, Schedule schedule) {
    const bool leads = hw::lane_index() == 0;
    typename Source::template Loader<L> loader{p};
    auto fill_q = rings.q.producer();
    auto fill_k = rings.k.producer();
    auto fill_v = rings.v.producer();
    auto fill_vt = rings.vt.producer();
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
          if (L::kVStages > 1) loader.load_v(fill_v, base, work, n - 1);
        } else {
          // Gathers arrive one stage late: no later one would publish the last V.
          loader.flush();
        }
        hw::warp_sync();
        if (Source::by_row(p) && n > keys.first) scales.load(p, work, key_head, n - 1);
        const uint32_t stage = read_v.wait();
        const pipe::Slot slot = fill_vt.wait();
        transpose_v<L>(base + (L::kV + stage * L::kVBytes),
                       base + (L::kVt + slot.stage * L::kVBytes), hw::warp_index());
        // V^T is read by wgmma, and the V stage is written by TMA next.
        hw::fence_proxy_async_shared();
        hw::warp_sync();
        if (leads) fill_vt.commit(slot);
        read_v.release(leads);
        if (L::kVStages == 1 && n > keys.first) loader.load_v(fill_v, base, work, n - 1);
        if (n > keys.first) store_scales();
      }
    }
    loader.drain(fill_q, fill_k, fill_v);
    fill_vt.drain();
    fill_scales.drain();
  }

  // Per-row scales of a tile's keys in the registers of a producer thread: the thread's own of K,
  // and all of V in every warp, for the largest.
  struct KeyScales {
    static constexpr uint32_t kEach = L::kKeys / 32;
    float k[(L::kKeys + 127) / 128], v[kEach];

    HT_DEVICE void load(const Params& p, const Work& work, uint32_t key_head, uint32_t n) {
      const uint32_t first = n * L::kKeys;
      Source::key_scales(p, work, key_head, p.v_scales, first + hw::lane_index(), 32, v);
      if constexpr (!Source::kKeyScales) return;
      Source::key_scales(p, work, key_head, p.k_scales, first + hw::thread_index().x, 128, k);
    }
    // Scales V's by a power of two, so that the largest is at most 1.
    HT_DEVICE void store(hw::SharedAddress to) const {
      float largest = 0x1p-120f;
      HT_UNROLL
      for (uint32_t i = 0; i < kEach; ++i) largest = hw::max(largest, v[i]);
      HT_UNROLL
      for (uint32_t bit = 1; bit < 32; bit *= 2) {
        largest = hw::max(largest, hw::shuffle_xor(largest, bit));
      }
      // The exponent above the largest, and its inverse.
      const uint32_t exponent = (std::bit_cast<uint32_t>(largest) >> 23) + 1;
      const auto inverse = std::bit_cast<float>((254 - exponent) << 23);
      const uint32_t thread = hw::thread_index().x, warp = hw::warp_index();
      HT_UNROLL
      for (uint32_t i = 0; i < kEach; ++i) {
        if (i % L::kLoadWarps != warp) continue;
        hw::store_shared(to + (L::kVScales + scale_offset(i * 32 + hw::lane_index())),
                         hw::mul(v[i], inverse));
      }
      HT_UNROLL
      for (uint32_t i = 0; Source::kKeyScales && i * 128 < L::kKeys; ++i) {
        if (i * 128 + thread < L::kKeys)
          hw::store_shared(to + scale_offset(i * 128 + thread), k[i]);
      }
      if (thread == 0) {
        hw::store_shared(to + L::kLargestVScale, std::bit_cast<float>(exponent << 23));
      }
    }
  };

  HT_DEVICE static void consume(const Params& p, const typename L::Rings& rings,
                                hw::SharedAddress base, Schedule schedule) {
    const uint32_t warp = pipe::uniform(hw::warp_index()), lane = hw::lane_index();
    const uint32_t warpgroup = warp / 4 - 1;
    const uint32_t warp_row = warpgroup * 64 + warp % 4 * 16 + lane / 4;
    auto read_q = rings.q.consumer();
    auto read_k = rings.k.consumer();
    auto read_v = rings.vt.consumer();
    auto read_scales = rings.scales.consumer();
    const auto ping_pong_sync = [&](hw::Site site = hw::Site::current()) {
      pipe::sync<Barrier::ping_pong0, Barrier::ping_pong3>(warpgroup, L::kPingPongThreads, site);
    };
    const auto ping_pong_arrive = [&](hw::Site site = hw::Site::current()) {
      const uint32_t next = warpgroup + 1 == L::kWarpgroups ? 0 : warpgroup + 1;
      pipe::arrive<Barrier::ping_pong0, Barrier::ping_pong3>(next, L::kPingPongThreads, site);
    };
    if (warpgroup + 1 == L::kWarpgroups) ping_pong_arrive();

    Fp8WarpgroupMma<L> math(base, warpgroup);
    for (pipe::AttentionTile t; schedule.next(tiles(p), t);) {
      const Work work(p, t);
      const auto row = static_cast<int32_t>(t.query * L::kRows + warp_row);
      const KeyTiles keys = uniform_tiles(work, t);
      const KeyInterval visible[2] = {work.keys(row), work.keys(row + 8)};
      [[maybe_unused]] const uint32_t key_head =
          Source::kBlockScales ? Source::key_head(p, work) : 0;
      const float key_scale =
          kKBlockScales || (Source::kKeyScales && Source::by_row(p))
              ? Source::score_scale(p)
              : hw::mul(Source::score_scale(p), p.k_scales.of(t.sequence, 0, t.head / p.group));
      const auto row_scale = [&](int32_t at) {
        return hw::mul(key_scale, Source::query_scale(p, work, at));
      };
      TileSoftmax softmax(row_scale(row), row_scale(row + 8));
      HT_UNROLL
      for (float& sum : math.o) sum = 0;
      if (!keys.none()) {
        // After S of tile n: releases K, and Q with the last tile, then applies scales, softcap,
        // mask and softmax.
        float rescale[2], pv_scale[2];
        uint32_t next_k = 0;
        // Per-block scales of the tile's keys, loaded while S is computed.
        [[maybe_unused]] float k_block_scales[kScaleBlocks] = {}, v_block_scales[kScaleBlocks] = {};
        bool skip_rescale = false;
        const auto softmax_step = [&](uint32_t n, float(&tile_pv_scale)[2],
                                      hw::Site site = hw::Site::current()) {
          hw::hold_registers(math.s);
          read_k.release(lane == 0, site);
          if (n == keys.first) read_q.release(lane == 0, site);
          hw::SharedAddress scales;
          if (Source::by_row(p)) {
            scales = base + (L::kScales + read_scales.wait(site) * L::kScaleBytes);
            if constexpr (Source::kKeyScales) scale_columns(math.s, scales, site);
          }
          float factor[kScaleBlocks][2];
          HT_UNROLL
          for (uint32_t i = 0; i < 2 * kScaleBlocks; ++i) {
            factor[i / 2][i % 2] =
                kKBlockScales ? softmax.factor(i % 2, k_block_scales[i / 2]) : softmax.scale[i % 2];
          }
          if constexpr (Source::kGeneral) {
            if (p.scores.active) {
              HT_UNROLL
              for (uint32_t i = 0; i < L::kKeys / 2; ++i) {
                math.s[i] = hw::mul(math.s[i], softmax.scale[i / 2 % 2]);
              }
              factor[0][0] = factor[0][1] = 1;
              Work(p, t).template softcap_and_mask<Source::kMasks>(math.s, row, n, site);
            }
          }
          if (keys.masked(n)) apply_mask(math.s, visible, n);
          const float largest = kBlockScales ? normalise_block_scales(v_block_scales) : 1;
          if constexpr (kConvertInSoftmax) {
            softmax.template step_and_convert<L::kBatch, L::kLag>(
                math.s, math.p, factor, v_block_scales, rescale, tile_pv_scale, site);
          } else {
            softmax.step(math.s, factor, rescale, tile_pv_scale, site);
            if constexpr (kScaleBlocks > 1) scale_by_block(math.s, v_block_scales);
          }
          HT_UNROLL
          for (uint32_t half = 0; kBlockScales && half < 2; ++half) {
            tile_pv_scale[half] = hw::mul(tile_pv_scale[half], largest);
          }
          skip_rescale = hw::vote_all(rescale[0] == 1 && rescale[1] == 1, hw::kFullWarp, site);
          if (!kConvertInSoftmax && Source::by_row(p)) {
            scale_columns(math.s, scales + L::kVScales, site);
            const auto largest = hw::load_shared<float>(scales + L::kLargestVScale, site);
            HT_UNROLL
            for (float& each : tile_pv_scale) each = hw::mul(each, largest);
            hw::warp_sync(hw::kFullWarp, site);
            read_scales.release(lane == 0, site);
          }
        };
        // `holds_turn`: the warpgroup already has its ping-pong turn, and K has been waited for.
        const auto start_scores = [&](uint32_t n, bool holds_turn = false,
                                      hw::Site site = hw::Site::current()) {
          const uint32_t stage = holds_turn ? next_k : read_k.wait(site);
          if (!holds_turn) ping_pong_sync(site);
          math.start_qk(stage, site);
          if constexpr (kBlockScales) {
            constexpr uint32_t kBlockKeys = L::kKeys / kScaleBlocks;
            const uint32_t first = n * L::kKeys;
            if (kKBlockScales) {
              Source::key_scales(p, work, key_head, p.k_scales, first, kBlockKeys, k_block_scales,
                                 site);
            }
            Source::key_scales(p, work, key_head, p.v_scales, first, kBlockKeys, v_block_scales,
                               site);
          }
        };
        // Accumulates P V of a tile into O: the columns already started, then the others.
        const auto accumulate_pv = [&](uint32_t stage, hw::Site site = hw::Site::current()) {
          const auto add = [&](uint32_t column) {
            hw::wgmma_wait<0>(site);
            const bool last = column + L::kColumns == L::kValueDim;
            if (L::kPingPong == PingPong::pv && last) ping_pong_arrive(site);
            math.accumulate(column, skip_rescale, rescale, pv_scale);
          };
          add(0);
          HT_UNROLL
          for (uint32_t column = L::kColumns; column < L::kValueDim; column += L::kColumns) {
            math.start_pv(stage, column, site);
            add(column);
          }
          read_v.release(lane == 0, site);
        };
        read_q.wait();
        if constexpr (L::kOverlap) {
          uint32_t n = keys.end - 1;
          start_scores(n);
          ping_pong_arrive();
          hw::wgmma_wait<0>();
          softmax_step(n, pv_scale);
          math.convert_p();
          while (n-- > keys.first) {
            start_scores(n);
            const uint32_t stage = read_v.wait();
            math.start_pv(stage, 0);
            ping_pong_arrive();
            hw::wgmma_wait<1>();
            float next_pv_scale[2];
            softmax_step(n, next_pv_scale);
            HT_UNROLL
            for (uint32_t half = 0; half < 2; ++half)
              pv_scale[half] = hw::mul(pv_scale[half], rescale[half]);
            accumulate_pv(stage);
            HT_UNROLL
            for (uint32_t half = 0; half < 2; ++half) pv_scale[half] = next_pv_scale[half];
            math.convert_p();
          }
          skip_rescale = true;
          const uint32_t stage = read_v.wait();
          math.start_pv(stage, 0);
          accumulate_pv(stage);
        } else if constexpr (L::kPingPong != PingPong::qk) {
          constexpr bool kBoth = L::kPingPong == PingPong::pv_and_qk;
          uint32_t n = keys.end - 1;
          start_scores(n);
          ping_pong_arrive();
          hw::wgmma_wait<0>();
          // S is waited for in the iteration that starts it: ptxas would have each MMA wait for the
          // one before if an MMA were in flight across the loop's back edge.
          for (;; --n) {
            hw::hold_registers(math.s);
            softmax_step(n, pv_scale);
            if (!kConvertInSoftmax) math.convert_p();
            const uint32_t stage = read_v.wait();
            ping_pong_sync();
            math.start_pv(stage, 0);
            if (n != keys.first) next_k = read_k.wait();
            accumulate_pv(stage);
            if (n == keys.first) break;
            start_scores(n - 1, true);
            if (kBoth) ping_pong_arrive();
            hw::wgmma_wait<0>();
          }
          if (kBoth) ping_pong_arrive();
        } else {
          for (uint32_t n = keys.end; n-- > keys.first;) {
            start_scores(n);
            ping_pong_arrive();
            hw::wgmma_wait<0>();
            softmax_step(n, pv_scale);
            if (!kConvertInSoftmax) math.convert_p();
            const uint32_t stage = read_v.wait();
            math.start_pv(stage, 0);
            accumulate_pv(stage);
          }
        }
        if (!kBlockScales && !Source::by_row(p)) {
          const float value_scale = p.v_scales.of(t.sequence, 0, t.head / p.group);
          HT_UNROLL
          for (float& sum : math.o) sum = hw::mul(sum, value_scale);
        }
      }
      store<hw::Type::bf16, Columns::even_then_odd>(p, Work(p, t), row, keys.none(), softmax,
                                                    math.o);
    }
    if (warpgroup == 0)
      ping_pong_sync();  // pairs with the last arrive: the barriers end as they began
  }
};

}  // namespace halftone::attention_sm90
