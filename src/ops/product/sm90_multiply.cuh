// y = x W^T on Hopper's wgmma, for many rows of x. The weights are the rows of the MMA, as in the
// product of every GPU (gpu_multiply.cuh): weights of few bits become its A operand in registers,
// and never pass through shared memory as bf16; x is its B operand, read from shared memory.
//
// Blocks stay on the chip and walk over tiles of 128 rows of W by kColumns rows of x. A warp starts
// the copies of both, three more make what multiplies codes or sums, two warpgroups multiply. Where
// tiles are few, the blocks of a cluster share K.
//
// Of experts a list in device memory says whose matrix is multiplied by which rows of x, which lie
// by expert: a tile has rows of one part of the list, and only those are loaded.
//
// Sums: one chain of MMAs over K, 16 elements each; with scales of groups, one for every group, at
// least 64 elements, which the scales multiply on its way to an f32 sum. Parts of K are added in
// their order. So the bits of an output are a function of its rows of W and x, the format and the
// number of parts.
#pragma once
#include "base/launch.h"
#include "hw/griddep.h"
#include "hw/tma.h"
#include "ops/product/sm90_finish.cuh"
#include "ops/product/sm90_operand.cuh"
#include "ops/product/sm90_tables.cuh"
#include "pipe/roles.h"
#include "pipe/schedule.h"

namespace halftone::product {

template <GpuCode kCode, Sm90Scales kScales, uint32_t kTileColumns,
          tile::Major kMajorW = tile::Major::k>
struct Sm90Multiply : Sm90Stages<kCode, kScales, kTileColumns> {
  using Params = Sm90Params;
  using Stages = Sm90Stages<kCode, kScales, kTileColumns>;
  using Tables = Sm90Tables<kCode, kScales, kTileColumns>;
  using Operand = Sm90Operand<kCode, kScales, kTileColumns>;
  using Finish = Sm90Finish<Stages>;
  using Tile = typename Stages::Tile;
  using Fragment = typename Operand::Fragment;
  using Schedule = pipe::PersistentSchedule<pipe::ProductGrid>;
  static constexpr uint32_t kColumns = kTileColumns, kXSteps = Stages::kXSteps;
  static constexpr uint32_t kPair = kXSteps < 2 ? 1 : 2;
  static constexpr bool kExpands = Stages::kExpands, kTables = Stages::kSlots > 0;
  static constexpr bool kSums = Stages::kSums;

  enum class Worker { load, multiply };
  // Warps that decode scales need more registers than one thread that starts copies.
  static constexpr uint32_t kMinBlocks = Stages::kBlocks;
  static constexpr uint32_t kMultiply = kMinBlocks == 1 ? (kTables ? 224 : 232) : kTables ? 88 : 96;
  static constexpr pipe::Roles kRoles{{{"load", 4, kTables ? 56 : 40}, {"multiply", 8, kMultiply}}};
  static constexpr uint32_t kThreads = kRoles.threads();
  static constexpr uint32_t kMultipliers = 8;  // warps
  static constexpr uint32_t kSharedBytes = Stages::kSharedBytes;

  // Of `parts` parts of experts; without experts of all rows of x.
  HT_HOST_DEVICE static pipe::ProductGrid tiles(const Params& params, uint32_t parts) {
    const GpuProduct& p = params.product;
    const uint32_t rows = p.finish.gate ? Stages::kRows / 2 : Stages::kRows;
    const uint32_t columns = params.parts > 0 ? parts : (p.m + kColumns - 1) / kColumns;
    // As many rows of W as of x in work at a time.
    return {(p.n + rows - 1) / rows, columns, 1, kColumns / 16};
  }
  static LaunchShape shape(const Params& p, uint32_t multiprocessors) {
    const uint32_t wanted = tiles(p, p.parts).count(), fit = multiprocessors * kMinBlocks / p.split;
    // Blocks that share K have one tile: its sums take the place of the stages.
    return {.grid = {(wanted < fit || p.split > 1 ? wanted : fit) * p.split, 1, 1},
            .block = {kThreads, 1, 1},
            .cluster = {p.split, 1, 1},
            .shared_bytes = kSharedBytes};
  }

  // The stages of W along K that this block multiplies.
  struct Range {
    uint32_t begin, end;
    HT_DEVICE explicit Range(const Params& p) {
      const uint32_t steps = (p.product.k + Stages::kDepth - 1) / Stages::kDepth;
      const uint32_t rank = p.split > 1 ? hw::cluster_rank() : 0;
      begin = steps * rank / p.split, end = steps * (rank + 1) / p.split;
    }
  };
  HT_DEVICE static Tile tile_of(const Params& params, const pipe::ProductTile& t) {
    const GpuProduct& p = params.product;
    const bool gate = p.finish.gate;
    const uint32_t n0 = t.m * (gate ? Stages::kRows / 2 : Stages::kRows), m0 = t.n * kColumns;
    if (params.parts == 0) return {{p.source[0], p.source[1]}, n0, m0, p.m, 0, gate};
    const auto part = hw::load_global(p.parts + t.n);
    const GpuSource* source = p.experts + part.expert * p.expert_step;
    const auto first = static_cast<uint32_t>(part.first);
    return {{load_source(source), load_source(source + (gate ? 1 : 0))},
            n0,
            first,
            first + static_cast<uint32_t>(part.count),
            static_cast<uint32_t>(part.expert),
            gate};
  }

  struct Rings {
    typename Stages::Ring w;
    typename Stages::XRing x;
  };

  HT_DEVICE static void run(const Params& p) {
    const hw::SharedAddress base = hw::shared_memory_base();
    const Rings rings{{base + Stages::kBarriers}, {base + Stages::kXBarriers}};
    if (hw::thread_index().x == 0) {
      rings.w.init(kTables ? 2 : 1, kMultipliers);  // of a table, the warp that made it
      rings.x.init(1, kMultipliers);
      rings.w.name("w full", "w empty");
      hw::fence_mbarrier_init();
    }
    if (p.x_rows < kColumns) clear_x(base);
    hw::take_turns();
    hw::barrier_sync();
    const uint32_t parts = p.parts > 0 ? hw::load_global(p.product.part_count) : 0;
    const Schedule schedule(tiles(p, parts), hw::block_index().x / p.split,
                            hw::grid_size().x / p.split);
    if (pipe::enter<kRoles, Worker::load, kMinBlocks>()) {
      const uint32_t warp = hw::warp_index();
      if (warp == 0 && hw::lane_index() == 0) load(p, rings, base, schedule);
      if constexpr (kTables) {
        if (warp > 0) make_tables(p, rings, base, schedule, warp - 1);
      }
      if (p.split == 1) return;
      hw::warp_sync();
      hw::cluster_arrive();
      hw::cluster_wait();
    } else if (pipe::enter<kRoles, Worker::multiply, kMinBlocks>()) {
      multiply(p, rings, base, schedule);
    }
    if (p.split == 1) return;
    // No block ends while another reads its sums.
    hw::cluster_arrive();
    hw::cluster_wait();
  }

  // Columns that a part does not have are multiplied too: by zeros, or by what was there before.
  HT_DEVICE static void clear_x(hw::SharedAddress base) {
    for (uint32_t i = hw::thread_index().x * 16; i < Stages::kXStages * Stages::kXBytes;
         i += kThreads * 16) {
      hw::store_shared(base + (Stages::kX + i), hw::Words4{});
    }
    hw::fence_proxy_async_shared();
  }

  // One stage of W; `matrix`: where the rows of the gate and of its other half begin.
  HT_DEVICE static void load_weights(const Params& p, const Tile& tile, const int32_t (&matrix)[2],
                                     uint32_t step, hw::SharedAddress to, hw::Mbarrier full) {
    if constexpr (kMajorW == tile::Major::mn) {
      const auto n = static_cast<int32_t>(2 * tile.n0);  // bytes
      const auto k = static_cast<int32_t>(step * Stages::kDepth);
      hw::tensor_load(to, &p.w, {n, k}, full);
      hw::tensor_load(to + Stages::kBytes / 2, &p.w, {n + 128, k}, full);
    } else {
      const auto byte = static_cast<int32_t>(step * Stages::kLine);
      for (uint32_t r = 0; r < Stages::kRows; r += p.w_rows) {
        hw::tensor_load(to + r * Stages::kLine, &p.w,
                        {byte, static_cast<int32_t>(tile.output(r)),
                         tile.half_of(r) == 0 ? matrix[0] : matrix[1]},
                        full);
      }
    }
  }

  HT_DEVICE static void load(const Params& p, const Rings& rings, hw::SharedAddress base,
                             Schedule schedule) {
    const Range range(p);
    auto fill = rings.w.producer();
    auto fill_x = rings.x.producer();
    for (pipe::ProductTile t; schedule.next(t);) {
      const Tile tile = tile_of(p, t);
      int32_t matrix[2];
      HT_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        const uint8_t* at = row_address(p.product.weight, tile.source[half], 0);
        matrix[half] = static_cast<int32_t>((at - p.w_first) >> p.w_shift);
      }
      const uint32_t copies = (tile.end - tile.m0 + p.x_rows - 1) / p.x_rows;
      const uint32_t columns = copies < kColumns / p.x_rows ? copies * p.x_rows : kColumns;
      for (uint32_t step = range.begin; step < range.end; ++step) {
        const pipe::Slot slot = fill.acquire();
        const hw::SharedAddress to = base + slot.stage * Stages::kBytes;
        load_weights(p, tile, matrix, step, to, slot.full);
        for (uint32_t i = 0; i < kXSteps; ++i) {
          const pipe::Slot x = fill_x.wait();
          hw::mbarrier_arrive_expect_tx(x.full, columns * Stages::kLine);
          const hw::SharedAddress x_to = base + (Stages::kX + x.stage * Stages::kXBytes);
          const uint32_t k = step * Stages::kDepth + i * Stages::kXDepth;
          for (uint32_t c = 0; c < columns; c += p.x_rows) {
            hw::tensor_load(x_to + c * Stages::kLine, &p.x,
                            {static_cast<int32_t>(k), static_cast<int32_t>(tile.m0 + c)}, x.full);
          }
        }
      }
    }
  }

  HT_DEVICE static void make_tables(const Params& p, const Rings& rings, hw::SharedAddress base,
                                    Schedule schedule, uint32_t turn) {
    const Range range(p);
    auto fill = rings.w.producer();
    uint32_t count = 0;
    for (pipe::ProductTile t; schedule.next(t);) {
      const Tile tile = tile_of(p, t);
      typename Tables::Rows rows;
      if constexpr (kSums) rows = Tables::rows_of(p.product, tile);
      for (uint32_t step = range.begin; step < range.end; ++step, ++count) {
        const bool mine = count % Tables::kWarps == turn;
        typename Tables::Bytes bytes;
        if constexpr (!kSums) {
          if (mine) Tables::load(p.product, tile, step * Stages::kDepth, bytes);
        }
        // Also the stages of others: a phase that is not waited for cannot be told from the next.
        const pipe::Slot slot = fill.wait();
        if (!mine) continue;
        const hw::SharedAddress table = base + (Stages::kTables + slot.stage * Stages::kTable);
        if constexpr (kSums) {
          Tables::store_sums(p.product, rows, step * Stages::kDepth, table);
        } else {
          Tables::store(bytes, table);
        }
        hw::warp_sync();
        if (hw::lane_index() == 0) fill.commit(slot);
      }
    }
  }

  // What a warpgroup adds up: one chain of MMAs, or chains that join a sum.
  struct Sums {
    float chain[kColumns / 2];
    float total[kSums ? kColumns / 2 : 1];
  };

  // Starts adding the elements of K of one step of x.
  HT_DEVICE static void start(float (&sum)[kColumns / 2], hw::SharedAddress w, hw::SharedAddress x,
                              Fragment& a, bool fresh, hw::Site site = hw::Site::current()) {
    constexpr uint32_t kDepth = Stages::kXDepth, kBits = Stages::kLine * 8 / kDepth;
    constexpr hw::Type kType = Stages::kFp8 ? hw::Type::e4m3 : Stages::Policy::kType;
    constexpr tile::SharedTile x_tile{tile::Major::k, tile::Swizzle::b128, kBits, kColumns, kDepth};
    constexpr tile::SharedTile w_tile{kMajorW, tile::Swizzle::b128, kBits, 64, kDepth};
    static_assert(x_tile.valid() && w_tile.valid());
    const auto x_start = tile::WgmmaDescriptor::of(x_tile, x.value);
    const auto w_start = tile::WgmmaDescriptor::of(w_tile, w.value);
    if constexpr (kExpands) {
      HT_UNROLL
      for (uint32_t j = 0; j < 4; ++j) hw::hold_registers(a.step[j], site);
    }
    hw::wgmma_fence(site);
    HT_UNROLL
    for (uint32_t j = 0; j < 4; ++j) {
      const uint32_t k = j * kDepth / 4;
      const auto b = x_start.advanced(x_tile.advance(0, k));
      if constexpr (kExpands) {
        hw::wgmma<kType>(sum, a.step[j], b, !fresh || j > 0, site);
      } else {
        hw::wgmma<kType, kType, kMajorW>(sum, w_start.advanced(w_tile.advance(0, k)), b,
                                         !fresh || j > 0, site);
      }
    }
    hw::wgmma_commit(site);
  }

  // The chain times the scales of its group joins the sum.
  HT_DEVICE static void join(const GpuProduct& p, hw::SharedAddress table, const Operand& at,
                             uint32_t x_step, Sums& s, hw::Site site = hw::Site::current()) {
    float w[2];
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      w[half] = hw::load_shared<float>(
          table + ((at.row + 8 * half) * Stages::kTableRow + x_step * 4), site);
    }
    HT_UNROLL
    for (uint32_t j = 0; j < kColumns / 8; ++j) {
      hw::Vector<float, 2> x{{1, 1}};
      if (p.x_scales != nullptr) {
        x = hw::load_shared<hw::Vector<float, 2>>(
            table + (Stages::kXScales + (x_step * kColumns + j * 8 + at.quad * 2) * 4), site);
      }
      HT_UNROLL
      for (uint32_t e = 0; e < 4; ++e) {
        s.total[j * 4 + e] = hw::fma(s.chain[j * 4 + e], w[e / 2] * x[e % 2], s.total[j * 4 + e]);
      }
    }
  }

  HT_DEVICE static void multiply(const Params& p, const Rings& rings, hw::SharedAddress base,
                                 Schedule schedule) {
    const Range range(p);
    const uint32_t group = hw::warp_index() / 4 - 1;
    const bool first_lane = hw::lane_index() == 0;
    const Operand operand(group * 64 + hw::warp_index() % 4 * 16);
    const Finish finish(p, base);
    auto read = rings.w.consumer();
    auto read_x = rings.x.consumer();
    Sums sums;
    Fragment a[2] = {};
    for (pipe::ProductTile t; schedule.next(t);) {
      bool fresh = true, running = false;
      if constexpr (kSums) {
        HT_UNROLL
        for (uint32_t i = 0; i < kColumns / 2; ++i) sums.total[i] = 0;
      }
      // What one group of wgmma has read is given back when it has ended.
      const auto release = [&] {
        read_x.release(first_lane);
        if constexpr (!kExpands) read.release(first_lane);
      };
      for (uint32_t step = range.begin; step < range.end; ++step) {
        const uint32_t stage = read.wait();
        const hw::SharedAddress w = base + stage * Stages::kBytes;
        const hw::SharedAddress table = base + (Stages::kTables + stage * Stages::kTable);
        // Two sets of registers: one is filled while the tensor cores read the other.
        HT_ROLLED
        for (uint32_t pair = 0; pair < kXSteps; pair += kPair) {
          HT_UNROLL
          for (uint32_t f = 0; f < kPair; ++f) {
            const uint32_t i = pair + f;
            if constexpr (kExpands) operand.expand(w, table, i, a[f]);
            const hw::SharedAddress x = base + (Stages::kX + read_x.wait() * Stages::kXBytes);
            start(sums.chain, w + group * 64 * Stages::kLine, x, a[f], fresh);
            if (running) {
              hw::wgmma_wait<1>();
              release();
            }
            if constexpr (kExpands) {
              HT_UNROLL
              for (uint32_t j = 0; j < 4; ++j) hw::hold_registers(a[1 - f].step[j]);
            }
            fresh = false, running = true;
            if constexpr (kSums) {
              const uint32_t chunk = (step * kXSteps + i + 1) * (Stages::kXDepth / 32);
              const bool last = step + 1 == range.end && i + 1 == kXSteps;
              if (last || Stages::kFp8 || (p.product.period > 0 && chunk % p.product.period == 0)) {
                hw::wgmma_wait<0>();
                hw::hold_registers(sums.chain);
                release();
                join(p.product, table, operand, i, sums);
                fresh = true, running = false;
              }
            }
          }
        }
        if constexpr (kExpands) {
          hw::fence_proxy_async_shared();  // codes were read by loads, copies take their place
          hw::warp_sync();
          read.release(first_lane);
        }
      }
      if constexpr (!kSums) {
        hw::wgmma_wait<0>();
        hw::hold_registers(sums.chain);
        if (running) release();
      }
      const Tile tile = tile_of(p, t);
      const auto end = [&](const float(&values)[kColumns / 2]) {
        if constexpr (Stages::kCanSplit) {
          if (p.split > 1) return finish.split_tile(tile, values);
        }
        finish.tile(tile, values);
      };
      if constexpr (kSums) {
        end(sums.total);
      } else {
        end(sums.chain);
      }
    }
    finish.drain();
  }
};

}  // namespace halftone::product
