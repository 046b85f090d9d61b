// Attention on Hopper for many query rows: O = softmax(scale Q K^T) V.
//
// A block is four loading warps and one to three warpgroups of 64 query rows each. The loading
// warps keep rings of K and V tiles full; blocks of a cluster have neighbouring rows, and each
// loads its share of the keys for all of them. A warpgroup starts S = Q K^T of a tile on the tensor
// cores, then O += P V of the tile before, and does the softmax of the one while the other is
// computed. The warpgroups take turns at starting, so that the tensor cores work for one while
// another is at its exponentials. Short rows have two blocks on a multiprocessor, whose four
// warpgroups do one thing after the other, each in its own time: a block has few tiles of keys, and
// what begins and ends a tile of rows is hidden by the other.
//
// Tiles of keys are walked from the last to the first. S, a row's largest score and its sum are
// f32; P is rounded to the format of V; the divisor is the sum of the P that are not rounded. The
// bits of a row are a function of its query and its keys alone: a tile that a row sees nothing of
// multiplies what it has by exactly 1 and adds exactly 0.
//
// `Source` says where rows and keys are: Dense (sm90_dense.cuh), or General (sm90_general.cuh) for
// lengths and pages in memory, softcap, split keys, rows of several heads, and tensors that the
// copy engine does not take; StagedMask is General with mask tensors that come by tensor copies, as
// K does, Masked with others, whose terms want registers of their own; Expanded and ExpandedGeneral
// (sm90_expanded.cuh) are both over quantised operands that another kernel has expanded; KeyCodes
// is Expanded with Q and K in E4M3 as they are, whose S is a product of 8 bits; Nvfp4Weights and
// its general form (sm90_nvfp4.cuh) have P in NVFP4. A tile's Work is made anew where it is needed:
// what is not alive in the loop over keys costs it no register.
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
  using L =
      Layout<kTile, Source::kGeneral, Source::kScaled, Source::kStagedMasks, Source::kKeyBits>;
  using Barrier = typename L::Barrier;
  using Worker = typename L::Worker;
  using Schedule = typename Source::Schedule;
  static constexpr uint32_t kThreads = L::kThreads, kMinBlocks = L::kMinBlocks;
  // Small heads over operands with scales lose 12 % by uniform registers, all others gain 3 to 8;
  // why is not known.
  static constexpr bool kUniform = !(Source::kScaled && L::kWarpgroups == 3);

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
  // What all blocks of the cluster walk over.
  HT_DEVICE static KeyTiles key_tiles(const Work& work, const pipe::AttentionTile& t) {
    constexpr int32_t kAll = static_cast<int32_t>(L::kRows * L::kCluster);
    return work.tiles(static_cast<int32_t>(t.query) * kAll, kAll, static_cast<int32_t>(L::kKeys));
  }
  // The same by whole warps: lengths that are loaded are no uniform numbers by themselves.
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
    // Both roles walk the same tiles, each by itself.
    const Schedule schedule = Source::template schedule<L>(p, base);
    if (pipe::enter<L::kRoles, Worker::load, kMinBlocks, kUniform>()) {
      Source::template load<L, Forward>(p, rings, base, schedule);
    } else if (pipe::enter<L::kRoles, Worker::multiply, kMinBlocks, kUniform>()) {
      multiply(p, rings, base, schedule);
    }
  }

  HT_DEVICE static void multiply(const Params& p, const typename L::Rings& rings,
                                 hw::SharedAddress base, Schedule schedule) {
    const uint32_t warp = kUniform ? pipe::uniform(hw::warp_index()) : hw::warp_index();
    const uint32_t lane = hw::lane_index();
    const uint32_t warpgroup = warp / 4 - 1;
    const uint32_t warp_row = warpgroup * 64 + warp % 4 * 16 + lane / 4;
    auto read_q = rings.q.consumer();
    auto read_k = rings.k.consumer();
    auto read_v = rings.v.consumer();
    const auto release = [&](auto& read, hw::Site site = hw::Site::current()) {
      if constexpr (L::kCluster > 1 && Source::kScaled) {
        // What has read scales says so in its own block, where a warp is to overwrite them.
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
    // A single warpgroup has nobody to take turns with.
    constexpr bool kTurns = L::kWarpgroups > 1 && kTile.overlap != Overlap::none;
    const auto take_turn = [&](hw::Site site = hw::Site::current()) {
      if constexpr (kTurns) {
        pipe::sync<Barrier::turn0, Barrier::turn2>(warpgroup, L::kTurnThreads, site);
      }
    };
    const auto pass_turn = [&](hw::Site site = hw::Site::current()) {
      if constexpr (kTurns) {
        const uint32_t next = warpgroup + 1 == L::kWarpgroups ? 0 : warpgroup + 1;
        pipe::arrive<Barrier::turn0, Barrier::turn2>(next, L::kTurnThreads, site);
      }
    };
    if (warpgroup + 1 == L::kWarpgroups) pass_turn();

    Products<kType, L> math(base, warpgroup);
    [[maybe_unused]] uint32_t scale_place = 0;
    [[maybe_unused]] auto read_mask = L::mask_ring(base, warpgroup).consumer();
    for (pipe::AttentionTile t; schedule.next(tiles(p), t);) {
      const Work work(p, t);
      const int32_t row =
          static_cast<int32_t>((t.query * L::kCluster + L::block_rank()) * L::kRows + warp_row);
      const KeyTiles keys = uniform_tiles(work, t);
      const KeyInterval seen[2] = {work.keys(row), work.keys(row + 8)};
      typename Source::Softmax softmax(Source::score_scale(p));
      if (!keys.none()) {
        float rescale[2];
        [[maybe_unused]] const auto scales =
            Source::template row_scales<L>(p, work, base, row, softmax);
        // After S of tile n: the softmax, once K is given back, and Q with the last tile.
        const auto weigh = [&](uint32_t n, hw::Site site = hw::Site::current()) {
          hw::hold_registers(math.s);
          release(read_k, site);
          if (n == keys.first) read_q.release(lane == 0, site);
          if constexpr (kTile.overlap == Overlap::others) hw::wgmma_wait<0>(site);
          if constexpr (Source::kScaled) {
            scales.scores(math.s, scale_place, site);
          } else if constexpr (Source::kFactors) {
            scales.scores(math.s);
          }
          if constexpr (Source::kStagedMasks) {
            p.scores.scale_all(math.s);
            read_mask.wait(site);
            p.scores.add_staged(math.s, L::mask_stage(base, warpgroup), L::kMaskPanel, site);
            hw::fence_proxy_async_shared(site);  // read before the next copy writes
            hw::warp_sync(hw::kFullWarp, site);
            read_mask.release(lane == 0, site);
          } else if constexpr (Source::kGeneral) {
            if (p.scores.given) {
              Work(p, t).template shape<Source::kMasks>(math.s, row, n, site);
            }
          }
          if (keys.masked(n)) hide(math.s, seen, n);
          softmax.template step<L::kInterleaved>(math.s, rescale, site);
          if constexpr (Source::kScaled) {
            scales.weights(math.s, scale_place, site);
            hw::warp_sync(hw::kFullWarp, site);  // all lanes are done before one releases more
            scale_place = (scale_place + 1) % L::kScalePlaces;
          }
        };
        read_q.wait();
        if constexpr (kTile.overlap == Overlap::none) {
          for (uint32_t n = keys.end; n-- > keys.first;) {
            const bool fresh = n + 1 == keys.end;
            math.multiply_keys(read_k.wait());
            hw::wgmma_wait<0>();
            weigh(n);
            if (!fresh) math.rescale(rescale);
            math.round();
            math.multiply_values(read_v.wait(), fresh);
            hw::wgmma_wait<0>();
            hw::hold_registers(math.o);
            release(read_v);
          }
        } else {
          uint32_t n = keys.end - 1;
          const uint32_t last = read_k.wait();
          take_turn();
          math.multiply_keys(last);
          pass_turn();
          hw::wgmma_wait<0>();
          weigh(n);
          math.round();
          bool fresh = true;
          while (n-- > keys.first) {
            const uint32_t stage = read_k.wait();
            take_turn();
            math.multiply_keys(stage);
            math.multiply_values(read_v.wait(), fresh);
            pass_turn();
            hw::wgmma_wait<1>();
            weigh(n);
            if constexpr (kTile.overlap == Overlap::own) {
              // Never: the branch ends a block of instructions. ptxas moves a wait to the top of
              // its block, and the softmax would start when P V is done.
              if (hw::add(softmax.sum[0], softmax.sum[1]) < 0) hw::nanosleep(1);
            }
            hw::wgmma_wait<0>();
            hw::hold_registers(math.o);
            release(read_v);
            fresh = false;
            math.rescale(rescale);
            math.round();
          }
          math.multiply_values(read_v.wait(), fresh);
          hw::wgmma_wait<0>();
          hw::hold_registers(math.o);
          release(read_v);
        }
        if constexpr (Source::kFactors) scales.results(math.o);
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
    if constexpr (L::kStaged) hw::bulk_wait_read<0>();  // the shared memory is given up
    if (warpgroup == 0) take_turn();  // the last pass: the barriers end as they began
  }
};

}  // namespace halftone::attention_sm90
