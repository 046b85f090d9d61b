// Attention on Hopper: the products of a warpgroup and the softmax of its rows.
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

// The sum over the four threads that have parts of a row.
HT_DEVICE float sum_of_quad(float x, hw::Site site = hw::Site::current()) {
  const float pair = hw::add(x, hw::shuffle_xor(x, 1, 4, hw::kFullWarp, site));
  return hw::add(pair, hw::shuffle_xor(pair, 2, 4, hw::kFullWarp, site));
}

// `value`, to be had only once `known` is: 0 x known is added, which is to be finite.
HT_DEVICE float after(float known, float value) { return hw::fma(known, 0.0f, value); }

// A thread's part of its warp's 16 rows: row lane / 4 and the one 8 further.
struct Softmax {
  float scale[2];  // softmax scale x log2(e), positive
  float shift[2];  // -scale x largest score so far, what P is relative to; +inf before any key
  float sum[2];    // of this thread's P
  float lift = 0;  // P are larger by 2^lift

  HT_DEVICE explicit Softmax(float scale_log2) {
    scale[0] = scale[1] = scale_log2;
    shift[0] = shift[1] = kInfinity;
    sum[0] = sum[1] = 0;
  }
  // The scores become P. `rescale`: what O, as the sum, is to be multiplied by. `kInterleaved`: the
  // second row's maxima and the sums are found beside the exponentials. Left to itself ptxas puts
  // each after the other; it moves nothing past a number that is needed, so the exponents of every
  // `kBatch` groups of keys wait for the sum of the group `kLag` before.
  template <bool kInterleaved, uint32_t kCount>
  HT_DEVICE void step(float (&s)[kCount], float (&rescale)[2],
                      hw::Site site = hw::Site::current()) {
    // Groups of 16 keys: of each a thread has two pairs of neighbours in either row.
    constexpr uint32_t kGroups = kCount / 8, kBatch = 2, kLag = 3;
    float top;
    const auto look = [&](uint32_t half, uint32_t group) {
      const float* x = s + 8 * group + 2 * half;
      top = hw::max(top, hw::max(x[0], x[1]));
      top = hw::max(top, hw::max(x[4], x[5]));
    };
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      if (!kInterleaved || half == 0) {
        top = -kInfinity;
        HT_UNROLL
        for (uint32_t group = 0; group < kGroups; ++group) look(half, group);
      }
      top = hw::max(top, hw::shuffle_xor(top, 1, 4, hw::kFullWarp, site));
      top = hw::max(top, hw::shuffle_xor(top, 2, 4, hw::kFullWarp, site));
      const float before = shift[half];
      shift[half] = hw::min(before, -hw::mul(top, scale[half]));
      // A row that has seen no key yet is relative to 0: its P are exp(-inf) = 0.
      float now = shift[half] == kInfinity ? 0 : shift[half];
      rescale[half] = hw::ex2_approx_ftz(hw::add(now, -before));
      if (lift != 0) now = hw::add(now, lift);
      float part = 0, sums[kGroups];
      HT_UNROLL
      for (uint32_t group = 0; group < kGroups; ++group) {
        if (kInterleaved && group % kBatch == 0 && group >= kBatch + kLag - 1) {
          now = after(sums[group - kLag], now);
        }
        HT_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
          float& x = s[8 * group + 2 * half + i / 2 * 4 + i % 2];
          x = hw::ex2_approx_ftz(hw::fma(x, scale[half], now));
          part = hw::add(part, x);
        }
        sums[group] = part;
        if (kInterleaved && half == 0) {
          // Of a NaN in the first row too: a maximum passes over it.
          if (group == 0) top = after(s[0], -kInfinity);
          look(1, group);
        }
      }
      sum[half] = hw::fma(sum[half], rescale[half], part);
    }
  }
  // A row's P are relative to 2^level.
  HT_DEVICE float row_level(uint32_t half) const { return -shift[half] - lift; }
  HT_DEVICE float row_sum(uint32_t half, hw::Site site = hw::Site::current()) const {
    return sum_of_quad(sum[half], site);
  }
};

// Keys of tile n that a row does not see get the score -inf.
template <uint32_t kCount>
HT_DEVICE void hide(float (&s)[kCount], const KeyInterval (&seen)[2], uint32_t n) {
  constexpr uint32_t kKeys = 2 * kCount;
  const int32_t column = static_cast<int32_t>(n * kKeys + hw::lane_index() % 4 * 2);
  HT_UNROLL
  for (uint32_t half = 0; half < 2; ++half) {
    const int32_t first = seen[half].first - column, end = seen[half].end - column;
    HT_UNROLL
    for (uint32_t j = 0; j < kKeys / 4; ++j) {
      const int32_t key = static_cast<int32_t>(8 * (j / 2) + j % 2);
      float& score = s[4 * (j / 2) + 2 * half + j % 2];
      if (key < first || key >= end) score = -kInfinity;
    }
  }
}

// Where the scale of key `key` of a tile lies, so that the four that a thread needs of each 16 lie
// side by side.
HT_DEVICE uint32_t scale_offset(uint32_t key) {
  return (key / 16 * 16 + key % 8 / 2 * 4 + key / 8 % 2 * 2 + key % 2) * 4;
}
// Multiplies the columns of S, or P, by f32 scales in shared memory.
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

// One warpgroup's operands and accumulators.
template <hw::Type kType, class Layout>
struct Products {
  static constexpr uint32_t kKeys = Layout::kKeys;
  hw::SharedAddress base;
  tile::WgmmaDescriptor q;
  float s[kKeys / 2], o[Layout::kValueDim / 2];
  uint32_t p[kKeys / 16][4];

  HT_DEVICE Products(hw::SharedAddress memory, uint32_t warpgroup)
      : base(memory),
        q(tile::WgmmaDescriptor::of(Layout::q_tile(), memory.value)
              .advanced(Layout::q_tile().advance(warpgroup * 64, 0))) {}
  // Starts S = Q K^T with the K of a stage, as one group.
  HT_DEVICE void multiply_keys(uint32_t stage, hw::Site site = hw::Site::current()) {
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
  // Starts O += P V with the V of a stage; `fresh`: O = P V.
  HT_DEVICE void multiply_values(uint32_t stage, bool fresh, hw::Site site = hw::Site::current()) {
    const auto v = tile::WgmmaDescriptor::of(Layout::v_tile(),
                                             (base + (Layout::kV + stage * Layout::kVBytes)).value);
    hw::wgmma_fence(site);
    HT_UNROLL
    for (uint32_t k = 0; k < kKeys / 16; ++k) {
      hw::wgmma<kType, kType, Major::mn>(o, p[k], v.advanced(Layout::v_tile().advance(0, k * 16)),
                                         !fresh || k > 0, site);
    }
    hw::wgmma_commit(site);
  }
  HT_DEVICE void rescale(const float (&by)[2]) {
    HT_UNROLL
    for (uint32_t j = 0; j < Layout::kValueDim / 2; ++j) o[j] = hw::mul(o[j], by[j / 2 % 2]);
  }
  // The accumulator of two neighbouring fragments is the operand of the next product.
  HT_DEVICE void round() {
    HT_UNROLL
    for (uint32_t i = 0; i < kKeys / 4; ++i) {
      p[i / 4][i % 4] = round_pair<kType>(s[2 * i], s[2 * i + 1]);
    }
  }
};

}  // namespace halftone::attention_sm90
