// Some dozens of rows of x times W in few bits on Hopper, where making bf16 of the codes takes more
// time than anything else. So codes enter in the order of memory: a lane expands what 16 bytes of a
// row hold, and as which element of K is which of an MMA's fragment is free, x is read by 16 bytes,
// too. That takes mma.sync, whose operands are registers; wgmma's order of K is fixed, and costs as
// many instructions again (docs/findings/products-hopper.md).
//
// Warps come four along the rows of W, 32 each, by two along K, whose sums meet in shared memory at
// the end, with those of the other blocks of a cluster: these share the K of a tile.
#pragma once
#include "hw/cluster.h"
#include "hw/griddep.h"
#include "hw/mma.h"
#include "hw/tma.h"
#include "hw/vote.h"
#include "ops/product/sm90_dozens.h"
#include "ops/product/sm90_finish_rows.cuh"
#include "pipe/uniform.h"

namespace halftone::product {

template <GpuCode kCode, Sm90Scales kScales, uint32_t kTiles>
struct Sm90Dozens {
  using Params = Sm90DozensParams;
  using Stages = Sm90DozensStages<kCode, kScales, kTiles>;
  using Policy = CodePolicy<kCode>;
  using Ring = typename Stages::Ring;
  static constexpr uint32_t kThreads = Stages::kThreads, kMinBlocks = Stages::kMinBlocks;
  static constexpr uint32_t kBits = Stages::kBits, kWords = kBits / 4;
  static constexpr uint32_t kParts = Stages::kLines;       // of a warp's codes of a stage, ...
  static constexpr uint32_t kOctets = 16 * 8 / kBits / 8;  // ... each of so many octets a lane
  static constexpr bool kJoined = kScales == Sm90Scales::sums;
  static constexpr uint32_t kTilesN = 2;  // of 16 rows a warp

  using Sums = float[kTilesN][kTiles][4];

  // Rows g of eight of an MMA: those whose chunks the swizzle puts into the same banks come apart.
  HT_HOST_DEVICE static uint32_t row_in_eight(uint32_t g) { return g % 2 * 4 + g / 2; }

  // What thread 0 copies.
  struct Copies {
    const Params& params;
    hw::SharedAddress base;
    const Sm90Tile& tile;

    HT_DEVICE void weights(const pipe::Slot& slot, uint32_t step) const {
      const hw::SharedAddress to = base + slot.stage * Stages::kBytes;
      HT_UNROLL
      for (uint32_t r = 0; r < Stages::kRows; r += 32) {
        const uint32_t half = tile.half_of(r);
        const auto row = static_cast<int32_t>(tile.output(r));
        hw::tensor_load(to + r / 32 * Stages::kRun, &params.w[half],
                        {0, row, static_cast<int32_t>(step * Stages::kLines)}, slot.full,
                        hw::kEvictFirst);
        if constexpr (Stages::kCopied) {
          // Boxes are 16 bytes wide, and begin at multiples of that: powers of two of two stages.
          const uint32_t column = kScales == Sm90Scales::pairs ? step * 16 : step / 2 * 16;
          hw::tensor_load(to + (Stages::kScales_ + r * 16), &params.scales[half],
                          {static_cast<int32_t>(column), row}, slot.full);
        }
      }
    }
    HT_DEVICE void rows(const pipe::Slot& slot, uint32_t step) const {
      hw::tensor_load(
          base + (slot.stage * Stages::kBytes + Stages::kX), &params.x,
          {0, static_cast<int32_t>(tile.m0), static_cast<int32_t>(step * (Stages::kDepth / 64))},
          slot.full);
    }
  };

  // Scales of chains of 128 elements: lane l has that of row l of the warp, asked for a stage
  // ahead.
  struct ChainScale {
    const uint8_t* at = nullptr;
    uint32_t raw = 0, part = 0;

    HT_DEVICE void find(const GpuProduct& p, const Sm90Tile& tile, uint32_t first_row,
                        uint32_t of_k) {
      part = of_k;
      if (!p.scaled) return;
      const uint32_t r = first_row + hw::lane_index(), row = tile.output(r);
      at = scale_address(p.weight, tile.source_of(r), row < p.n ? row : p.n - 1, 0);
    }
    HT_DEVICE void ask(const Params& params, uint32_t step) {
      const GpuLayout& l = params.product.weight;
      const uint32_t group = (step * 2 + part) >> params.log2_groups;
      if (at != nullptr) raw = load_scale(l.scale_format, at + group * l.scale_step);
    }
    HT_DEVICE float value(const GpuProduct& p) const {
      return p.scaled ? decode_scale(p.weight.scale_format, raw) : 1.0f;
    }
  };

  // Where a lane reads in a stage: of W its 16 bytes of row row_in_eight(lane / 4), of x those of
  // row lane / 4, and scales.
  struct Lane {
    uint32_t quad, w, x, scales;

    HT_DEVICE Lane(uint32_t along_n, uint32_t along_k) {
      const uint32_t g = hw::lane_index() / 4, r = row_in_eight(g);
      quad = hw::lane_index() % 4;
      w = along_n * Stages::kRun + r * Stages::kLine;
      x = Stages::kX + g * Stages::kLine;
      scales = Stages::kScales_ + (along_n * 32 + r) * 16;
      if constexpr (kBits == 4) {
        // Octets of a lane: (along_k, quad, o). In the last of quads 2 and 3 o is exchanged by 2,
        // as otherwise quads 0 and 2 would read of the same banks.
        w += ((along_k * 4 + quad) ^ r) * 16;
        x += (along_k * 2 + quad / 2) * Stages::kSlab + ((quad % 2 * 4 + quad / 2 * 2) ^ g) * 16;
        scales += kScales == Sm90Scales::pairs ? along_k * 8 + quad * 2 : along_k * 4 + quad;
      } else {
        w += along_k * (32 * Stages::kLine) + (quad ^ r) * 16;
        x += along_k * 2 * Stages::kSlab + ((quad * 2) ^ g) * 16;
        scales += along_k * 4 + quad / 2;
      }
    }
    // Of a part; the swizzle is an exclusive or.
    HT_DEVICE uint32_t w_of(uint32_t part) const { return w ^ part * 64; }
    HT_DEVICE uint32_t x_of(uint32_t part, uint32_t octet) const {
      return (x + part * Stages::kSlab) ^ octet * 16;
    }
  };

  // Of row `row` of eight of a warp's 32.
  HT_DEVICE static Lane scales_of(Lane lane, uint32_t step) {
    if constexpr (kScales == Sm90Scales::powers) lane.scales += step % 2 * 8;
    return lane;
  }
  HT_DEVICE static void load_codes(hw::SharedAddress stage, const Lane& lane, uint32_t part,
                                   uint32_t eight, uint32_t (&codes)[4], hw::Site site) {
    const auto words =
        hw::load_shared<hw::Words4>(stage + (lane.w_of(part) + eight * 8 * Stages::kLine), site);
    const bool exchanged = kBits == 4 && lane.quad >= 2;
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) codes[i] = exchanged ? words[i ^ 2] : words[i];
  }
  // What the policy multiplies codes by, for the octets of either half of 16 bytes; false where
  // powers of two are beyond what bf16 can take.
  HT_DEVICE static bool load_pairs(const GpuProduct&, hw::SharedAddress stage, const Lane& lane,
                                   uint32_t part, uint32_t eight, uint32_t (&pairs)[2],
                                   hw::Site site) {
    pairs[0] = pairs[1] = Policy::kUnscaled;
    const hw::SharedAddress at = stage + (lane.scales + eight * 8 * 16 + part * 2);
    if constexpr (kScales == Sm90Scales::pairs) {
      uint32_t two[2];
      Policy::pairs_of(hw::load_shared<uint16_t>(at, site), two);
      const bool exchanged = lane.quad >= 2;
      pairs[0] = exchanged ? two[1] : two[0], pairs[1] = exchanged ? two[0] : two[1];
    } else if constexpr (kScales == Sm90Scales::powers) {
      const uint32_t exponent = hw::load_shared<uint8_t>(at, site);
      pairs[0] = pairs[1] = twice((exponent << 7) + Policy::kUnscaled % 65536 - 0x3f80);
      return exponent >= 16 && exponent <= 128;
    }
    return true;
  }
  HT_DEVICE static void expand(const uint32_t (&codes)[4], uint32_t octet,
                               const uint32_t (&pairs)[2], uint32_t (&w)[1][4]) {
    const uint32_t pair = pairs[octet / 2 % 2];
    if constexpr (kCode == GpuCode::e2m1) {
      Policy::expand_neighbours(codes[octet], {pair, pair, pair, pair}, w);
    } else if constexpr (kCode == GpuCode::int4) {
      Policy::expand_neighbours(codes[octet], Policy::kUnscaled, w);
    } else {
      Policy::expand({codes[octet * 2], codes[octet * 2 + 1]}, 0, w);
      if constexpr (kScales == Sm90Scales::powers) {
        HT_UNROLL
        for (uint32_t i = 0; i < 4; ++i) w[0][i] = fma_bf16x2(w[0][i], pair, kMinusZeros);
      }
    }
  }
  // Half an octet of two rows with that of a row of x.
  HT_DEVICE static void multiply_half(const uint32_t (&w)[2][1][4], const hw::Words4& x, uint32_t s,
                                      uint32_t mask, float (&sums)[4], hw::Site site) {
    const uint32_t a[4] = {w[0][0][s], w[1][0][s], w[0][0][s + 1], w[1][0][s + 1]};
    const uint32_t b[2] = {x[s] & mask, x[s + 1] & mask};
    hw::mma_m16n8k16<Policy::kType>(sums, a, b, sums, site);
  }

  // Powers of two that bf16 cannot take in codes: the lanes of a quad one after the other, the
  // others' elements of x being zeros, so that the sums have one scale each.
  HT_DEVICE static void multiply_apart(hw::SharedAddress stage, const Lane& lane, uint32_t part,
                                       Sums& sums, hw::Site site = hw::Site::current()) {
    HT_UNROLL
    for (uint32_t t = 0; t < kTilesN; ++t) {
      HT_UNROLL
      for (uint32_t j = 0; j < kTiles; ++j) {
        HT_ROLLED
        for (uint32_t turn = 0; turn < 4; ++turn) {
          const uint32_t mask = lane.quad == turn ? 0xffffffff : 0;
          float chain[4] = {};
          HT_UNROLL
          for (uint32_t o = 0; o < kOctets; ++o) {
            uint32_t w[2][1][4];
            HT_UNROLL
            for (uint32_t r = 0; r < 2; ++r) {
              uint32_t codes[4];
              load_codes(stage, lane, part, t * 2 + r, codes, site);
              if constexpr (kCode == GpuCode::e2m1) {
                constexpr uint32_t kOne = Policy::kUnscaled;
                Policy::expand_neighbours(codes[o], {kOne, kOne, kOne, kOne}, w[r]);
              } else {
                Policy::expand({codes[o * 2 % 4], codes[o * 2 % 4 + 1]}, 0, w[r]);
              }
            }
            const auto x = hw::load_shared<hw::Words4>(
                stage + (lane.x_of(part, o) + j * 8 * Stages::kLine), site);
            for (uint32_t s = 0; s < 4; s += 2) multiply_half(w, x, s, mask, chain, site);
          }
          HT_UNROLL
          for (uint32_t e = 0; e < 4; ++e) {
            // The scale of the lane whose turn it was.
            const uint32_t of_quad = kBits == 4 ? turn : turn / 2;
            const uint32_t own = kBits == 4 ? lane.quad : lane.quad / 2;
            const auto exponent = hw::load_shared<uint8_t>(
                stage + (lane.scales - own + of_quad + (t * 2 + e / 2) * 8 * 16 + part * 2), site);
            sums[t][j][e] = hw::fma(chain[e], decode_ue8m0(exponent), sums[t][j][e]);
          }
        }
      }
    }
  }

  // What a warp has of a stage.
  HT_DEVICE static void multiply(const GpuProduct& p, hw::SharedAddress stage, const Lane& lane,
                                 Sums& sums, hw::Site site = hw::Site::current()) {
    HT_UNROLL
    for (uint32_t part = 0; part < kParts; ++part) {
      uint32_t codes[2 * kTilesN][4], pairs[2 * kTilesN][2];
      bool fits = true;
      HT_UNROLL
      for (uint32_t r = 0; r < 2 * kTilesN; ++r) {
        load_codes(stage, lane, part, r, codes[r], site);
        fits = load_pairs(p, stage, lane, part, r, pairs[r], site) && fits;
      }
      if constexpr (kScales == Sm90Scales::powers) {
        if (!hw::vote_all(fits, hw::kFullWarp, site)) {
          multiply_apart(stage, lane, part, sums);
          continue;
        }
      }
      HT_UNROLL
      for (uint32_t o = 0; o < kOctets; ++o) {
        // x is on its way while codes are expanded, and no MMA waits for the one before it.
        hw::Words4 x[kTiles];
        HT_UNROLL
        for (uint32_t j = 0; j < kTiles; ++j) {
          x[j] = hw::load_shared<hw::Words4>(stage + (lane.x_of(part, o) + j * 8 * Stages::kLine),
                                             site);
        }
        uint32_t w[kTilesN][2][1][4];
        HT_UNROLL
        for (uint32_t r = 0; r < 2 * kTilesN; ++r) expand(codes[r], o, pairs[r], w[r / 2][r % 2]);
        HT_UNROLL
        for (uint32_t s = 0; s < 4; s += 2) {
          HT_UNROLL
          for (uint32_t j = 0; j < kTiles; ++j) {
            HT_UNROLL
            for (uint32_t t = 0; t < kTilesN; ++t) {
              multiply_half(w[t], x[j], s, 0xffffffff, sums[t][j], site);
            }
          }
        }
      }
    }
  }

  // A warp's sums into shared memory, or those that are there joined to them.
  template <bool kStore>
  HT_DEVICE static void pass_sums(hw::SharedAddress base, uint32_t along_n, Sums& sums,
                                  hw::Site site = hw::Site::current()) {
    const uint32_t lane = hw::lane_index();
    HT_UNROLL
    for (uint32_t t = 0; t < kTilesN; ++t) {
      HT_UNROLL
      for (uint32_t j = 0; j < kTiles; ++j) {
        HT_UNROLL
        for (uint32_t e = 0; e < 4; ++e) {
          const uint32_t column = j * 8 + lane % 4 * 2 + e % 2;
          const uint32_t row = along_n * 32 + t * 16 + e / 2 * 8 + row_in_eight(lane / 4);
          const hw::SharedAddress at = base + (column * Stages::kSumRow + row * 4);
          if constexpr (kStore) {
            hw::store_shared(at, sums[t][j][e], site);
          } else {
            sums[t][j][e] += hw::load_shared<float>(at, site);
          }
        }
      }
    }
  }

  HT_DEVICE static void run(const Params& params) {
    const GpuProduct& p = params.product;
    const hw::SharedAddress base = pipe::uniform_shared_memory();
    const Ring ring{base + Stages::kBarriers};
    const uint32_t warp = pipe::uniform(hw::warp_index()), lane_index = hw::lane_index();
    const uint32_t blocks = hw::cluster_size(), rank = hw::cluster_rank();
    const bool gate = p.finish.gate;
    const Sm90Tile tile{{p.source[0], p.source[1]},
                        hw::block_index().x / blocks * (gate ? 64 : 128),
                        hw::block_index().y * Stages::kColumns,
                        p.m,
                        0,
                        gate};
    const uint32_t steps = p.k / Stages::kDepth;
    const uint32_t begin = rank * steps / blocks, end = (rank + 1) * steps / blocks;
    if (hw::thread_index().x == 0) {
      ring.init(1, Stages::kWarps);
      hw::fence_mbarrier_init();
    }
    hw::barrier_sync();

    const Copies copies{params, base, tile};
    auto fill = ring.producer();
    const uint32_t ahead = end - begin < Stages::kStages - 1 ? end - begin : Stages::kStages - 1;
    const bool copier = warp == 0 && lane_index == 0;
    if (!p.constant_weight) hw::griddepcontrol_wait();
    pipe::Slot early[Stages::kStages - 1];
    if (copier) {
      HT_UNROLL
      for (uint32_t s = 0; s + 1 < Stages::kStages; ++s) {
        if (s >= ahead) break;
        early[s] = fill.acquire();
        copies.weights(early[s], begin + s);
      }
    }
    hw::griddepcontrol_wait();
    if (copier) {
      HT_UNROLL
      for (uint32_t s = 0; s + 1 < Stages::kStages; ++s) {
        if (s < ahead) copies.rows(early[s], begin + s);
      }
    }
    hw::warp_sync();

    const Sm90FinishRows ends(p);
    const uint32_t panel = warp / 4;
    const hw::SharedAddress factors = base + (Stages::kFactors + panel * kSm90Factors);
    ends.store_factors(tile, factors, panel);
    const uint32_t along_n = warp % 4, along_k = warp / 4;
    const Lane lane(along_n, along_k);
    ChainScale scale;
    if constexpr (kJoined) {
      scale.find(p, tile, along_n * 32, along_k);
      scale.ask(params, begin);
    }
    auto read = ring.consumer();
    Sums total = {};
    HT_ROLLED
    for (uint32_t step = begin; step < end; ++step) {
      if (step + Stages::kStages - 1 < end) {
        if (copier) {
          const pipe::Slot slot = fill.acquire();
          copies.weights(slot, step + Stages::kStages - 1);
          copies.rows(slot, step + Stages::kStages - 1);
        }
        hw::warp_sync();
      } else if (step + 1 == end) {
        hw::griddepcontrol_launch_dependents();
      }
      const float joins = kJoined ? scale.value(p) : 1;
      if constexpr (kJoined) {
        if (step + 1 < end) scale.ask(params, step + 1);
      }
      const hw::SharedAddress stage = base + read.wait() * Stages::kBytes;
      if constexpr (kJoined) {
        Sums chain = {};
        multiply(p, stage, lane, chain);
        HT_UNROLL
        for (uint32_t r = 0; r < 2 * kTilesN; ++r) {
          const float w = hw::shuffle(joins, r * 8 + row_in_eight(lane_index / 4));
          HT_UNROLL
          for (uint32_t j = 0; j < kTiles; ++j) {
            HT_UNROLL
            for (uint32_t e = 0; e < 2; ++e) {
              float& sum = total[r / 2][j][r % 2 * 2 + e];
              sum = hw::fma(chain[r / 2][j][r % 2 * 2 + e], w, sum);
            }
          }
        }
      } else {
        multiply(p, stage, scales_of(lane, step), total);
      }
      // Read by loads, filled by copies.
      hw::fence_proxy_async_shared();
      hw::warp_sync();
      read.release(lane_index == 0);
    }

    // Nobody reads the stages any more. The halves along K meet, then the blocks' parts of it, each
    // block a share of the rows of x.
    hw::barrier_sync();
    if (along_k == 1) pass_sums<true>(base, along_n, total);
    hw::barrier_sync();
    if (along_k == 0) {
      pass_sums<false>(base, along_n, total);
      pass_sums<true>(base, along_n, total);
    }
    if (blocks == 1) {
      hw::barrier_sync();
    } else {
      hw::cluster_arrive();
      hw::cluster_wait();
    }
    const uint32_t left = tile.end - tile.m0;
    const uint32_t used = left < Stages::kColumns ? left : Stages::kColumns;
    const uint32_t share = (used + blocks - 1) / blocks, first = rank * share;
    if (first < used) {
      const uint32_t count = used - first < share ? used - first : share;
      const Sm90Area area{base + panel * 64 * 4, factors, Stages::kSumRow, 4, panel};
      ends.finish_rows(tile, area, first, count, tile.m0 + first, blocks);
    }
    if (blocks > 1) {
      // Others may still read of this block's shared memory.
      hw::warp_sync();
      hw::cluster_arrive_relaxed();
      hw::cluster_wait();
    }
  }
};

}  // namespace halftone::product
