// Attention in E4M3 on Hopper: the products of a warpgroup and the softmax of its rows.
//
// The tensor cores add products of E4M3 in numbers of 13 fraction bits, cut off: a sum that is
// large takes no small terms any more. So a product P V is of one tile of keys alone, and is added
// to O in f32; the error does not grow with the number of keys. As each tile is weighed anyway, its
// P are relative to the largest score of the tile itself, not of all so far: beside a heavy key the
// P of other tiles keep their bits.
#pragma once
#include "hw/bits.h"
#include "hw/convert/convert_fp8x4.h"
#include "hw/mma/ldmatrix.h"
#include "hw/mma/stmatrix.h"
#include "ops/attention/sm90/fp8/layout.cuh"
#include "ops/attention/sm90/softmax.cuh"

namespace halftone::attention_sm90 {

// P is multiplied by 2^8: the largest of a tile is 256, of the 448 that E4M3 has.
inline constexpr float kFp8PLevel = 8;

// A thread's part of its warp's 16 rows: row lane / 4 and the one 8 further. Exponents of 2.
struct TileSoftmax {
  static constexpr float kLeast = 0x1p-126f;
  float scale[2];  // of the scores
  float level[2];  // the largest score so far, -inf before any key
  float sum[2];    // of this thread's P, relative to 2^level

  // A scale is positive, or 0 where all numbers are: hidden keys stay hidden then, too.
  HT_DEVICE TileSoftmax(float first, float second) {
    scale[0] = hw::max(first, kLeast), scale[1] = hw::max(second, kLeast);
    level[0] = level[1] = -kInfinity;
    sum[0] = sum[1] = 0;
  }
  // The largest score of a row in each run of keys: two maxima of every run, so that one does not
  // wait for the one before.
  template <uint32_t kRuns>
  struct Maximum {
    float top[kRuns][2];
    HT_DEVICE explicit Maximum(float least) {
      HT_UNROLL
      for (uint32_t i = 0; i < 2 * kRuns; ++i) top[i / 2][i % 2] = least;
    }
    HT_DEVICE void take(uint32_t run, float first, float second) {
      top[run][0] = hw::max(top[run][0], first), top[run][1] = hw::max(top[run][1], second);
    }
    HT_DEVICE float of(uint32_t run) const { return hw::max(top[run][0], top[run][1]); }
  };
  // Of scores of keys with the scale `of_keys`.
  HT_DEVICE float factor(uint32_t half, float of_keys) const {
    return hw::max(hw::mul(scale[half], of_keys), kLeast);
  }
  // The scores become P. `factor`: of the scores of each run of keys. `kept`: what O, as the sum,
  // is to be multiplied by; `weight`: what P V of the tile is.
  template <uint32_t kCount, uint32_t kRuns>
  HT_DEVICE void step(float (&s)[kCount], const float (&factor)[kRuns][2], float (&kept)[2],
                      float (&weight)[2], hw::Site site = hw::Site::current()) {
    constexpr uint32_t kEach = kCount / kRuns;
    float shift[2];
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      Maximum<kRuns> top(-kInfinity);
      HT_UNROLL
      for (uint32_t j = 2 * half; j < kCount; j += 4) top.take(j / kEach, s[j], s[j + 1]);
      shift[half] = rise(half, top, factor, kept[half], weight[half], site);
    }
    // Two sums of a row, so that one addition does not wait for the one before.
    float part[4] = {};
    HT_UNROLL
    for (uint32_t j = 0; j < kCount; ++j) {
      s[j] = hw::ex2_approx_ftz(hw::fma(s[j], factor[j / kEach][j / 2 % 2], shift[j / 2 % 2]));
      part[j % 4] = hw::add(part[j % 4], s[j]);
    }
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      add(half, hw::add(part[2 * half], part[2 * half + 1]), kept[half], weight[half]);
    }
  }
  // The same, and P is rounded, to `p`, in an order that keeps the pipes of a multiprocessor busy:
  // beside the exponentials of one row are the maxima of the other, the sums and the roundings.
  // Left to itself ptxas puts all maxima first, then all exponentials, then sums and roundings. It
  // moves nothing past a number that is needed, so the exponents of every `kBatch` groups of keys
  // wait for the sum and the P of the group `kLag` before. `share`: what P of each run is
  // multiplied by before it is rounded.
  template <uint32_t kBatch, uint32_t kLag, uint32_t kCount, uint32_t kRuns>
  HT_DEVICE void step_rounded(float (&s)[kCount], uint32_t (&p)[kCount / 16][4],
                              const float (&factor)[kRuns][2], const float (&share)[kRuns],
                              float (&kept)[2], float (&weight)[2],
                              hw::Site site = hw::Site::current()) {
    // Groups of 16 keys: of each a thread has two pairs of neighbours in either row, one word of p.
    constexpr uint32_t kGroups = kCount / 8, kEach = kGroups / kRuns;
    static_assert(kGroups % kRuns == 0, "runs of whole groups");
    const auto look = [&](Maximum<kRuns>& top, uint32_t half, uint32_t group) {
      const float* x = s + 8 * group + 2 * half;
      top.take(group / kEach, x[0], x[1]);
      top.take(group / kEach, x[4], x[5]);
    };
    Maximum<kRuns> top(-kInfinity);
    HT_UNROLL
    for (uint32_t group = 0; group < kGroups; ++group) look(top, 0, group);
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      float shift = rise(half, top, factor, kept[half], weight[half], site);
      float part[2] = {}, sums[kGroups];
      HT_UNROLL
      for (uint32_t group = 0; group < kGroups; ++group) {
        if (group % kBatch == 0 && group >= kBatch + kLag - 1) {
          const uint32_t done = group - kLag;
          shift = after(sums[done], shift);
          // Four positive E4M3, or NaN: a finite f32 too.
          shift = after(std::bit_cast<float>(p[done / 2][done % 2 * 2 + half]), shift);
        }
        float four[4];
        HT_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
          const float score = s[8 * group + 2 * half + i / 2 * 4 + i % 2];
          four[i] = hw::ex2_approx_ftz(hw::fma(score, factor[group / kEach][half], shift));
          part[i % 2] = hw::add(part[i % 2], four[i]);
        }
        sums[group] = part[1];
        if (half == 0) {
          // Of a NaN in the first row too: a maximum passes over it.
          if (group == 0) top = Maximum<kRuns>(after(four[0], -kInfinity));
          look(top, 1, group);
        }
        HT_UNROLL
        for (uint32_t i = 0; kRuns > 1 && i < 4; ++i) {
          four[i] = hw::mul(four[i], share[group / kEach]);
        }
        p[group / 2][group % 2 * 2 + half] = hw::cvt_fp8x4<hw::Type::e4m3>(four);
      }
      add(half, hw::add(part[0], part[1]), kept[half], weight[half]);
    }
  }
  HT_DEVICE float row_level(uint32_t half) const { return level[half]; }
  HT_DEVICE float row_sum(uint32_t half, hw::Site site = hw::Site::current()) const {
    return sum_of_quad(sum[half], site);
  }

 private:
  // A tile's scores raise the level of a row. Returns what is added to its exponents.
  template <uint32_t kRuns>
  HT_DEVICE float rise(uint32_t half, const Maximum<kRuns>& top, const float (&factor)[kRuns][2],
                       float& kept, float& weight, hw::Site site) {
    float tile_level = -kInfinity;
    HT_UNROLL
    for (uint32_t run = 0; run < kRuns; ++run) {
      const float of_run = hw::mul(top.of(run), factor[run][half]);
      tile_level = run == 0 ? of_run : hw::max(tile_level, of_run);
    }
    tile_level = hw::max(tile_level, hw::shuffle_xor(tile_level, 1, 4, hw::kFullWarp, site));
    tile_level = hw::max(tile_level, hw::shuffle_xor(tile_level, 2, 4, hw::kFullWarp, site));
    const float before = level[half];
    level[half] = hw::max(before, tile_level);
    // A row that has seen no key yet is relative to 0: its P are exp(-inf) = 0.
    const float now = level[half] == -kInfinity ? 0 : level[half];
    kept = hw::ex2_approx_ftz(hw::add(before, -now));
    weight = hw::ex2_approx_ftz(hw::add(hw::add(tile_level, -now), -kFp8PLevel));
    return tile_level == -kInfinity ? 0 : hw::add(kFp8PLevel, -tile_level);
  }
  HT_DEVICE void add(uint32_t half, float of_tile, float kept, float weight) {
    sum[half] = hw::fma(sum[half], kept, hw::mul(of_tile, weight));
  }
};

// Scales of V of runs of keys become those of P: over the largest, which `weight` takes.
template <uint32_t kRuns>
HT_DEVICE float take_largest(float (&runs)[kRuns]) {
  float largest = 0x1p-120f;
  HT_UNROLL
  for (const float run : runs) largest = hw::max(largest, run);
  HT_UNROLL
  for (float& run : runs) run = run / largest;
  return largest;
}
template <uint32_t kCount, uint32_t kRuns>
HT_DEVICE void multiply_runs(float (&s)[kCount], const float (&factor)[kRuns]) {
  HT_UNROLL
  for (uint32_t run = 0; run < kRuns; ++run) {
    if (factor[run] == 1) continue;
    HT_UNROLL
    for (uint32_t j = 0; j < kCount / kRuns; ++j) {
      s[run * (kCount / kRuns) + j] = hw::mul(s[run * (kCount / kRuns) + j], factor[run]);
    }
  }
}

// One warpgroup's operands and accumulators.
template <class Layout>
struct Fp8Products {
  static constexpr uint32_t kKeys = Layout::kKeys, kColumns = Layout::kColumns;
  hw::SharedAddress base;
  tile::WgmmaDescriptor q;
  float s[kKeys / 2], part[kColumns / 2], o[Layout::kValueDim / 2];
  uint32_t p[kKeys / 32][4];

  HT_DEVICE Fp8Products(hw::SharedAddress memory, uint32_t warpgroup)
      : base(memory),
        q(tile::WgmmaDescriptor::of(Layout::q_tile(), memory.value)
              .advanced(Layout::q_tile().advance(warpgroup * 64, 0))) {}

  // Starts S = Q K^T with the K of a stage, as one group.
  HT_DEVICE void multiply_keys(uint32_t stage, hw::Site site = hw::Site::current()) {
    const auto k = tile::WgmmaDescriptor::of(Layout::k_tile(),
                                             (base + (Layout::kK + stage * Layout::kKBytes)).value);
    constexpr hw::Type kType = Layout::kWideKeys ? hw::Type::bf16 : hw::Type::e4m3;
    hw::wgmma_fence(site);
    HT_UNROLL
    for (uint32_t d = 0; d < Layout::kHeadDim; d += 256 / Layout::kKeyBits) {
      hw::wgmma<kType>(s, q.advanced(Layout::q_tile().advance(0, d)),
                       k.advanced(Layout::k_tile().advance(0, d)), d > 0, site);
    }
    hw::wgmma_commit(site);
  }
  // Starts part = P V, columns from `column` on, with the V of a stage.
  HT_DEVICE void multiply_values(uint32_t stage, uint32_t column,
                                 hw::Site site = hw::Site::current()) {
    constexpr auto tile = Layout::turned_tile();
    const auto v =
        tile::WgmmaDescriptor::of(tile, (base + (Layout::kTurned + stage * Layout::kVBytes)).value);
    hw::wgmma_fence(site);
    HT_UNROLL
    for (uint32_t k = 0; k < kKeys / 32; ++k) {
      hw::wgmma<hw::Type::e4m3>(part, p[k], v.advanced(tile.advance(column, k * 32)), k > 0, site);
    }
    hw::wgmma_commit(site);
  }
  // O = O kept + part weight, the columns from `column` on. `same`: kept is 1 in all of the warp.
  HT_DEVICE void add_part(uint32_t column, bool same, const float (&kept)[2],
                          const float (&weight)[2]) {
    hw::hold_registers(part);
    if (!same) {
      HT_UNROLL
      for (uint32_t j = 0; j < kColumns / 2; ++j) {
        o[column / 2 + j] = hw::mul(o[column / 2 + j], kept[j / 2 % 2]);
      }
    }
    HT_UNROLL
    for (uint32_t j = 0; j < kColumns / 2; ++j) {
      o[column / 2 + j] = hw::fma(part[j], weight[j / 2 % 2], o[column / 2 + j]);
    }
  }
  // P as the operand of the next product. A thread has columns 2 q, 2 q + 1 of every 8 of S and
  // must give bytes 4 q .. 4 q + 3 of every 16: the keys of V^T stand in that order.
  HT_DEVICE void round() {
    HT_UNROLL
    for (uint32_t i = 0; i < kKeys / 8; ++i) {
      const float* pair = s + i / 2 * 8 + i % 2 * 2;
      p[i / 4][i % 4] = hw::cvt_fp8x4<hw::Type::e4m3>({pair[0], pair[1], pair[4], pair[5]});
    }
  }
};

// Moves a tile of V to V^T, by one of the loading warps. A unit is 32 keys of 16 columns:
// ldmatrix.trans takes pairs of columns for elements, so that a lane gets keys 2 q, 2 q + 1, and
// two bytes of each; a permutation of bytes parts even columns from odd ones.
//   key 16 g + 2 q + 8 h + e  ->  byte 16 g + 4 q + 2 h + e,  q < 4, h < 2, e < 2
//   column 16 b + 2 c + odd   ->  line 16 b + 8 odd + c,      c < 8
// The first is the order of Fp8Products::round, the second is undone when O is stored; both keep
// eight rows of a matrix in eight different banks of 16 bytes.
template <class Layout>
HT_DEVICE void turn_values(hw::SharedAddress from, hw::SharedAddress to, uint32_t warp,
                           hw::Site site = hw::Site::current()) {
  constexpr auto v = Layout::v_tile(), turned = Layout::turned_tile();
  constexpr uint32_t kGroups = Layout::kKeys / 32, kBlocks = Layout::kValueDim / 16;
  constexpr uint32_t kBatch = 2;  // units whose loads travel together
  const uint32_t lane = hw::lane_index(), matrix = lane / 8, row = lane % 8;
  // Rows 8 apart have the same swizzle, so a lane's is one number.
  const uint32_t v_key = tile::row_key(v.swizzle, row);
  const uint32_t turned_key = tile::row_key(turned.swizzle, row);
  const auto place = [](const SharedTile& tile, uint32_t line, uint32_t at, uint32_t key) {
    return at / tile.span() * tile.panel_bytes() + line * tile.span() + (at % tile.span() ^ key);
  };
  HT_ROLLED
  for (uint32_t group = warp; group < kGroups; group += Layout::kLoadWarps) {
    const hw::SharedAddress own = from + (group * 32 + matrix * 8 + row) * v.span();
    const uint32_t byte = group * 32 + matrix / 2 * 16, line = matrix % 2 * 8 + row;
    const hw::SharedAddress own_to = to + place(turned, line, byte, turned_key);
    HT_UNROLL
    for (uint32_t block = 0; block < kBlocks; block += kBatch) {
      uint32_t x[kBatch][4];
      HT_UNROLL
      for (uint32_t i = 0; i < kBatch; ++i) {
        hw::ldmatrix_trans(x[i], own + place(v, 0, (block + i) * 16, v_key), site);
      }
      HT_UNROLL
      for (uint32_t i = 0; i < kBatch; ++i) {
        const uint32_t y[4] = {
            hw::prmt(x[i][0], x[i][1], 0x6420), hw::prmt(x[i][0], x[i][1], 0x7531),
            hw::prmt(x[i][2], x[i][3], 0x6420), hw::prmt(x[i][2], x[i][3], 0x7531)};
        hw::stmatrix(own_to + (block + i) * 16 * turned.span(), y, site);
      }
    }
  }
}

}  // namespace halftone::attention_sm90
