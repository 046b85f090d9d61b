// Softmax per K/V tile, wgmma calls of a consumer warpgroup and the transpose of V, for E4M3
// attention on sm_90a.
//
// The FP8 tensor cores of Hopper accumulate with 13 fraction bits, truncated: a large sum takes no
// small addends any more. So an MMA P V covers one K/V tile alone and is accumulated into O in
// FP32; the error does not grow with the number of keys. As each tile is rescaled anyway, its P is
// relative to row_max of the tile itself, not to the running one: beside a dominant key the P of
// other tiles keep their bits.
#pragma once
#include "hw/bits.h"
#include "hw/convert/convert_fp8x4.h"
#include "hw/mma/ldmatrix.h"
#include "hw/mma/stmatrix.h"
#include "ops/attention/sm90/fp8/layout.cuh"
#include "ops/attention/sm90/softmax.cuh"

namespace halftone::attention_sm90 {

// P is multiplied by 2^8: the largest of a tile is 256, of the 448 that E4M3 has.
inline constexpr float kFp8MaxOffset = 8;

// A thread's part of its warp's 16 rows: row lane / 4 and the one 8 further. In base-2 exponents.
struct TileSoftmax {
  static constexpr float kLeast = 0x1p-126f;
  float scale[2];    // of the scores
  float row_max[2];  // row_max so far, -inf before any key
  float sum[2];      // of this thread's P, relative to 2^row_max

  // A scale is positive, or 0 where all elements are: clamped, so that masked keys stay masked
  // then, too.
  HT_DEVICE TileSoftmax(float first, float second) {
    scale[0] = hw::max(first, kLeast), scale[1] = hw::max(second, kLeast);
    row_max[0] = row_max[1] = -kInfinity;
    sum[0] = sum[1] = 0;
  }
  // row_max of each scale block: two maxima a block, so that one does not wait for the one before.
  template <uint32_t kScaleBlocks>
  struct Maximum {
    float maximum[kScaleBlocks][2];
    HT_DEVICE explicit Maximum(float least) {
      HT_UNROLL
      for (uint32_t i = 0; i < 2 * kScaleBlocks; ++i) maximum[i / 2][i % 2] = least;
    }
    HT_DEVICE void take(uint32_t block, float first, float second) {
      maximum[block][0] = hw::max(maximum[block][0], first),
      maximum[block][1] = hw::max(maximum[block][1], second);
    }
    HT_DEVICE float of(uint32_t block) const {
      return hw::max(maximum[block][0], maximum[block][1]);
    }
  };
  // The factor of scores of keys with the scale `of_keys`.
  HT_DEVICE float factor(uint32_t half, float of_keys) const {
    return hw::max(hw::mul(scale[half], of_keys), kLeast);
  }
  // Scores become P. `factor`: of the scores of each scale block. `rescale`: the correction factor
  // of O and of the sum; `pv_scale`: that of P V of the tile.
  template <uint32_t kCount, uint32_t kScaleBlocks>
  HT_DEVICE void step(float (&s)[kCount], const float (&factor)[kScaleBlocks][2],
                      float (&rescale)[2], float (&pv_scale)[2],
                      hw::Site site = hw::Site::current()) {
    constexpr uint32_t kEach = kCount / kScaleBlocks;
    float offset[2];
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      Maximum<kScaleBlocks> maximum(-kInfinity);
      HT_UNROLL
      for (uint32_t j = 2 * half; j < kCount; j += 4) maximum.take(j / kEach, s[j], s[j + 1]);
      offset[half] = update_row_max(half, maximum, factor, rescale[half], pv_scale[half], site);
    }
    // Two sums a row, so that one addition does not wait for the one before.
    float partial_sum[4] = {};
    HT_UNROLL
    for (uint32_t j = 0; j < kCount; ++j) {
      s[j] = hw::ex2_approx_ftz(hw::fma(s[j], factor[j / kEach][j / 2 % 2], offset[j / 2 % 2]));
      partial_sum[j % 4] = hw::add(partial_sum[j % 4], s[j]);
    }
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      add(half, hw::add(partial_sum[2 * half], partial_sum[2 * half + 1]), rescale[half],
          pv_scale[half]);
    }
  }
  // The same, and rounds P to `p`, in an order that keeps all pipes of a multiprocessor busy:
  // beside the exponentials of one row run the maxima of the other, the sums and the conversions.
  // Left to itself ptxas puts all maxima first, then all exponentials, then sums and conversions.
  // It moves nothing past a value that is needed, so the exponents of every `kBatch` groups of keys
  // wait for the sum and the P of the group `kLag` before. `v_scale`: what P of each scale block is
  // multiplied by before it is rounded.
  template <uint32_t kBatch, uint32_t kLag, uint32_t kCount, uint32_t kScaleBlocks>
  HT_DEVICE void step_and_convert(float (&s)[kCount], uint32_t (&p)[kCount / 16][4],
                                  const float (&factor)[kScaleBlocks][2],
                                  const float (&v_scale)[kScaleBlocks], float (&rescale)[2],
                                  float (&pv_scale)[2], hw::Site site = hw::Site::current()) {
    // Groups of 16 keys: a thread has two pairs of neighbours of each in either row, one word of p.
    constexpr uint32_t kGroups = kCount / 8, kEach = kGroups / kScaleBlocks;
    static_assert(kGroups % kScaleBlocks == 0, "runs of whole groups");
    const auto update_max = [&](Maximum<kScaleBlocks>& maximum, uint32_t half, uint32_t group) {
      const float* x = s + 8 * group + 2 * half;
      maximum.take(group / kEach, x[0], x[1]);
      maximum.take(group / kEach, x[4], x[5]);
    };
    Maximum<kScaleBlocks> maximum(-kInfinity);
    HT_UNROLL
    for (uint32_t group = 0; group < kGroups; ++group) update_max(maximum, 0, group);
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      float offset = update_row_max(half, maximum, factor, rescale[half], pv_scale[half], site);
      float partial_sum[2] = {}, sums[kGroups];
      HT_UNROLL
      for (uint32_t group = 0; group < kGroups; ++group) {
        if (group % kBatch == 0 && group >= kBatch + kLag - 1) {
          const uint32_t done = group - kLag;
          offset = after(sums[done], offset);
          // Four positive E4M3, or NaN: also a finite FP32.
          offset = after(std::bit_cast<float>(p[done / 2][done % 2 * 2 + half]), offset);
        }
        float four[4];
        HT_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
          const float score = s[8 * group + 2 * half + i / 2 * 4 + i % 2];
          four[i] = hw::ex2_approx_ftz(hw::fma(score, factor[group / kEach][half], offset));
          partial_sum[i % 2] = hw::add(partial_sum[i % 2], four[i]);
        }
        sums[group] = partial_sum[1];
        if (half == 0) {
          // `after` passes a NaN of the first row; max ignores it.
          if (group == 0) maximum = Maximum<kScaleBlocks>(after(four[0], -kInfinity));
          update_max(maximum, 1, group);
        }
        HT_UNROLL
        for (uint32_t i = 0; kScaleBlocks > 1 && i < 4; ++i) {
          four[i] = hw::mul(four[i], v_scale[group / kEach]);
        }
        p[group / 2][group % 2 * 2 + half] = hw::cvt_fp8x4<hw::Type::e4m3>(four);
      }
      add(half, hw::add(partial_sum[0], partial_sum[1]), rescale[half], pv_scale[half]);
    }
  }
  HT_DEVICE float row_max_log2(uint32_t half) const { return row_max[half]; }
  HT_DEVICE float row_sum(uint32_t half, hw::Site site = hw::Site::current()) const {
    return quad_sum(sum[half], site);
  }

 private:
  // Raises row_max by the tile's and computes both factors. Returns what is added to the tile's
  // exponents.
  template <uint32_t kScaleBlocks>
  HT_DEVICE float update_row_max(uint32_t half, const Maximum<kScaleBlocks>& maximum,
                                 const float (&factor)[kScaleBlocks][2], float& rescale,
                                 float& pv_scale, hw::Site site) {
    float tile_max = -kInfinity;
    HT_UNROLL
    for (uint32_t block = 0; block < kScaleBlocks; ++block) {
      const float block_max = hw::mul(maximum.of(block), factor[block][half]);
      tile_max = block == 0 ? block_max : hw::max(tile_max, block_max);
    }
    tile_max = hw::max(tile_max, hw::shuffle_xor(tile_max, 1, 4, hw::kFullWarp, site));
    tile_max = hw::max(tile_max, hw::shuffle_xor(tile_max, 2, 4, hw::kFullWarp, site));
    const float previous = row_max[half];
    row_max[half] = hw::max(previous, tile_max);
    // A row with all keys masked so far is relative to 0: its P are exp2(-inf) = 0.
    const float reference = row_max[half] == -kInfinity ? 0 : row_max[half];
    rescale = hw::ex2_approx_ftz(hw::add(previous, -reference));
    pv_scale = hw::ex2_approx_ftz(hw::add(hw::add(tile_max, -reference), -kFp8MaxOffset));
    return tile_max == -kInfinity ? 0 : hw::add(kFp8MaxOffset, -tile_max);
  }
  HT_DEVICE void add(uint32_t half, float tile_sum, float rescale, float pv_scale) {
    sum[half] = hw::fma(sum[half], rescale, hw::mul(tile_sum, pv_scale));
  }
};

// Per-block scales of V become factors of P: divided by the largest, which goes into `pv_scale`.
template <uint32_t kScaleBlocks>
HT_DEVICE float normalise_block_scales(float (&blocks)[kScaleBlocks]) {
  float largest = 0x1p-120f;
  HT_UNROLL
  for (const float block : blocks) largest = hw::max(largest, block);
  HT_UNROLL
  for (float& block : blocks) block = block / largest;
  return largest;
}
template <uint32_t kCount, uint32_t kScaleBlocks>
HT_DEVICE void scale_by_block(float (&s)[kCount], const float (&factor)[kScaleBlocks]) {
  HT_UNROLL
  for (uint32_t block = 0; block < kScaleBlocks; ++block) {
    if (factor[block] == 1) continue;
    HT_UNROLL
    for (uint32_t j = 0; j < kCount / kScaleBlocks; ++j) {
      s[block * (kCount / kScaleBlocks) + j] =
          hw::mul(s[block * (kCount / kScaleBlocks) + j], factor[block]);
    }
  }
}

// A consumer warpgroup's operands and accumulators.
template <class Layout>
struct Fp8WarpgroupMma {
  static constexpr uint32_t kKeys = Layout::kKeys, kColumns = Layout::kColumns;
  hw::SharedAddress base;
  tile::WgmmaDescriptor q;
  float s[kKeys / 2], pv[kColumns / 2], o[Layout::kValueDim / 2];
  uint32_t p[kKeys / 32][4];

  HT_DEVICE Fp8WarpgroupMma(hw::SharedAddress memory, uint32_t warpgroup)
      : base(memory),
        q(tile::WgmmaDescriptor::of(Layout::q_tile(), memory.value)
              .advanced(Layout::q_tile().advance(warpgroup * 64, 0))) {}

  // Starts S = Q K^T with the K of a stage, as one wgmma group.
  HT_DEVICE void start_qk(uint32_t stage, hw::Site site = hw::Site::current()) {
    const auto k = tile::WgmmaDescriptor::of(Layout::k_tile(),
                                             (base + (Layout::kK + stage * Layout::kKBytes)).value);
    constexpr hw::Type kType = Layout::kBf16Keys ? hw::Type::bf16 : hw::Type::e4m3;
    hw::wgmma_fence(site);
    HT_UNROLL
    for (uint32_t d = 0; d < Layout::kHeadDim; d += 256 / Layout::kKeyBits) {
      hw::wgmma<kType>(s, q.advanced(Layout::q_tile().advance(0, d)),
                       k.advanced(Layout::k_tile().advance(0, d)), d > 0, site);
    }
    hw::wgmma_commit(site);
  }
  // Starts pv = P V, columns from `column` on, with the V^T of a stage.
  HT_DEVICE void start_pv(uint32_t stage, uint32_t column, hw::Site site = hw::Site::current()) {
    constexpr auto tile = Layout::vt_tile();
    const auto v =
        tile::WgmmaDescriptor::of(tile, (base + (Layout::kVt + stage * Layout::kVBytes)).value);
    hw::wgmma_fence(site);
    HT_UNROLL
    for (uint32_t k = 0; k < kKeys / 32; ++k) {
      hw::wgmma<hw::Type::e4m3>(pv, p[k], v.advanced(tile.advance(column, k * 32)), k > 0, site);
    }
    hw::wgmma_commit(site);
  }
  // O = O rescale + pv pv_scale, columns from `column` on. `skip_rescale`: rescale is 1 in all of
  // the warp.
  HT_DEVICE void accumulate(uint32_t column, bool skip_rescale, const float (&rescale)[2],
                            const float (&pv_scale)[2]) {
    hw::hold_registers(pv);
    if (!skip_rescale) {
      HT_UNROLL
      for (uint32_t j = 0; j < kColumns / 2; ++j) {
        o[column / 2 + j] = hw::mul(o[column / 2 + j], rescale[j / 2 % 2]);
      }
    }
    HT_UNROLL
    for (uint32_t j = 0; j < kColumns / 2; ++j) {
      o[column / 2 + j] = hw::fma(pv[j], pv_scale[j / 2 % 2], o[column / 2 + j]);
    }
  }
  // Rounds S to P, the A operand of P V. A thread has columns 2 q, 2 q + 1 of every 8 of S and must
  // give bytes 4 q .. 4 q + 3 of every 16: the keys of V^T are permuted to match.
  HT_DEVICE void convert_p() {
    HT_UNROLL
    for (uint32_t i = 0; i < kKeys / 8; ++i) {
      const float* pair = s + i / 2 * 8 + i % 2 * 2;
      p[i / 4][i % 4] = hw::cvt_fp8x4<hw::Type::e4m3>({pair[0], pair[1], pair[4], pair[5]});
    }
  }
};

// Transposes a tile of V to V^T, by one of the producer warps. A unit is 32 keys of 16 columns:
// ldmatrix.trans takes pairs of columns for elements, so that a lane gets keys 2 q, 2 q + 1, and
// two bytes of each; a byte permutation separates even columns from odd ones.
//   key 16 g + 2 q + 8 h + e  ->  byte 16 g + 4 q + 2 h + e,  q < 4, h < 2, e < 2
//   column 16 b + 2 c + odd   ->  line 16 b + 8 odd + c,      c < 8
// The first is the key order of convert_p, the second is undone when O is stored; both keep eight
// rows of a matrix in eight different 16-byte banks.
template <class Layout>
HT_DEVICE void transpose_v(hw::SharedAddress from, hw::SharedAddress to, uint32_t warp,
                           hw::Site site = hw::Site::current()) {
  constexpr auto v = Layout::v_tile(), vt = Layout::vt_tile();
  constexpr uint32_t kGroups = Layout::kKeys / 32, kBlockScales = Layout::kValueDim / 16;
  constexpr uint32_t kBatch = 2;  // units whose loads are in flight together
  const uint32_t lane = hw::lane_index(), matrix = lane / 8, row = lane % 8;
  // Rows 8 apart have the same swizzle, so a lane has one.
  const uint32_t v_key = tile::row_key(v.swizzle, row);
  const uint32_t vt_key = tile::row_key(vt.swizzle, row);
  const auto place = [](const SharedTile& tile, uint32_t line, uint32_t at, uint32_t key) {
    return at / tile.span() * tile.panel_bytes() + line * tile.span() + (at % tile.span() ^ key);
  };
  HT_ROLLED
  for (uint32_t group = warp; group < kGroups; group += Layout::kLoadWarps) {
    const hw::SharedAddress own = from + (group * 32 + matrix * 8 + row) * v.span();
    const uint32_t byte = group * 32 + matrix / 2 * 16, line = matrix % 2 * 8 + row;
    const hw::SharedAddress own_to = to + place(vt, line, byte, vt_key);
    HT_UNROLL
    for (uint32_t block = 0; block < kBlockScales; block += kBatch) {
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
        hw::stmatrix(own_to + (block + i) * 16 * vt.span(), y, site);
      }
    }
  }
}

}  // namespace halftone::attention_sm90
