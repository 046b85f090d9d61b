// O += P V in attention on sm_80 and later, with V that need not be finite where it is masked.
//
// 0 x infinity is NaN, so a value that is not finite would reach rows for which its key is masked.
// In tiles with masked keys such values are looked for. Where there are any, they are replaced by 0
// in V, and a second tile of markers overlays K: P's pattern times the markers counts, for each
// element of O, the visible infinities and NaN.
#pragma once
#include "hw/barrier.h"
#include "hw/mma/ldmatrix.h"
#include "hw/mma/mma.h"
#include "ops/attention/sm80/operand.cuh"
#include "tile/ldmatrix.h"

namespace halftone::attention_sm80 {

// MMA of fragments: A of 16 rows, two registers of B for 8 columns, 32 bytes of K.
template <hw::Type kType>
struct Mma {
  struct OperandA {
    uint32_t a[4];
  };
  HT_DEVICE static OperandA operand_a(const uint32_t (&a)[4]) { return {{a[0], a[1], a[2], a[3]}}; }
  HT_DEVICE static void add(float (&d)[4], const OperandA& a, uint32_t b0, uint32_t b1,
                            hw::Site site = hw::Site::current()) {
    const uint32_t b[2] = {b0, b1};
    hw::mma_m16n8k16<kType>(d, a.a, b, d, site);
  }
};

// FP32 by TF32, with e = 2^-24: each factor is the nearest TF32 and a remainder, of which the
// tensor core reads all but 2 e of the factor, so a product of the four parts is within 4 e of its
// magnitude. The tensor core truncates sums instead of rounding them: at most 7 e of the magnitudes
// for each 4 of K on sm_80, less on later ones. So a sum of 8 products starts from zero, the small
// parts first, and joins the others by an FP32 addition. A sum of n is within (4 + 14 + n / 8) e of
// the magnitudes, which the n + 8 of a chain of FMAs covers from 12 on.
template <>
struct Mma<hw::Type::tf32> {
  struct OperandA {
    uint32_t high[4], low[4];
  };
  // An infinity or a NaN has no remainder, and the largest numbers are truncated, not rounded.
  HT_DEVICE static void split(uint32_t x, uint32_t& high, uint32_t& low) {
    constexpr uint32_t kExponent = 0x7f800000, kTf32 = 0xffffe000, kHalf = 0x1000;
    const bool finite = (x & kExponent) != kExponent;
    const uint32_t nearest = (x + kHalf) & kTf32;
    high = finite && (nearest & kExponent) != kExponent ? nearest : x & kTf32;
    if (!finite && (x & 0x7fffff) != 0) high |= 0x400000;  // a NaN stays NaN
    low =
        finite
            ? std::bit_cast<uint32_t>(hw::add(std::bit_cast<float>(x), -std::bit_cast<float>(high)))
            : 0;
  }
  HT_DEVICE static OperandA operand_a(const uint32_t (&a)[4]) {
    OperandA result;
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) split(a[i], result.high[i], result.low[i]);
    return result;
  }
  HT_DEVICE static void add(float (&d)[4], const OperandA& a, uint32_t b0, uint32_t b1,
                            hw::Site site = hw::Site::current()) {
    uint32_t high[2], low[2];
    split(b0, high[0], low[0]);
    split(b1, high[1], low[1]);
    float sum[4] = {};
    hw::mma_m16n8k8<hw::Type::tf32>(sum, a.low, low, sum, site);
    hw::mma_m16n8k8<hw::Type::tf32>(sum, a.low, high, sum, site);
    hw::mma_m16n8k8<hw::Type::tf32>(sum, a.high, low, sum, site);
    hw::mma_m16n8k8<hw::Type::tf32>(sum, a.high, high, sum, site);
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) d[i] = hw::add(d[i], sum[i]);
  }
};

template <hw::Type kType, uint32_t kDim, uint32_t kKeys, uint32_t kThreads>
struct Values {
  using Math = Mma<kType>;
  using P = float[kKeys / 8][4];
  using Accumulators = float[kDim / 8][4];
  static constexpr bool kWords = kType == hw::Type::tf32;  // else 16-bit types
  static constexpr uint32_t kRowBytes = kDim * kElementBytes<kType>;
  static constexpr uint32_t kStep = 32 / kElementBytes<kType>;  // keys of an MMA
  static constexpr uint32_t kThreadChunks = kKeys * kRowBytes / 16 / kThreads;

  // P in accumulators is the A operand. FP32: a thread has the keys 2t and 2t + 1 of 8 where the
  // operand wants t and t + 4, so those change places, in V too.
  HT_DEVICE static typename Math::OperandA p_operand(const P& p, uint32_t step) {
    if constexpr (kWords) {
      const float(&x)[4] = p[step];
      return Math::operand_a({std::bit_cast<uint32_t>(x[0]), std::bit_cast<uint32_t>(x[2]),
                              std::bit_cast<uint32_t>(x[1]), std::bit_cast<uint32_t>(x[3])});
    } else {
      const float(&x)[4] = p[2 * step], (&y)[4] = p[2 * step + 1];
      return Math::operand_a({round_pair<kType>(x[0], x[1]), round_pair<kType>(x[2], x[3]),
                              round_pair<kType>(y[0], y[1]), round_pair<kType>(y[2], y[3])});
    }
  }
  // 1 where P is not 0.
  HT_DEVICE static typename Math::OperandA pattern(const P& p, uint32_t step) {
    P indicator;
    HT_UNROLL
    for (uint32_t j = 0; j < kKeys / 8; ++j) {
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) indicator[j][i] = p[j][i] != 0 ? 1 : 0;
    }
    return p_operand(indicator, step);
  }
  // B of 16 columns from column 8 j on.
  HT_DEVICE static void load(hw::SharedAddress tile, uint32_t step, uint32_t j, uint32_t (&b)[4],
                             hw::Site site = hw::Site::current()) {
    const uint32_t lane = hw::lane_index();
    if constexpr (kWords) {
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t chunk = 2 * (j + i / 2), row = step * kStep + lane % 4 * 2 + i % 2;
        b[i] = hw::load_shared<uint32_t>(
            chunk_at<kRowBytes>(tile, row, chunk % 8 + lane / 16, chunk / 8) + lane / 4 % 4 * 4,
            site);
      }
    } else {
      const tile::RowChunk place = tile::ldmatrix_b_trans(static_cast<int>(lane));
      hw::ldmatrix_trans(
          b, chunk_at<kRowBytes>(tile, step * kStep + place.row, j % 8 + place.chunk, j / 8), site);
    }
  }

  template <uint32_t kFragments>
  HT_DEVICE static void mma_pv(hw::SharedAddress tile, const P (&p)[kFragments],
                               Accumulators (&o)[kFragments], hw::Site site = hw::Site::current()) {
    HT_UNROLL
    for (uint32_t step = 0; step < kKeys / kStep; ++step) {
      typename Math::OperandA a[kFragments];
      HT_UNROLL
      for (uint32_t f = 0; f < kFragments; ++f) a[f] = p_operand(p[f], step);
      HT_UNROLL
      for (uint32_t j = 0; j < kDim / 8; j += 2) {
        uint32_t b[4];
        load(tile, step, j, b, site);
        HT_UNROLL
        for (uint32_t f = 0; f < kFragments; ++f) {
          Math::add(o[f][j], a[f], b[0], b[1], site);
          Math::add(o[f][j + 1], a[f], b[2], b[3], site);
        }
      }
    }
  }

  // Markers of values that are not finite: sums of 64 of each kind stay distinct. NaN counts as
  // both infinities.
  static constexpr float kPlus = 1, kMinus = 128;

  HT_DEVICE static bool finite(uint32_t word) {
    constexpr uint32_t kExponent = kWords ? 0x7f800000 : kType == hw::Type::bf16 ? 0x7f80 : 0x7c00;
    if constexpr (kWords) return (word & kExponent) != kExponent;
    return (word & kExponent) != kExponent && (word >> 16 & kExponent) != kExponent;
  }
  // Whether any value of the tile is not finite; all threads of the CTA take part.
  HT_DEVICE static bool any_non_finite(hw::SharedAddress tile,
                                       hw::Site site = hw::Site::current()) {
    bool all = true;
    HT_UNROLL
    for (uint32_t i = 0; i < kThreadChunks; ++i) {
      const auto words =
          hw::load_shared<hw::Words4>(tile + (i * kThreads + hw::thread_index().x) * 16, site);
      HT_UNROLL
      for (uint32_t w = 0; w < 4; ++w) all = all && finite(words.at[w]);
    }
    return hw::barrier_any(0, kThreads, !all, site);
  }
  HT_DEVICE static float marker(float x) {
    if (x != x) return kPlus + kMinus;
    return x == __builtin_huge_valf() ? kPlus : x == -__builtin_huge_valf() ? kMinus : 0;
  }
  // Zeroes values that are not finite in the tile and writes their markers to another.
  HT_DEVICE static void extract_non_finite(hw::SharedAddress tile, hw::SharedAddress markers,
                                           hw::Site site = hw::Site::current()) {
    HT_ROLLED
    for (uint32_t i = 0; i < kThreadChunks; ++i) {
      const uint32_t at = (i * kThreads + hw::thread_index().x) * 16;
      auto words = hw::load_shared<hw::Words4>(tile + at, site);
      hw::Words4 found;
      HT_UNROLL
      for (uint32_t w = 0; w < 4; ++w) {
        uint32_t& word = words.at[w];
        if constexpr (kWords) {
          found.at[w] = std::bit_cast<uint32_t>(marker(std::bit_cast<float>(word)));
          if (found.at[w] != 0) word = 0;
        } else {
          const auto low = static_cast<uint16_t>(word), high = static_cast<uint16_t>(word >> 16);
          constexpr bool kBf16 = kType == hw::Type::bf16;
          const float x = marker(kBf16 ? hw::cvt_f32_bf16(low) : hw::cvt_f32_f16(low));
          const float y = marker(kBf16 ? hw::cvt_f32_bf16(high) : hw::cvt_f32_f16(high));
          if (x != 0) word &= 0xffff0000;
          if (y != 0) word &= 0xffff;
          found.at[w] = round_pair<kType>(x, y);
        }
      }
      hw::store_shared(tile + at, words, site);
      hw::store_shared(markers + at, found, site);
    }
    hw::barrier_sync(site);
  }
  // Adds the visible ones to O. `scratch` is the tile of V, which is no longer read: through it the
  // counts get to the registers of O without a copy of this code for each of them.
  HT_DEVICE static void add_non_finite(hw::SharedAddress markers, hw::SharedAddress scratch,
                                       const P& p, Accumulators& o,
                                       hw::Site site = hw::Site::current()) {
    constexpr uint32_t kSteps = kKeys / kStep, kPlusVisible = 1, kMinusVisible = 2;
    static_assert(kDim / 8 * kThreads * 4 <= kKeys * kRowBytes, "a word for each fragment of O");
    const auto word = [&](uint32_t j) {
      return scratch + (j * kThreads + hw::thread_index().x) * 4;
    };
    typename Math::OperandA a[kSteps];
    HT_UNROLL
    for (uint32_t step = 0; step < kSteps; ++step) a[step] = pattern(p, step);
    HT_ROLLED
    for (uint32_t j = 0; j < kDim / 8; j += 2) {
      float sum[2][4] = {};
      HT_UNROLL
      for (uint32_t step = 0; step < kSteps; ++step) {
        uint32_t b[4];
        load(markers, step, j, b, site);
        Math::add(sum[0], a[step], b[0], b[1], site);
        Math::add(sum[1], a[step], b[2], b[3], site);
      }
      HT_UNROLL
      for (uint32_t n = 0; n < 2; ++n) {
        uint32_t visible = 0;
        HT_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
          const auto count = static_cast<uint32_t>(sum[n][i]);
          if (count % 128 != 0) visible |= kPlusVisible << 8 * i;
          if (count >= 128) visible |= kMinusVisible << 8 * i;
        }
        hw::store_shared(word(j + n), visible, site);
      }
    }
    HT_UNROLL
    for (uint32_t j = 0; j < kDim / 8; ++j) {
      const auto visible = hw::load_shared<uint32_t>(word(j), site);
      if (visible == 0) continue;
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        if ((visible >> 8 * i & kPlusVisible) != 0)
          o[j][i] = hw::add(o[j][i], __builtin_huge_valf());
        if ((visible >> 8 * i & kMinusVisible) != 0)
          o[j][i] = hw::add(o[j][i], -__builtin_huge_valf());
      }
    }
  }
};

}  // namespace halftone::attention_sm80
