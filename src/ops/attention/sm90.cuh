// Attention on Hopper for many query rows: O = softmax(scale Q K^T) V.
//
// A block is a loading warp and two or three warpgroups of 64 query rows each. The loading warp
// keeps rings of K and V tiles full by tensor copies; blocks of a cluster have neighbouring rows,
// and each loads its share of the keys for all of them. A warpgroup starts S = Q K^T of a tile on
// the tensor cores, then O += P V of the tile before, and does the softmax of the one while the
// other is computed. The warpgroups take turns at starting, so that the tensor cores work for one
// while another is at its exponentials.
//
// Tiles of keys are walked from the last to the first. S, a row's largest score and its sum are
// f32; P is rounded to the format of V; the divisor is the sum of the P that are not rounded. The
// bits of a row are a function of its query and its keys alone: a tile that a row sees nothing of
// multiplies what it has by exactly 1 and adds exactly 0.
#pragma once
#include "base/launch.h"
#include "hw/cluster.h"
#include "hw/convert.h"
#include "hw/fence.h"
#include "hw/math.h"
#include "hw/memory.h"
#include "hw/mufu.h"
#include "hw/tma.h"
#include "hw/warp.h"
#include "hw/wgmma.h"
#include "ops/attention/key_range.h"
#include "pipe/named_barrier.h"
#include "pipe/ring.h"
#include "pipe/roles.h"
#include "pipe/schedule.h"
#include "tile/shared_tile.h"

namespace halftone::attention_sm90 {

using tile::Major;
using tile::SharedTile;

// One instance. `head_dim` and `value_dim` are the largest: a tensor copy fills what a smaller
// problem lacks with zeros.
struct Tile {
  uint32_t head_dim, value_dim;  // multiples of 64
  uint32_t keys;                 // of a tile of K and V
  uint32_t warpgroups;           // of 64 query rows
  uint32_t cluster;              // blocks
};

struct Params {
  hw::TensorMap q, k, v;  // [batch, length, heads, dim], dim fastest
  uint16_t* out;
  float* lse;                            // [batch, heads, rows], or null
  const float* sinks;                    // [heads], or null
  int64_t out_batch, out_row, out_head;  // strides in elements
  int64_t lse_batch, lse_head, lse_row;
  int64_t sink_stride;
  uint32_t batch, heads, group;  // group: query heads that share a key head
  uint32_t section;              // pairs of head and sequence whose keys share the L2
  uint32_t value_dim;
  KeyRange range;
  float scale_log2;  // softmax scale x log2(e)
};

inline constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

template <hw::Type kType>
HT_DEVICE uint32_t round_pair(float low, float high) {
  if constexpr (kType == hw::Type::bf16) return hw::cvt_bf16x2(low, high);
  return hw::cvt_f16x2(low, high);
}

// Four neighbouring lanes hold a 4 x 4 matrix by columns, afterwards by rows: of a pair of columns
// of each of four fragments, each lane gets all pairs of one, 16 bytes of a row.
HT_DEVICE void transpose_quad(uint32_t (&x)[4], uint32_t quad,
                              hw::Site site = hw::Site::current()) {
  HT_UNROLL
  for (uint32_t bit = 1; bit <= 2; bit *= 2) {
    const bool upper = (quad & bit) != 0;
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      if ((i & bit) != 0) continue;
      const uint32_t got = hw::shuffle_xor(upper ? x[i] : x[i | bit], bit, 4, hw::kFullWarp, site);
      (upper ? x[i] : x[i | bit]) = got;
    }
  }
}

template <hw::Type kType, Tile kTile>
struct Forward {
  using Params = attention_sm90::Params;
  static constexpr uint32_t kHeadDim = kTile.head_dim, kValueDim = kTile.value_dim;
  static constexpr uint32_t kKeys = kTile.keys, kWarpgroups = kTile.warpgroups;
  static constexpr uint32_t kRows = 64 * kWarpgroups, kCluster = kTile.cluster;
  static constexpr uint16_t kAllBlocks = (1 << kCluster) - 1;
  static constexpr uint32_t kWarps = kWarpgroups * 4;
  static constexpr uint32_t kStages = 2;  // of K and of V: one is read while the other is filled
  static constexpr uint32_t kPanel = 64;  // 16-bit elements of a 128-byte line
  static_assert(kHeadDim % kPanel == 0 && kValueDim % kPanel == 0, "whole panels");
  static_assert(kKeys % 16 == 0, "P V takes 16 keys at a time");
  static_assert(kKeys % (8 * kCluster) == 0, "a share starts where the swizzle does");

  enum class Worker { load, multiply };
  // Two warpgroups hold S, P and O of 64 rows each in 240 registers, three in 160.
  static constexpr uint32_t kLoadRegisters = kWarpgroups == 2 ? 24 : 32;
  static constexpr uint32_t kRegisters = kWarpgroups == 2 ? 240 : 160;
  static constexpr pipe::Roles kRoles{
      {{"load", 4, kLoadRegisters}, {"multiply", kWarps, kRegisters}}};
  static constexpr uint32_t kThreads = kRoles.threads(), kMinBlocks = 1;
  enum class Barrier { turn0, turn1, turn2, count };
  static constexpr uint32_t kTurnThreads = 256;  // the warpgroup that waits, and the one before

  HT_HOST_DEVICE static SharedTile q_tile() {
    return {Major::k, tile::Swizzle::b128, 16, kRows, kHeadDim};
  }
  HT_HOST_DEVICE static SharedTile k_tile() {
    return {Major::k, tile::Swizzle::b128, 16, kKeys, kHeadDim};
  }
  HT_HOST_DEVICE static SharedTile v_tile() {
    return {Major::mn, tile::Swizzle::b128, 16, kValueDim, kKeys};
  }
  static constexpr uint32_t kQBytes = kRows * kHeadDim * 2;
  static constexpr uint32_t kKBytes = kKeys * kHeadDim * 2, kVBytes = kKeys * kValueDim * 2;

  static constexpr hw::Scope kScope = kCluster > 1 ? hw::Scope::cluster : hw::Scope::cta;
  using QRing = pipe::Ring<1, kQBytes>;
  using KRing = pipe::Ring<kStages, kKBytes, kScope>;
  using VRing = pipe::Ring<kStages, kVBytes, kScope>;
  struct Rings {
    QRing q;
    KRing k;
    VRing v;
  };
  static constexpr uint32_t kK = kQBytes, kV = kK + kStages * kKBytes;
  static constexpr uint32_t kQBarriers = kV + kStages * kVBytes;
  static constexpr uint32_t kKBarriers = kQBarriers + QRing::kSharedBytes;
  static constexpr uint32_t kVBarriers = kKBarriers + KRing::kSharedBytes;
  static constexpr uint32_t kSharedBytes = kVBarriers + VRing::kSharedBytes;
  static_assert(kSharedBytes <= 227 * 1024, "a block of Hopper has 227 KB");

  using Schedule = pipe::PairedSchedule;
  HT_HOST_DEVICE static pipe::AttentionGrid tiles(const Params& p) {
    const uint32_t rows = kRows * kCluster, queries = static_cast<uint32_t>(p.range.queries);
    return {(queries + rows - 1) / rows, p.heads, p.batch, false, p.section};
  }
  static LaunchShape shape(const Params& p, uint32_t multiprocessors) {
    const uint32_t fit = multiprocessors / kCluster, wanted = Schedule::items(tiles(p));
    return {.grid = {(wanted < fit ? wanted : fit) * kCluster, 1, 1},
            .block = {kThreads, 1, 1},
            .cluster = {kCluster, 1, 1},
            .shared_bytes = kSharedBytes};
  }
  HT_DEVICE static uint32_t block_rank() {
    if constexpr (kCluster > 1) return hw::cluster_rank();
    return 0;
  }
  // What all blocks of the cluster walk over.
  HT_DEVICE static KeyTiles key_tiles(const Params& p, const pipe::AttentionTile& t) {
    constexpr int32_t kAll = static_cast<int32_t>(kRows * kCluster);
    return p.range.tiles(static_cast<int32_t>(t.query) * kAll, kAll, static_cast<int32_t>(kKeys));
  }

  HT_DEVICE static void run(const Params& p) {
    const hw::SharedAddress base = hw::shared_memory_base();
    const Rings rings{{base + kQBarriers}, {base + kKBarriers}, {base + kVBarriers}};
    if (hw::thread_index().x == 0) {
      rings.q.init(1, kWarps);
      rings.k.init(1, kCluster * kWarps);
      rings.v.init(1, kCluster * kWarps);
      rings.q.name("q full", "q empty");
      rings.k.name("k full", "k empty");
      rings.v.name("v full", "v empty");
      hw::fence_mbarrier_init();
    }
    if constexpr (kCluster > 1) {
      hw::cluster_arrive();
      hw::cluster_wait();
    } else {
      hw::barrier_sync();
    }
    // Both roles walk the same tiles, each by itself.
    const Schedule schedule(hw::block_index().x / kCluster, hw::grid_size().x / kCluster);
    if (pipe::enter<kRoles, Worker::load>()) {
      if (hw::thread_index().x == 0) load(p, rings, base, schedule);
    } else if (pipe::enter<kRoles, Worker::multiply>()) {
      multiply(p, rings, base, schedule);
    }
  }

  // Starts the copies of tile n of K or V: this block's share of the keys, to every block.
  template <class Producer>
  HT_DEVICE static void load_keys(Producer& fill, const hw::TensorMap* map, hw::SharedAddress to,
                                  const SharedTile& tile, int32_t head, uint32_t n, int32_t batch,
                                  hw::Site site = hw::Site::current()) {
    constexpr uint32_t kShare = kKeys / kCluster;
    const uint32_t first = block_rank() * kShare;
    const pipe::Slot slot = fill.acquire(site);
    to = to + (slot.stage * tile.bytes() + first * kPanel * 2);
    HT_UNROLL
    for (uint32_t panel = 0; panel < tile.panels(); ++panel) {
      const int32_t at[4] = {static_cast<int32_t>(panel * kPanel), head,
                             static_cast<int32_t>(n * kKeys + first), batch};
      if constexpr (kCluster > 1) {
        hw::tensor_load_multicast(to + panel * tile.panel_bytes(), map, at, slot.full, kAllBlocks,
                                  site);
      } else {
        hw::tensor_load(to + panel * tile.panel_bytes(), map, at, slot.full, site);
      }
    }
  }

  HT_DEVICE static void load(const Params& p, const Rings& rings, hw::SharedAddress base,
                             Schedule schedule) {
    auto fill_q = rings.q.producer();
    auto fill_k = rings.k.producer();
    auto fill_v = rings.v.producer();
    for (pipe::AttentionTile t; schedule.next(tiles(p), t);) {
      const KeyTiles keys = key_tiles(p, t);
      if (keys.none()) continue;
      const int32_t head = static_cast<int32_t>(t.head / p.group);
      const int32_t batch = static_cast<int32_t>(t.sequence);
      load_keys(fill_k, &p.k, base + kK, k_tile(), head, keys.end - 1, batch);
      const pipe::Slot q = fill_q.acquire();
      HT_UNROLL
      for (uint32_t panel = 0; panel < q_tile().panels(); ++panel) {
        hw::tensor_load(base + panel * q_tile().panel_bytes(), &p.q,
                        {static_cast<int32_t>(panel * kPanel), static_cast<int32_t>(t.head),
                         static_cast<int32_t>((t.query * kCluster + block_rank()) * kRows), batch},
                        q.full);
      }
      for (uint32_t n = keys.end; n-- > keys.first;) {
        if (n > keys.first) load_keys(fill_k, &p.k, base + kK, k_tile(), head, n - 1, batch);
        load_keys(fill_v, &p.v, base + kV, v_tile(), head, n, batch);
      }
    }
    fill_q.drain();
    fill_k.drain();
    fill_v.drain();
  }

  // A thread's part of its warp's 16 rows: row lane / 4 and the one 8 further.
  struct Softmax {
    float scale;     // softmax scale x log2(e), positive
    float shift[2];  // -scale x largest score so far, what P is relative to; +inf before any key
    float sum[2];    // of this thread's P

    HT_DEVICE explicit Softmax(float scale_log2) : scale(scale_log2) {
      shift[0] = shift[1] = __builtin_huge_valf();
      sum[0] = sum[1] = 0;
    }
    // The scores become P. `rescale`: what O, as the sum, is to be multiplied by.
    template <uint32_t kCount>
    HT_DEVICE void step(float (&s)[kCount], float (&rescale)[2],
                        hw::Site site = hw::Site::current()) {
      HT_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        float top = hw::max(s[2 * half], s[2 * half + 1]);
        HT_UNROLL
        for (uint32_t j = 4 + 2 * half; j < kCount; j += 4) {
          top = hw::max(top, hw::max(s[j], s[j + 1]));
        }
        top = hw::max(top, hw::shuffle_xor(top, 1, 4, hw::kFullWarp, site));
        top = hw::max(top, hw::shuffle_xor(top, 2, 4, hw::kFullWarp, site));
        const float before = shift[half];
        shift[half] = hw::min(before, -hw::mul(top, scale));
        // A row that has seen no key yet is relative to 0: its P are exp(-inf) = 0.
        const float now = shift[half] == __builtin_huge_valf() ? 0 : shift[half];
        rescale[half] = hw::ex2_approx_ftz(hw::add(now, -before));
        float part = 0;
        HT_UNROLL
        for (uint32_t j = 2 * half; j < kCount; j += 4) {
          HT_UNROLL
          for (uint32_t i = j; i < j + 2; ++i) {
            s[i] = hw::ex2_approx_ftz(hw::fma(s[i], scale, now));
            part = hw::add(part, s[i]);
          }
        }
        sum[half] = hw::fma(sum[half], rescale[half], part);
      }
    }
  };

  // One warpgroup's operands and accumulators.
  struct Math {
    hw::SharedAddress base;
    tile::WgmmaDescriptor q;
    float s[kKeys / 2], o[kValueDim / 2];
    uint32_t p[kKeys / 16][4];

    HT_DEVICE Math(hw::SharedAddress memory, uint32_t warpgroup)
        : base(memory),
          q(tile::WgmmaDescriptor::of(q_tile(), memory.value)
                .advanced(q_tile().advance(warpgroup * 64, 0))) {}
    // Starts S = Q K^T with the K of a stage, as one group.
    HT_DEVICE void multiply_keys(uint32_t stage, hw::Site site = hw::Site::current()) {
      const auto k = tile::WgmmaDescriptor::of(k_tile(), (base + (kK + stage * kKBytes)).value);
      hw::wgmma_fence(site);
      HT_UNROLL
      for (uint32_t d = 0; d < kHeadDim; d += 16) {
        hw::wgmma<kType>(s, q.advanced(q_tile().advance(0, d)), k.advanced(k_tile().advance(0, d)),
                         d > 0, site);
      }
      hw::wgmma_commit(site);
    }
    // Starts O += P V with the V of a stage; `fresh`: O = P V.
    HT_DEVICE void multiply_values(uint32_t stage, bool fresh,
                                   hw::Site site = hw::Site::current()) {
      const auto v = tile::WgmmaDescriptor::of(v_tile(), (base + (kV + stage * kVBytes)).value);
      hw::wgmma_fence(site);
      HT_UNROLL
      for (uint32_t k = 0; k < kKeys / 16; ++k) {
        hw::wgmma<kType, kType, Major::mn>(o, p[k], v.advanced(v_tile().advance(0, k * 16)),
                                           !fresh || k > 0, site);
      }
      hw::wgmma_commit(site);
    }
    // The accumulator of two neighbouring fragments is the operand of the next product.
    HT_DEVICE void round() {
      HT_UNROLL
      for (uint32_t i = 0; i < kKeys / 4; ++i) {
        p[i / 4][i % 4] = round_pair<kType>(s[2 * i], s[2 * i + 1]);
      }
    }
    // Keys that a row does not see get the score -inf.
    HT_DEVICE void hide(const KeyInterval (&seen)[2], uint32_t n) {
      const int32_t column = static_cast<int32_t>(n * kKeys + hw::lane_index() % 4 * 2);
      HT_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        const int32_t first = seen[half].first - column, end = seen[half].end - column;
        HT_UNROLL
        for (uint32_t j = 0; j < kKeys / 4; ++j) {
          const int32_t key = static_cast<int32_t>(8 * (j / 2) + j % 2);
          float& score = s[4 * (j / 2) + 2 * half + j % 2];
          if (key < first || key >= end) score = -__builtin_huge_valf();
        }
      }
    }
  };

  HT_DEVICE static void multiply(const Params& p, const Rings& rings, hw::SharedAddress base,
                                 Schedule schedule) {
    const uint32_t warpgroup = hw::warp_index() / 4 - 1, lane = hw::lane_index();
    const uint32_t warp_row = warpgroup * 64 + hw::warp_index() % 4 * 16 + lane / 4;
    auto read_q = rings.q.consumer();
    auto read_k = rings.k.consumer();
    auto read_v = rings.v.consumer();
    const auto release = [&](auto& read, hw::Site site = hw::Site::current()) {
      if constexpr (kCluster > 1) {
        read.release_to(lane, lane < kCluster, site);
      } else {
        read.release(lane == 0, site);
      }
    };
    const auto take_turn = [&](hw::Site site = hw::Site::current()) {
      pipe::sync<Barrier::turn0, Barrier::turn2>(warpgroup, kTurnThreads, site);
    };
    const auto pass_turn = [&](hw::Site site = hw::Site::current()) {
      const uint32_t next = warpgroup + 1 == kWarpgroups ? 0 : warpgroup + 1;
      pipe::arrive<Barrier::turn0, Barrier::turn2>(next, kTurnThreads, site);
    };
    if (warpgroup + 1 == kWarpgroups) pass_turn();

    Math math(base, warpgroup);
    for (pipe::AttentionTile t; schedule.next(tiles(p), t);) {
      const int32_t row =
          static_cast<int32_t>((t.query * kCluster + block_rank()) * kRows + warp_row);
      const KeyTiles keys = key_tiles(p, t);
      const KeyInterval seen[2] = {p.range.keys(row), p.range.keys(row + 8)};
      Softmax softmax(p.scale_log2);
      if (!keys.none()) {
        float rescale[2];
        // After S of tile n: the softmax, once K is given back, and Q with the last tile.
        const auto weigh = [&](uint32_t n, hw::Site site = hw::Site::current()) {
          hw::hold_registers(math.s);
          release(read_k, site);
          if (n == keys.first) read_q.release(lane == 0, site);
          if (keys.masked(n)) math.hide(seen, n);
          softmax.step(math.s, rescale, site);
        };
        uint32_t n = keys.end - 1;
        read_q.wait();
        uint32_t stage = read_k.wait();
        take_turn();
        math.multiply_keys(stage);
        pass_turn();
        hw::wgmma_wait<0>();
        weigh(n);
        math.round();
        bool fresh = true;
        while (n-- > keys.first) {
          stage = read_k.wait();
          take_turn();
          math.multiply_keys(stage);
          math.multiply_values(read_v.wait(), fresh);
          pass_turn();
          hw::wgmma_wait<1>();
          weigh(n);
          hw::wgmma_wait<0>();
          hw::hold_registers(math.o);
          release(read_v);
          fresh = false;
          HT_UNROLL
          for (uint32_t j = 0; j < kValueDim / 2; ++j) {
            math.o[j] = hw::mul(math.o[j], rescale[j / 2 % 2]);
          }
          math.round();
        }
        math.multiply_values(read_v.wait(), fresh);
        hw::wgmma_wait<0>();
        hw::hold_registers(math.o);
        release(read_v);
      }
      store(p, t, row, keys.none(), softmax, math.o);
    }
    if (warpgroup == 0) take_turn();  // the last pass: the barriers end as they began
  }

  // Divides by the sum and writes the rows that exist.
  HT_DEVICE static void store(const Params& p, const pipe::AttentionTile& t, int32_t first_row,
                              bool none, const Softmax& softmax, const float (&o)[kValueDim / 2]) {
    const uint32_t quad = hw::lane_index() % 4;
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      const int32_t row = first_row + 8 * static_cast<int32_t>(half);
      float sum = softmax.sum[half];
      sum = hw::add(sum, hw::shuffle_xor(sum, 1, 4));
      sum = hw::add(sum, hw::shuffle_xor(sum, 2, 4));
      const bool empty = none || sum == 0;
      // The divisor is sum x 2^level; a sink joins it as one more key, of value 0.
      float level = empty ? -__builtin_huge_valf() : -softmax.shift[half];
      float factor = 1;
      if (p.sinks != nullptr) {
        const float sink =
            hw::mul(hw::load_global<float>(p.sinks + t.head * p.sink_stride), kLog2e);
        const float top = hw::max(level, sink);
        factor = empty ? 0 : hw::ex2_approx_ftz(hw::add(level, -top));
        sum = hw::add(empty ? 0 : hw::mul(sum, factor), hw::ex2_approx_ftz(hw::add(sink, -top)));
        level = top;
      }
      const float inverse = empty ? 0 : factor / sum;
      const bool exists = row < p.range.queries;
      if (p.lse != nullptr && exists && quad == 0) {
        const float lse = hw::mul(hw::add(level, hw::lg2_approx(sum)), kLn2);
        hw::store_global(p.lse + t.sequence * p.lse_batch + t.head * p.lse_head + row * p.lse_row,
                         empty && p.sinks == nullptr ? -__builtin_huge_valf() : lse);
      }
      uint16_t* out = p.out + t.sequence * p.out_batch + row * p.out_row + t.head * p.out_head;
      HT_UNROLL
      for (uint32_t j = 0; j < kValueDim / 8; j += 4) {
        uint32_t part[4];
        HT_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
          const float* pair = o + 4 * (j + i) + 2 * half;
          part[i] =
              empty ? 0 : round_pair<kType>(hw::mul(pair[0], inverse), hw::mul(pair[1], inverse));
        }
        transpose_quad(part, quad);
        const uint32_t column = 8 * (j + quad);
        if (exists && column < p.value_dim) {
          hw::store_global(reinterpret_cast<hw::Words4*>(out + column),
                           hw::Words4{{part[0], part[1], part[2], part[3]}});
        }
      }
    }
  }
};

}  // namespace halftone::attention_sm90
