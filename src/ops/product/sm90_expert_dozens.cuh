// Up to some dozens of rows of x for each expert times its W in few bits on Hopper
// (sm90_dozens_multiply.cuh), the experts and their rows known on the device alone.
//
// Blocks stay. Each takes a run of the tiles of all parts on the list, one part after the other; a
// lane copies stages of W and x, of one tile after the other, and a warp their scales, while eight
// warps multiply. Those that share the K of a tile add their sums in shared memory.
#pragma once
#include "hw/cp_async.h"
#include "hw/griddep.h"
#include "ops/product/sm90_dozens_multiply.cuh"
#include "ops/product/sm90_expert_dozens.h"
#include "ops/product/sm90_tile_run.cuh"
#include "pipe/named_barrier.h"
#include "pipe/uniform.h"

namespace halftone::product {

template <GpuCode kCode, Sm90Scales kScales, uint32_t kTiles>
struct Sm90ExpertDozens {
  using Params = Sm90ExpertDozensParams;
  using Stages = Sm90ExpertDozensStages<kCode, kScales, kTiles>;
  using Multiply = Sm90DozensMultiply<kCode, kScales, kTiles, true>;
  using Ring = typename Stages::Ring;
  static constexpr uint32_t kThreads = Stages::kThreads, kMinBlocks = Stages::kMinBlocks;
  static constexpr uint32_t kWarps = Stages::kWarps;
  enum class Barrier { multipliers, count };

  HT_DEVICE static void sync(hw::Site site = hw::Site::current()) {
    pipe::sync<Barrier::multipliers>(kWarps * 32, site);
  }
  HT_DEVICE static Sm90Tile tile_of(const Params& params, const Sm90Part& part, uint32_t tile) {
    const auto first = static_cast<uint32_t>(part.rows.first);
    const bool gate = params.product.finish.gate;
    return {{part.source[0], part.source[1]},
            tile * (gate ? kSm90Rows / 2 : kSm90Rows),
            first,
            first + static_cast<uint32_t>(part.rows.count),
            static_cast<uint32_t>(part.rows.expert),
            gate};
  }

  // The stages that a block copies, one after the other.
  struct Copies {
    const Params& params;
    hw::SharedAddress base;
    Sm90TileRun run;
    int32_t expert_rows = 0, matrix[2] = {};  // where x begins, and where W
    const uint8_t* scales_at[2] = {};
    hw::CachePolicy policy = hw::kEvictFirst;
    uint32_t step = 0;

    HT_DEVICE Copies(const Params& all, hw::SharedAddress shared)
        : params(all), base(shared), run(all.product, all.tiles) {
      enter();
    }
    HT_DEVICE void enter() {
      if (run.left == 0 || !run.entered) return;
      const GpuLayout& weight = params.product.weight;
      Sm90Part part;
      part.load(params.product, run.part);
      expert_rows = part.rows.first;
      HT_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        matrix[half] = part.matrix(weight, half, params.w_first, params.w_shift);
        if constexpr (Stages::kCopied) {
          scales_at[half] = scale_address(weight, part.source[half], 0, 0);
        }
      }
      policy = part.weight_policy(params.product);
    }
    HT_DEVICE bool any() const { return run.left > 0; }
    HT_DEVICE void next() {
      if (++step < params.steps) return;
      step = 0;
      run.next();
      enter();
    }
    // Of 32 rows of the tile: the first output, and whether they are the other half of a gate.
    HT_DEVICE uint32_t output(uint32_t run32) const {
      return params.product.finish.gate ? run.tile * 64 + run32 / 2 * 32
                                        : run.tile * 128 + run32 * 32;
    }
    HT_DEVICE bool other(uint32_t run32) const {
      return params.product.finish.gate && run32 % 2 == 1;
    }

    // By one lane.
    HT_DEVICE void weights(const pipe::Slot& slot) const {
      const hw::SharedAddress to = base + slot.stage * Stages::kBytes;
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        HT_UNROLL
        for (uint32_t line = 0; line < Stages::kLines; ++line) {
          hw::tensor_load(to + (i * Stages::kRun + line * 32 * Stages::kLine), &params.w,
                          {static_cast<int32_t>((step * Stages::kLines + line) * Stages::kLine),
                           static_cast<int32_t>(output(i)), other(i) ? matrix[1] : matrix[0]},
                          slot.full, policy);
        }
      }
    }
    HT_DEVICE void rows(const pipe::Slot& slot) const {
      hw::tensor_load(base + (slot.stage * Stages::kBytes + Stages::kX), &params.x,
                      {0, expert_rows, static_cast<int32_t>(step * (Stages::kDepth / 64))},
                      slot.full);
    }
    // By the warp. What a row of W does not have are zeros.
    HT_DEVICE void scales(const pipe::Slot& slot, hw::Site site = hw::Site::current()) const {
      const hw::SharedAddress to = base + (slot.stage * Stages::kBytes + Stages::kOfScales);
      if (Stages::kScaleBytes == 16 && params.scales_whole) {
        copy_scales<Stages::kScaleBytes>(to, site);
      } else {
        copy_scales<4>(to, site);
      }
      hw::cp_async_mbarrier_arrive_noinc(slot.full, site);
    }
    template <uint32_t kBytes>
    HT_DEVICE void copy_scales(hw::SharedAddress to, hw::Site site) const {
      constexpr uint32_t kPieces = Stages::kScaleBytes / kBytes, kRows = 32 / kPieces;
      const uint32_t lane = hw::lane_index(), piece = lane % kPieces * kBytes;
      const uint32_t at = step * Stages::kScaleBytes + piece;
      const uint32_t left = at < params.scale_bytes ? params.scale_bytes - at : 0;
      const uint32_t last = params.product.n - 1;
      HT_UNROLL
      for (uint32_t i = 0; i < Stages::kRows / kRows; ++i) {
        const uint32_t r = i % kPieces * kRows + lane / kPieces;  // of 32
        const uint32_t row = output(i / kPieces) + r, in_w = row < last ? row : last;
        const uint8_t* from = (other(i / kPieces) ? scales_at[1] : scales_at[0]) +
                              uint64_t{in_w} * params.scale_pitch + (left > 0 ? at : 0);
        const uint32_t place =
            i / kPieces * 32 * 16 + Multiply::scales_of(r / 8) + r % 8 * 16 + piece;
        hw::cp_async_zero_fill<kBytes>(to + place, from, left < kBytes ? left : kBytes, site);
      }
    }
  };

  // W and x. By one lane: lanes that wait and do nothing could come so late that a stage has been
  // filled and left again, and would wait for ever.
  HT_DEVICE static void load_tensors(const Params& params, const Ring& ring,
                                     hw::SharedAddress base) {
    auto fill = ring.producer();
    Copies copies(params, base), first = copies;
    // Rows of x come when it is this kernel's turn; of the first stages nothing waits.
    for (uint32_t s = 0; s < Stages::kStages && copies.any(); ++s) {
      copies.weights(fill.acquire());
      copies.next();
    }
    if (params.product.constant_weight) hw::griddepcontrol_wait();
    for (uint32_t s = 0; s < Stages::kStages && first.any(); ++s) {
      first.rows({s, ring.full(s)});
      first.next();
    }
    while (copies.any()) {
      const pipe::Slot slot = fill.acquire();
      copies.weights(slot);
      copies.rows(slot);
      copies.next();
    }
  }
  // Scales, by a warp. Each of its lanes arrives for what it has copied.
  HT_DEVICE static void load_scales(const Params& params, const Ring& ring,
                                    hw::SharedAddress base) {
    auto fill = ring.producer();
    for (Copies copies(params, base); copies.any(); copies.next()) copies.scales(fill.wait());
  }

  HT_DEVICE static void multiply_all(const Params& params, const Ring& ring,
                                     hw::SharedAddress base) {
    const GpuProduct& p = params.product;
    const uint32_t warp = pipe::uniform(hw::warp_index()), lane_index = hw::lane_index();
    const uint32_t along_n = warp % 4, along_k = warp / 4, panel = warp / 4;
    const typename Multiply::Lane lane(along_n, along_k);
    const Sm90FinishRows ends(p);
    typename Multiply::ChainScale scale;
    auto read = ring.consumer();
    Sm90Part part;
    uint32_t turn = 0;
    for (Sm90TileRun run(p, params.tiles); run.left > 0; run.next()) {
      if (run.entered) part.load(p, run.part);
      const Sm90Tile tile = tile_of(params, part, run.tile);
      if constexpr (Multiply::kJoined) {
        if (run.entered) {
          scale.find(p, p.n, tile, along_n, along_k);
          scale.ask(p, params.log2_groups, 0);
        }
      }
      const float factor = ends.factor_of(tile, panel);
      typename Multiply::Sums total = {};
      HT_ROLLED
      for (uint32_t step = 0; step < params.steps; ++step) {
        const float joins = Multiply::kJoined ? scale.value(p) : 1;
        if constexpr (Multiply::kJoined) {
          if (step + 1 < params.steps) {
            scale.ask(p, params.log2_groups, step + 1);
          } else if (run.left > 1 && run.tile + 1 < run.tiles) {
            scale.find(p, p.n, tile_of(params, part, run.tile + 1), along_n, along_k);
            scale.ask(p, params.log2_groups, 0);
          }
        }
        const hw::SharedAddress stage = base + read.wait() * Stages::kBytes;
        if constexpr (Multiply::kJoined) {
          typename Multiply::Sums chain = {};
          Multiply::multiply(stage, lane, chain);
          Multiply::join(chain, joins, total);
        } else {
          Multiply::multiply(stage, lane, total);
        }
        // Read by loads, filled by copies.
        hw::fence_proxy_async_shared();
        hw::warp_sync();
        read.release(lane_index == 0);
      }
      // Of two areas: a warp that stores sums of the tile after the next has met all others after
      // they had read those of this one.
      const hw::SharedAddress sums = base + (Stages::kSums + turn * Stages::kSumBytes);
      const hw::SharedAddress factors =
          base + (Stages::kFactors + (turn * 2 + panel) * kSm90Factors);
      ends.store_factor(factors, factor);
      if (along_k == 1) Multiply::template pass_sums<true>(sums, along_n, total);
      sync();
      if (along_k == 0) {
        Multiply::template pass_sums<false>(sums, along_n, total);
        Multiply::template pass_sums<true>(sums, along_n, total);
      }
      sync();
      const Sm90Area area{sums + panel * 64 * 4, factors, Stages::kSumRow, 4, panel};
      ends.finish_rows(tile, area, 0, tile.end - tile.m0, tile.m0, 1);
      if constexpr (Stages::kEnds == 2) {
        turn ^= 1;
      } else {
        sync();
      }
    }
  }

  HT_DEVICE static void run(const Params& params) {
    const hw::SharedAddress base = pipe::uniform_shared_memory();
    const Ring ring{base + Stages::kBarriers};
    if (hw::thread_index().x == 0) {
      ring.init(Stages::kCopied ? 33 : 1, kWarps);
      hw::fence_mbarrier_init();
    }
    hw::barrier_sync();
    // The next kernel may take the parts as written before its turn: so this one's comes first.
    if (!params.product.constant_weight) hw::griddepcontrol_wait();
    hw::griddepcontrol_launch_dependents();
    const uint32_t warp = pipe::uniform(hw::warp_index());
    if (warp == kWarps) {
      if (hw::lane_index() == 0) load_tensors(params, ring, base);
    } else if (warp > kWarps) {
      if constexpr (Stages::kCopied) load_scales(params, ring, base);
    } else {
      if (params.product.constant_weight) hw::griddepcontrol_wait();
      multiply_all(params, ring, base);
    }
  }
};

}  // namespace halftone::product
