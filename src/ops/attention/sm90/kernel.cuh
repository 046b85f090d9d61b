// Attention forward on sm_90a (wgmma, TMA): O = softmax(scale Q K^T) V in BF16 or FP16 with FP32
// accumulation, for head sizes up to 256 and many query rows; the other attention kernels of sm_90a
// are this one with another `Source`.
//
// A CTA is four producer warps and one to three consumer warpgroups of 64 query rows each. The
// producers keep rings of K and V stages full; CTAs of a cluster have neighbouring Q tiles, and
// each loads its share of the K/V tile for all of them by multicast. Intra-warpgroup overlap: a
// warpgroup starts S = Q K^T of a tile, then O += P V of the tile before, and does the softmax of
// the one while the other is computed. Ping-pong scheduling by named barriers: the warpgroups start
// MMAs one after the other, so that the tensor cores work for one while another is at its
// exponentials. Short rows instead have two CTAs on a multiprocessor, whose four warpgroups run S,
// softmax and P V in sequence without barriers: a CTA has few K/V tiles, and its prologue and
// epilogue are hidden by the other CTA.
//
// K/V tiles are walked from the last to the first. S, row_max and row_sum are FP32; P is rounded to
// the format of V; the divisor is the sum of the unrounded P. The bits of a row are a function of
// its query and its keys alone: a tile in which all keys are masked for a row rescales O by exactly
// 1 and adds exactly 0.
//
// `Source` says where rows and keys are. Dense (dense/): equal lengths, TMA for every tensor.
// General (general/): lengths and page tables in memory, softcap, split-KV, PackGQA, and tensors
// that TMA does not take; StagedMask is General with mask tensors loaded by TMA as K is, Masked
// with masks that threads read, whose values want registers of their own. Dequantised and
// DequantisedGeneral (dequant/): quantised operands that another kernel has dequantised to BF16;
// NativeFp8Qk is Dequantised with Q and K left in E4M3, S by 8-bit MMAs. Nvfp4P and its general
// form (nvfp4/): P in NVFP4. A tile's Work is constructed anew where it is needed: what is not
// alive in the loop over K/V tiles costs it no register.
#pragma once
#include "base/launch.h"
#include "hw/fence.h"
#include "hw/thread.h"
#include "ops/attention/sm90/dense/dense.cuh"
#include "ops/attention/sm90/epilogue.cuh"
#include "pipe/named_barrier.h"
#include "pipe/uniform.h"

namespace halftone::attention_sm90 {

template <hw::Type kType, Tile kTile, class Source = Dense>
struct Forward {
  using Params = typename Source::Params;
  using Work = typename Source::Work;
  using L = Layout<kTile, Source::kGeneral, Source::kPerKeyScales, Source::kStagedMasks,
                   Source::kKeyBits>;
  using Barrier = typename L::Barrier;
  using Worker = typename L::Worker;
  using Schedule = typename Source::Schedule;
  static constexpr uint32_t kThreads = L::kThreads, kMinBlocks = L::kMinBlocks;
  // Small heads over operands with per-key scales lose 12 % by uniform registers, all others gain 3
  // to 8; why is not known.
  static constexpr bool kUniform = !(Source::kPerKeyScales && L::kWarpgroups == 3);

  HT_HOST_DEVICE static pipe::AttentionGrid tiles(const Params& p) {
    return Source::template tiles<L>(p);
  }
  static LaunchShape shape(const Params& p, uint32_t multiprocessors) {
    const uint32_t fit = multiprocessors * kMinBlocks / L::kCluster,
                   wanted = Schedule::items(tiles(p));
    return {.grid = {(wanted < fit ? wanted : fit) * L::kCluster, 1, 1},
            .block = {kThreads, 1, 1},
            .cluster = {L::kCluster, 1, 1},
            .shared_bytes = L::kSharedBytes};
  }
  // The K/V tiles that all CTAs of the cluster walk.
  HT_DEVICE static KeyTiles key_tiles(const Work& work, const pipe::AttentionTile& t) {
    constexpr int32_t kAll = static_cast<int32_t>(L::kRows * L::kCluster);
    return work.tiles(static_cast<int32_t>(t.query) * kAll, kAll, static_cast<int32_t>(L::kKeys));
  }
  // The same in uniform registers: lengths loaded from memory are not uniform to the compiler.
  HT_DEVICE static KeyTiles uniform_tiles(const Work& work, const pipe::AttentionTile& t) {
    const KeyTiles keys = key_tiles(work, t);
    if constexpr (!Source::kGeneral || !kUniform) return keys;
    return {pipe::uniform(keys.first), pipe::uniform(keys.end), pipe::uniform(keys.full_first),
            pipe::uniform(keys.full_end)};
  }

  HT_DEVICE static void run(const Params& p) {
    const hw::SharedAddress base =
        kUniform ? pipe::uniform_shared_memory() : hw::shared_memory_base();
    const auto rings = L::rings(base);
    if (hw::thread_index().x == 0) {
      if constexpr (Source::kGeneral)
        Schedule::init(base + L::kSchedule, L::kLoadWarps + L::kWarps);
      L::init(base, rings);
    }
    if constexpr (L::kCluster > 1) {
      hw::cluster_arrive();
      hw::cluster_wait();
    } else {
      hw::barrier_sync();
    }
    // Producers and consumers walk the same tiles, each by itself.
    const Schedule schedule = Source::template schedule<L>(p, base);
    if (pipe::enter<L::kRoles, Worker::producer, kMinBlocks, kUniform>()) {
      Source::template load<L, Forward>(p, rings, base, schedule);
    } else if (pipe::enter<L::kRoles, Worker::consumer, kMinBlocks, kUniform>()) {
      consume(p, rings, base, schedule);
    }
  }

  HT_DEVICE static void consume(const Params& p, const typename L::Rings& rings,
                                hw::SharedAddress base, Schedule schedule) {
    const uint32_t warp = kUniform ? pipe::uniform(hw::warp_index()) : hw::warp_index();
    const uint32_t lane = hw::lane_index();
    const uint32_t warpgroup = warp / 4 - 1;
    const uint32_t warp_row = warpgroup * 64 + warp % 4 * 16 + lane / 4;
    auto read_q = rings.q.consumer();
    auto read_k = rings.k.consumer();
    auto read_v = rings.v.consumer();
    const auto release = [&](auto& read, hw::Site site = hw::Site::current()) {
      if constexpr (L::kCluster > 1 && Source::kPerKeyScales) {
        // The consumer has also read per-key scales, which a producer warp is about to overwrite:
        // its arrival in its own CTA must be ordered, in the other CTA it need not.
        const hw::Mbarrier empty = read.next_release();
        if (lane == L::block_rank()) {
          hw::mbarrier_arrive(empty, site);
        } else if (lane < L::kCluster) {
          const auto other = hw::map_shared_rank(empty.address, lane, site);
          hw::mbarrier_arrive_cluster_relaxed(other, 1, site);
        }
      } else if constexpr (L::kCluster > 1) {
        read.release_to(lane, lane < L::kCluster, site);
      } else {
        read.release(lane == 0, site);
      }
    };
    // A single warpgroup has no partner for ping-pong.
    constexpr bool kPingPong = L::kWarpgroups > 1 && kTile.overlap != Overlap::none;
    const auto ping_pong_sync = [&](hw::Site site = hw::Site::current()) {
      if constexpr (kPingPong) {
        pipe::sync<Barrier::ping_pong0, Barrier::ping_pong2>(warpgroup, L::kPingPongThreads, site);
      }
    };
    const auto ping_pong_arrive = [&](hw::Site site = hw::Site::current()) {
      if constexpr (kPingPong) {
        const uint32_t next = warpgroup + 1 == L::kWarpgroups ? 0 : warpgroup + 1;
        pipe::arrive<Barrier::ping_pong0, Barrier::ping_pong2>(next, L::kPingPongThreads, site);
      }
    };
    if (warpgroup + 1 == L::kWarpgroups) ping_pong_arrive();

    WarpgroupMma<kType, L> math(base, warpgroup);
    [[maybe_unused]] uint32_t scale_slot = 0;
    [[maybe_unused]] auto read_mask = L::mask_ring(base, warpgroup).consumer();
    for (pipe::AttentionTile t; schedule.next(tiles(p), t);) {
      const Work work(p, t);
      const int32_t row =
          static_cast<int32_t>((t.query * L::kCluster + L::block_rank()) * L::kRows + warp_row);
      const KeyTiles keys = uniform_tiles(work, t);
      const KeyInterval visible[2] = {work.keys(row), work.keys(row + 8)};
      typename Source::Softmax softmax(Source::score_scale(p));
      if (!keys.none()) {
        float rescale[2];
        [[maybe_unused]] const auto scales =
            Source::template operand_scales<L>(p, work, base, row, softmax);
        // After S of tile n: releases K, and Q with the last tile, then applies scales, softcap,
        // mask and softmax.
        const auto softmax_step = [&](uint32_t n, hw::Site site = hw::Site::current()) {
          hw::hold_registers(math.s);
          release(read_k, site);
          if (n == keys.first) read_q.release(lane == 0, site);
          if constexpr (kTile.overlap == Overlap::others) hw::wgmma_wait<0>(site);
          if constexpr (Source::kPerKeyScales) {
            scales.scale_scores(math.s, scale_slot, site);
          } else if constexpr (Source::kOperandScales) {
            scales.scale_scores(math.s);
          }
          if constexpr (Source::kStagedMasks) {
            p.scores.scale_scores(math.s);
            read_mask.wait(site);
            p.scores.add_staged(math.s, L::mask_stage(base, warpgroup), L::kMaskPanel, site);
            hw::fence_proxy_async_shared(site);  // generic reads before the next TMA write
            hw::warp_sync(hw::kFullWarp, site);
            read_mask.release(lane == 0, site);
          } else if constexpr (Source::kGeneral) {
            if (p.scores.active) {
              Work(p, t).template softcap_and_mask<Source::kMasks>(math.s, row, n, site);
            }
          }
          if (keys.masked(n)) apply_mask(math.s, visible, n);
          softmax.template step<L::kInterleaved>(math.s, rescale, site);
          if constexpr (Source::kPerKeyScales) {
            scales.scale_p(math.s, scale_slot, site);
            hw::warp_sync(hw::kFullWarp, site);  // all lanes have read before one releases more
            scale_slot = (scale_slot + 1) % L::kScaleSlots;
          }
        };
        read_q.wait();
        if constexpr (kTile.overlap == Overlap::none) {
          for (uint32_t n = keys.end; n-- > keys.first;) {
            const bool zero_init = n + 1 == keys.end;
            math.start_qk(read_k.wait());
            hw::wgmma_wait<0>();
            softmax_step(n);
            if (!zero_init) math.rescale(rescale);
            math.convert_p();
            math.start_pv(read_v.wait(), zero_init);
            hw::wgmma_wait<0>();
            hw::hold_registers(math.o);
            release(read_v);
          }
        } else {
          uint32_t n = keys.end - 1;
          const uint32_t last = read_k.wait();
          ping_pong_sync();
          math.start_qk(last);
          ping_pong_arrive();
          hw::wgmma_wait<0>();
          softmax_step(n);
          math.convert_p();
          bool zero_init = true;
          while (n-- > keys.first) {
            const uint32_t stage = read_k.wait();
            ping_pong_sync();
            math.start_qk(stage);
            math.start_pv(read_v.wait(), zero_init);
            ping_pong_arrive();
            hw::wgmma_wait<1>();
            softmax_step(n);
            if constexpr (kTile.overlap == Overlap::own) {
              // Never true. The branch ends a basic block: ptxas moves a wgmma wait to the top of
              // its block, and the softmax would start only when P V is done.
              if (hw::add(softmax.sum[0], softmax.sum[1]) < 0) hw::nanosleep(1);
            }
            hw::wgmma_wait<0>();
            hw::hold_registers(math.o);
            release(read_v);
            zero_init = false;
            math.rescale(rescale);
            math.convert_p();
          }
          math.start_pv(read_v.wait(), zero_init);
          hw::wgmma_wait<0>();
          hw::hold_registers(math.o);
          release(read_v);
        }
        if constexpr (Source::kOperandScales) scales.scale_output(math.o);
      }
      if constexpr (Source::kGeneral) {
        if (p.splits > 1) {
          store_partial(p, Work(p, t), row, keys.none(), softmax, math.o);
          continue;
        }
      }
      if constexpr (L::kStaged) {
        const uint32_t place = (warp - L::kLoadWarps) * L::kOutBytes;
        store_staged<kType, L>(p, Work(p, t), base + (L::kOut + place), row, keys.none(), softmax,
                               math.o);
      } else {
        store<kType>(p, Work(p, t), row, keys.none(), softmax, math.o);
      }
    }
    if constexpr (L::kStaged) hw::bulk_wait_read<0>();  // shared memory is released at exit
    if (warpgroup == 0)
      ping_pong_sync();  // pairs with the last arrive: the barriers end as they began
  }
};

}  // namespace halftone::attention_sm90
