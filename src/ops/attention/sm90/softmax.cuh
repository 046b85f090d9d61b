// Online softmax in registers and the wgmma calls of one consumer warpgroup, for attention on
// sm_90a. A thread has parts of two rows (wgmma accumulator layout); exponentials are exp2 with
// log2(e) folded into the scale.
#pragma once
#include "hw/convert/convert.h"
#include "hw/math.h"
#include "hw/memory.h"
#include "hw/mma/wgmma.h"
#include "hw/mufu.h"
#include "hw/thread.h"
#include "hw/warp.h"
#include "ops/attention/key_range.h"
#include "ops/attention/sm90/layout.cuh"

namespace halftone::attention_sm90 {

inline constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;
inline constexpr float kInfinity = __builtin_huge_valf();

template <hw::Type kType>
HT_DEVICE uint32_t round_pair(float low, float high) {
  if constexpr (kType == hw::Type::bf16) return hw::cvt_bf16x2(low, high);
  return hw::cvt_f16x2(low, high);
}

// The sum over the four threads that share a row.
HT_DEVICE float quad_sum(float x, hw::Site site = hw::Site::current()) {
  const float pair = hw::add(x, hw::shuffle_xor(x, 1, 4, hw::kFullWarp, site));
  return hw::add(pair, hw::shuffle_xor(pair, 2, 4, hw::kFullWarp, site));
}

// `value`, available only once `known` is: adds 0 x known, which must be finite. Orders
// instructions for ptxas.
HT_DEVICE float after(float known, float value) { return hw::fma(known, 0.0f, value); }

// A thread's part of its warp's 16 rows: row lane / 4 and the one 8 further.
struct Softmax {
  float scale[2];        // softmax scale x log2(e), positive
  float neg_row_max[2];  // -scale x row_max so far, which P is relative to; +inf before any key
  float sum[2];          // of this thread's P
  float max_offset = 0;  // P is larger by 2^max_offset (8 for P in E4M3)

  HT_DEVICE explicit Softmax(float scale_log2) {
    scale[0] = scale[1] = scale_log2;
    neg_row_max[0] = neg_row_max[1] = kInfinity;
    sum[0] = sum[1] = 0;
  }
  // Scores become P. `rescale`: the correction factor of O and of the sum. `kInterleaved`: the
  // second row's maxima and the sums are computed beside the exponentials. Left to itself ptxas
  // puts each after the other; it moves nothing past a value that is needed, so the exponents of
  // every `kBatch` groups of keys wait for the sum of the group `kLag` before.
  template <bool kInterleaved, uint32_t kCount>
  HT_DEVICE void step(float (&s)[kCount], float (&rescale)[2],
                      hw::Site site = hw::Site::current()) {
    // Groups of 16 keys: a thread has two pairs of neighbours of each in either row.
    constexpr uint32_t kGroups = kCount / 8, kBatch = 2, kLag = 3;
    float row_max;
    const auto update_max = [&](uint32_t half, uint32_t group) {
      const float* x = s + 8 * group + 2 * half;
      row_max = hw::max(row_max, hw::max(x[0], x[1]));
      row_max = hw::max(row_max, hw::max(x[4], x[5]));
    };
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      if (!kInterleaved || half == 0) {
        row_max = -kInfinity;
        HT_UNROLL
        for (uint32_t group = 0; group < kGroups; ++group) update_max(half, group);
      }
      row_max = hw::max(row_max, hw::shuffle_xor(row_max, 1, 4, hw::kFullWarp, site));
      row_max = hw::max(row_max, hw::shuffle_xor(row_max, 2, 4, hw::kFullWarp, site));
      const float previous = neg_row_max[half];
      neg_row_max[half] = hw::min(previous, -hw::mul(row_max, scale[half]));
      // A row with all keys masked so far is relative to 0: its P are exp2(-inf) = 0.
      float offset = neg_row_max[half] == kInfinity ? 0 : neg_row_max[half];
      rescale[half] = hw::ex2_approx_ftz(hw::add(offset, -previous));
      if (max_offset != 0) offset = hw::add(offset, max_offset);
      float tile_sum = 0, sums[kGroups];
      HT_UNROLL
      for (uint32_t group = 0; group < kGroups; ++group) {
        if (kInterleaved && group % kBatch == 0 && group >= kBatch + kLag - 1) {
          offset = after(sums[group - kLag], offset);
        }
        HT_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
          float& x = s[8 * group + 2 * half + i / 2 * 4 + i % 2];
          x = hw::ex2_approx_ftz(hw::fma(x, scale[half], offset));
          tile_sum = hw::add(tile_sum, x);
        }
        sums[group] = tile_sum;
        if (kInterleaved && half == 0) {
          // `after` passes a NaN of the first row; max ignores it.
          if (group == 0) row_max = after(s[0], -kInfinity);
          update_max(1, group);
        }
      }
      sum[half] = hw::fma(sum[half], rescale[half], tile_sum);
    }
  }
  // P of a row is relative to 2^this: scaled row_max in base 2.
  HT_DEVICE float row_max_log2(uint32_t half) const { return -neg_row_max[half] - max_offset; }
  HT_DEVICE float row_sum(uint32_t half, hw::Site site = hw::Site::current()) const {
    return quad_sum(sum[half], site);
  }
};

// Masked keys of tile n get the score -inf; `visible` are the intervals of the thread's two rows.
template <uint32_t kCount>
HT_DEVICE void apply_mask(float (&s)[kCount], const KeyInterval (&visible)[2], uint32_t n) {
  constexpr uint32_t kKeys = 2 * kCount;
  const int32_t column = static_cast<int32_t>(n * kKeys + hw::lane_index() % 4 * 2);
  HT_UNROLL
  for (uint32_t half = 0; half < 2; ++half) {
    const int32_t first = visible[half].first - column, end = visible[half].end - column;
    HT_UNROLL
    for (uint32_t j = 0; j < kKeys / 4; ++j) {
      const int32_t key = static_cast<int32_t>(8 * (j / 2) + j % 2);
      float& score = s[4 * (j / 2) + 2 * half + j % 2];
      if (key < first || key >= end) score = -kInfinity;
    }
  }
}

// Byte offset of the scale of key `key` of a tile: the four that a thread needs of each 16 keys are
// contiguous.
HT_DEVICE uint32_t scale_offset(uint32_t key) {
  return (key / 16 * 16 + key % 8 / 2 * 4 + key / 8 % 2 * 2 + key % 2) * 4;
}
// Multiplies the columns of S, or of P, by FP32 scales in shared memory.
template <uint32_t kCount>
HT_DEVICE void scale_columns(float (&s)[kCount], hw::SharedAddress scales, hw::Site site) {
  const hw::SharedAddress own = scales + hw::lane_index() % 4 * 16;
  HT_UNROLL
  for (uint32_t i = 0; i < kCount; i += 8) {
    const auto four = hw::load_shared<hw::Vector<float, 4>>(own + i * 8, site);
    HT_UNROLL
    for (uint32_t e = 0; e < 8; ++e) s[i + e] = hw::mul(s[i + e], four[e / 4 * 2 + e % 2]);
  }
}

// A consumer warpgroup's operands and accumulators.
template <hw::Type kType, class Layout>
struct WarpgroupMma {
  static constexpr uint32_t kKeys = Layout::kKeys;
  hw::SharedAddress base;
  tile::WgmmaDescriptor q;
  float s[kKeys / 2], o[Layout::kValueDim / 2];
  uint32_t p[kKeys / 16][4];

  HT_DEVICE WarpgroupMma(hw::SharedAddress memory, uint32_t warpgroup)
      : base(memory),
        q(tile::WgmmaDescriptor::of(Layout::q_tile(), memory.value)
              .advanced(Layout::q_tile().advance(warpgroup * 64, 0))) {}
  // Starts S = Q K^T with the K of a stage, as one wgmma group.
  HT_DEVICE void start_qk(uint32_t stage, hw::Site site = hw::Site::current()) {
    const auto k = tile::WgmmaDescriptor::of(Layout::k_tile(),
                                             (base + (Layout::kK + stage * Layout::kKBytes)).value);
    constexpr hw::Type kOfKeys = Layout::kKeyBits == 8 ? hw::Type::e4m3 : kType;
    hw::wgmma_fence(site);
    HT_UNROLL
    for (uint32_t d = 0; d < Layout::kHeadDim; d += 256 / Layout::kKeyBits) {
      hw::wgmma<kOfKeys>(s, q.advanced(Layout::q_tile().advance(0, d)),
                         k.advanced(Layout::k_tile().advance(0, d)), d > 0, site);
    }
    hw::wgmma_commit(site);
  }
  // Starts O += P V with the V of a stage; `zero_init`: O = P V.
  HT_DEVICE void start_pv(uint32_t stage, bool zero_init, hw::Site site = hw::Site::current()) {
    const auto v = tile::WgmmaDescriptor::of(Layout::v_tile(),
                                             (base + (Layout::kV + stage * Layout::kVBytes)).value);
    hw::wgmma_fence(site);
    HT_UNROLL
    for (uint32_t k = 0; k < kKeys / 16; ++k) {
      hw::wgmma<kType, kType, Major::mn>(o, p[k], v.advanced(Layout::v_tile().advance(0, k * 16)),
                                         !zero_init || k > 0, site);
    }
    hw::wgmma_commit(site);
  }
  HT_DEVICE void rescale(const float (&by)[2]) {
    HT_UNROLL
    for (uint32_t j = 0; j < Layout::kValueDim / 2; ++j) o[j] = hw::mul(o[j], by[j / 2 % 2]);
  }
  // Rounds S to P: the accumulators of two neighbouring fragments are the A operand of P V.
  HT_DEVICE void convert_p() {
    HT_UNROLL
    for (uint32_t i = 0; i < kKeys / 4; ++i) {
      p[i / 4][i % 4] = round_pair<kType>(s[2 * i], s[2 * i + 1]);
    }
  }
};

}  // namespace halftone::attention_sm90
