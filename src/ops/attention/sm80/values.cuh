// O += P V in attention for all GPUs, with V that need not be finite where a row does not see it.
//
// 0 x infinity is NaN, so a value that is not finite would reach rows that its key is hidden from.
// In tiles with hidden keys such values are looked for. Where there are any, they are replaced by 0
// in V, and a second tile of codes takes the place of K: P's pattern times the codes counts, for
// each element of O, the infinities and NaN it sees.
#pragma once
#include "hw/barrier.h"
#include "hw/mma/ldmatrix.h"
#include "hw/mma/mma.h"
#include "ops/attention/sm80/operand.cuh"
#include "tile/ldmatrix.h"

namespace halftone::attention_sm80 {

// Products of fragments: A of 16 rows, two registers of B for 8 columns, 32 bytes of the sum's
// index.
template <hw::Type kType>
struct Product {
  struct Left {
    uint32_t part[4];
  };
  HT_DEVICE static Left left(const uint32_t (&a)[4]) { return {{a[0], a[1], a[2], a[3]}}; }
  HT_DEVICE static void add(float (&d)[4], const Left& a, uint32_t b0, uint32_t b1,
                            hw::Site site = hw::Site::current()) {
    const uint32_t b[2] = {b0, b1};
    hw::mma_m16n8k16<kType>(d, a.part, b, d, site);
  }
};

// f32, with e = 2^-24: each factor is the nearest tf32 and a remainder, of which the tensor core
// reads all but 2 e of the factor, so a product of the four parts is within 4 e of its magnitude.
// The tensor core cuts sums off instead of rounding them: at most 7 e of the magnitudes for each 4
// of the sum's index on sm_80, less on later ones. So a sum of 8 products starts from zero, the
// small parts first, and joins the others by an addition of f32. A sum of n is within
// (4 + 14 + n / 8) e of the magnitudes, which the n + 8 of a chain of FMAs covers from 12 on.
template <>
struct Product<hw::Type::tf32> {
  struct Left {
    uint32_t high[4], low[4];
  };
  // An infinity or a NaN has no remainder, and the largest numbers are cut off, not rounded.
  HT_DEVICE static void split(uint32_t x, uint32_t& high, uint32_t& low) {
    constexpr uint32_t kExponent = 0x7f800000, kTf32 = 0xffffe000, kHalf = 0x1000;
    const bool finite = (x & kExponent) != kExponent;
    const uint32_t nearest = (x + kHalf) & kTf32;
    high = finite && (nearest & kExponent) != kExponent ? nearest : x & kTf32;
    if (!finite && (x & 0x7fffff) != 0) high |= 0x400000;  // a NaN keeps being one
    low =
        finite
            ? std::bit_cast<uint32_t>(hw::add(std::bit_cast<float>(x), -std::bit_cast<float>(high)))
            : 0;
  }
  HT_DEVICE static Left left(const uint32_t (&a)[4]) {
    Left result;
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) split(a[i], result.high[i], result.low[i]);
    return result;
  }
  HT_DEVICE static void add(float (&d)[4], const Left& a, uint32_t b0, uint32_t b1,
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
  using Math = Product<kType>;
  using P = float[kKeys / 8][4];
  using Sums = float[kDim / 8][4];
  static constexpr bool kWords = kType == hw::Type::tf32;  // else halves
  static constexpr uint32_t kRowBytes = kDim * kElementBytes<kType>;
  static constexpr uint32_t kStep = 32 / kElementBytes<kType>;  // keys of a product
  static constexpr uint32_t kThreadChunks = kKeys * kRowBytes / 16 / kThreads;

  // The accumulators of a warp's scores are the left operand. f32: a thread has the keys 2t and
  // 2t + 1 of 8 where the operand wants t and t + 4, so those change places, in V too.
  HT_DEVICE static typename Math::Left weights(const P& p, uint32_t step) {
    if constexpr (kWords) {
      const float(&x)[4] = p[step];
      return Math::left({std::bit_cast<uint32_t>(x[0]), std::bit_cast<uint32_t>(x[2]),
                         std::bit_cast<uint32_t>(x[1]), std::bit_cast<uint32_t>(x[3])});
    } else {
      const float(&x)[4] = p[2 * step], (&y)[4] = p[2 * step + 1];
      return Math::left({round_pair<kType>(x[0], x[1]), round_pair<kType>(x[2], x[3]),
                         round_pair<kType>(y[0], y[1]), round_pair<kType>(y[2], y[3])});
    }
  }
  // 1 where a weight is not 0.
  HT_DEVICE static typename Math::Left pattern(const P& p, uint32_t step) {
    P ones;
    HT_UNROLL
    for (uint32_t j = 0; j < kKeys / 8; ++j) {
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) ones[j][i] = p[j][i] != 0 ? 1 : 0;
    }
    return weights(ones, step);
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
  HT_DEVICE static void multiply(hw::SharedAddress tile, const P (&p)[kFragments],
                                 Sums (&o)[kFragments], hw::Site site = hw::Site::current()) {
    HT_UNROLL
    for (uint32_t step = 0; step < kKeys / kStep; ++step) {
      typename Math::Left a[kFragments];
      HT_UNROLL
      for (uint32_t f = 0; f < kFragments; ++f) a[f] = weights(p[f], step);
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

  // Codes of what is not finite: sums of 64 of each kind stay apart. NaN counts as both infinities.
  static constexpr float kPlus = 1, kMinus = 128;

  HT_DEVICE static bool finite(uint32_t word) {
    constexpr uint32_t kExponent = kWords ? 0x7f800000 : kType == hw::Type::bf16 ? 0x7f80 : 0x7c00;
    if constexpr (kWords) return (word & kExponent) != kExponent;
    return (word & kExponent) != kExponent && (word >> 16 & kExponent) != kExponent;
  }
  // Whether any value of the tile is not finite; all threads of the block ask.
  HT_DEVICE static bool any_infinite(hw::SharedAddress tile, hw::Site site = hw::Site::current()) {
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
  HT_DEVICE static float code(float x) {
    if (x != x) return kPlus + kMinus;
    return x == __builtin_huge_valf() ? kPlus : x == -__builtin_huge_valf() ? kMinus : 0;
  }
  // Takes what is not finite out of the tile and writes its codes to another.
  HT_DEVICE static void separate(hw::SharedAddress tile, hw::SharedAddress codes,
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
          found.at[w] = std::bit_cast<uint32_t>(code(std::bit_cast<float>(word)));
          if (found.at[w] != 0) word = 0;
        } else {
          const auto low = static_cast<uint16_t>(word), high = static_cast<uint16_t>(word >> 16);
          constexpr bool kBf16 = kType == hw::Type::bf16;
          const float x = code(kBf16 ? hw::cvt_f32_bf16(low) : hw::cvt_f32_f16(low));
          const float y = code(kBf16 ? hw::cvt_f32_bf16(high) : hw::cvt_f32_f16(high));
          if (x != 0) word &= 0xffff0000;
          if (y != 0) word &= 0xffff;
          found.at[w] = round_pair<kType>(x, y);
        }
      }
      hw::store_shared(tile + at, words, site);
      hw::store_shared(codes + at, found, site);
    }
    hw::barrier_sync(site);
  }
  // Adds to O what its rows see of those. `scratch` is the tile of V, which nobody reads any more:
  // through it the counts get to the registers of O without a copy of this for each of them.
  HT_DEVICE static void add_infinite(hw::SharedAddress codes, hw::SharedAddress scratch, const P& p,
                                     Sums& o, hw::Site site = hw::Site::current()) {
    constexpr uint32_t kSteps = kKeys / kStep, kPlusSeen = 1, kMinusSeen = 2;
    static_assert(kDim / 8 * kThreads * 4 <= kKeys * kRowBytes, "a word for each fragment of O");
    const auto word = [&](uint32_t j) {
      return scratch + (j * kThreads + hw::thread_index().x) * 4;
    };
    typename Math::Left a[kSteps];
    HT_UNROLL
    for (uint32_t step = 0; step < kSteps; ++step) a[step] = pattern(p, step);
    HT_ROLLED
    for (uint32_t j = 0; j < kDim / 8; j += 2) {
      float sum[2][4] = {};
      HT_UNROLL
      for (uint32_t step = 0; step < kSteps; ++step) {
        uint32_t b[4];
        load(codes, step, j, b, site);
        Math::add(sum[0], a[step], b[0], b[1], site);
        Math::add(sum[1], a[step], b[2], b[3], site);
      }
      HT_UNROLL
      for (uint32_t n = 0; n < 2; ++n) {
        uint32_t seen = 0;
        HT_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
          const auto count = static_cast<uint32_t>(sum[n][i]);
          if (count % 128 != 0) seen |= kPlusSeen << 8 * i;
          if (count >= 128) seen |= kMinusSeen << 8 * i;
        }
        hw::store_shared(word(j + n), seen, site);
      }
    }
    HT_UNROLL
    for (uint32_t j = 0; j < kDim / 8; ++j) {
      const auto seen = hw::load_shared<uint32_t>(word(j), site);
      if (seen == 0) continue;
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        if ((seen >> 8 * i & kPlusSeen) != 0) o[j][i] = hw::add(o[j][i], __builtin_huge_valf());
        if ((seen >> 8 * i & kMinusSeen) != 0) o[j][i] = hw::add(o[j][i], -__builtin_huge_valf());
      }
    }
  }
};

}  // namespace halftone::attention_sm80
