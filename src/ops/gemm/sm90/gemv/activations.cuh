// The row of x of the sm_90a GEMVs in shared memory, scaled by a power of two so that packed
// weights become MMA operands in few instructions.
//
// E2M1 values, their bits moved to where BF16 has sign, exponent and mantissa, are the value times
// 2^-126. The multiplication by 2^126 for every pair of weights is saved where x is scaled by a
// power of two, the one that brings its largest element to the highest binade: what is 2^148 times
// smaller than that is lost.
//
// 8-bit values, like FP16 weights, are exact in FP16, and one instruction on sm_90 converts two of
// them; BF16 x is not, as FP16 has 33 binades for numbers of 8 significant bits. So x is scaled by
// a power of two and split into two parts, each exact: the elements of the highest 33 binades, and
// 2^33 times those of the next. Both are columns of the same MMA. What is 2^66 times smaller than
// the largest element is rounded to multiples of 2^-72 of it.
#pragma once
#include "hw/vote.h"
#include "ops/gemm/sm80/tile_work.h"
#include "ops/gemm/sm90/gemv/params.h"

namespace halftone::gemm {

// 2^exponent, for exponents of -126 to 127.
HT_DEVICE float power_of_two(int32_t exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}
// x times 2^exponent, for exponents of -252 to 254: one float may not hold the power.
HT_DEVICE float scaled_by(float x, int32_t exponent) {
  const int32_t half = exponent / 2;
  return x * power_of_two(half) * power_of_two(exponent - half);
}

// The threads that load a row: whole warps.
struct Sm90GemvThreads {
  uint32_t index, count;  // of the thread among them
  uint32_t first_warp;
};

// Destination: row `row` of `rows`; there is room for `k` elements in all.
struct Sm90GemvXDestination {
  hw::SharedAddress x;
  uint32_t row, rows, k;
};

// `kKept`: groups of eight elements that a thread keeps in registers. What is beyond them is read
// twice.
template <GpuCode kCode, uint32_t kKept>
class Sm90GemvX {
 public:
  using Policy = CodePolicy<kCode>;
  using XLayout = Sm90GemvXLayout<kCode>;
  static constexpr bool kScaledX = kCode == GpuCode::e2m1, kTwoParts = XLayout::kTwoParts;

  // Loads the row, except what is not kept in registers.
  HT_DEVICE Sm90GemvX(const uint8_t* x, uint32_t octets, Sm90GemvThreads threads,
                      hw::Site site = hw::Site::current())
      : x_(reinterpret_cast<const hw::Words4*>(x)), octets_(octets), threads_(threads) {
    HT_UNROLL
    for (uint32_t i = 0; i < kKept; ++i) {
      const uint32_t octet = threads_.index + i * threads_.count;
      if (octet < octets_) kept_[i] = hw::load_global(x_ + octet, site);
    }
  }

  // Stages the weights of the fused RMS norm at the places of the thread's own elements, of a row
  // that is kept in registers: before x is written there.
  HT_DEVICE static void stage_norm_weights(const Sm90GemvNorm& norm, hw::SharedAddress to,
                                           uint32_t octets, Sm90GemvThreads threads,
                                           hw::Site site = hw::Site::current()) {
    const auto* from = reinterpret_cast<const hw::Words4*>(norm.weight);
    HT_UNROLL
    for (uint32_t i = 0; i < kKept; ++i) {
      const uint32_t octet = threads.index + i * threads.count;
      if (octet < octets) {
        hw::store_shared(to + octet * 16, hw::load_global(from + octet, site), site);
      }
    }
  }
  // Applies the norm, rounded as rms_norm() rounds. `words`: shared memory, one word a warp, that
  // nobody else uses before the next `sync`.
  template <class Sync>
  HT_DEVICE void normalise(const Sm90GemvNorm& norm, hw::SharedAddress weights,
                           hw::SharedAddress words, Sync sync,
                           hw::Site site = hw::Site::current()) {
    float squares = 0;
    HT_UNROLL
    for (uint32_t i = 0; i < kKept; ++i) {
      HT_UNROLL
      for (uint32_t j = 0; j < 8; ++j) {
        const float x = element(kept_[i], j);  // 0 beyond the row
        squares = hw::fma(x, x, squares);
      }
    }
    squares = sum_of_warp(squares, site);
    if (hw::lane_index() == 0) hw::store_shared(words + hw::warp_index() * 4, squares, site);
    sync();
    const uint32_t lane = hw::lane_index();
    squares = lane < threads_.count / 32 ? hw::load_shared<float>(words + lane * 4, site) : 0.0f;
    const auto count = static_cast<float>(octets_ * 8);
    const float scale = 1.0f / sqrtf(sum_of_warp(squares, site) / count + norm.eps);
    HT_UNROLL
    for (uint32_t i = 0; i < kKept; ++i) {
      const uint32_t octet = threads_.index + i * threads_.count;
      if (octet >= octets_) continue;
      const auto w = hw::load_shared<hw::Words4>(weights + octet * 16, site);
      HT_UNROLL
      for (uint32_t j = 0; j < 8; j += 2) {
        float y[2];
        HT_UNROLL
        for (uint32_t h = 0; h < 2; ++h) {
          y[h] = element(kept_[i], j + h) * scale * (element(w, j + h) + norm.offset);
        }
        kept_[i][j / 2] = hw::cvt_bf16x2(y[0], y[1]);
      }
    }
  }

  // Writes the row to shared memory; accumulators must then be multiplied by 2^exponent(). `words`:
  // shared memory, one word a warp. Called by all consumer threads, which `sync` waits for.
  template <class Sync>
  HT_DEVICE void place(const Sm90GemvXDestination& to, hw::SharedAddress words, Sync sync,
                       hw::Site site = hw::Site::current()) {
    if constexpr (kScaledX || kTwoParts) {
      const auto binade = static_cast<int32_t>(largest_of_all(words, sync, site) >> 7);
      shift_ = (kScaledX ? 254 : 142) - binade;
    }
    each([&](uint32_t octet, const hw::Words4& x) { store(to, octet, x, site); }, site);
  }
  // Zeros behind the row, up to `k` elements.
  HT_DEVICE void pad(const Sm90GemvXDestination& to, uint32_t k,
                     hw::Site site = hw::Site::current()) const {
    HT_ROLLED
    for (uint32_t octet = octets_ + threads_.index; octet < k / 8; octet += threads_.count) {
      if constexpr (kTwoParts) {
        hw::store_shared(at(to, octet) + XLayout::second_part(to.k), hw::Words4{}, site);
      }
      hw::store_shared(at(to, octet), hw::Words4{}, site);
    }
  }
  HT_DEVICE int32_t exponent() const { return (kScaledX ? 126 : 0) - shift_; }

 private:
  HT_DEVICE static float element(const hw::Words4& octet, uint32_t i) {
    const uint32_t pair = octet[i / 2];
    return std::bit_cast<float>(i % 2 == 0 ? pair << 16 : pair & 0xffff0000u);
  }
  HT_DEVICE static float sum_of_warp(float x, hw::Site site) {
    HT_UNROLL
    for (uint32_t d = 16; d > 0; d /= 2) x += hw::shuffle_xor(x, d, 32, hw::kFullWarp, site);
    return x;
  }
  template <class Do>
  HT_DEVICE void each(Do f, hw::Site site) {
    HT_UNROLL
    for (uint32_t i = 0; i < kKept; ++i) {
      const uint32_t octet = threads_.index + i * threads_.count;
      if (octet < octets_) f(octet, kept_[i]);
    }
    HT_ROLLED
    for (uint32_t octet = threads_.index + kKept * threads_.count; octet < octets_;
         octet += threads_.count) {
      f(octet, hw::load_global(x_ + octet, site));
    }
  }
  // The largest magnitude, as BF16 bits.
  template <class Sync>
  HT_DEVICE uint32_t largest_of_all(hw::SharedAddress words, Sync sync, hw::Site site) {
    uint32_t largest = 0;
    each(
        [&](uint32_t, const hw::Words4& x) {
          HT_UNROLL
          for (uint32_t i = 0; i < 4; ++i) {
            const uint32_t low = x[i] & 0x7fff, high = x[i] >> 16 & 0x7fff;
            largest = low > largest ? low : largest;
            largest = high > largest ? high : largest;
          }
        },
        site);
    largest = hw::redux<hw::Reduction::max>(largest, hw::kFullWarp, site);
    if (hw::lane_index() == 0) hw::store_shared(words + hw::warp_index() * 4, largest, site);
    sync();
    const uint32_t lane = hw::lane_index(), warps = threads_.count / 32;
    const uint32_t warp = threads_.first_warp + (lane < warps ? lane : warps - 1);
    largest = hw::load_shared<uint32_t>(words + warp * 4, site);
    return hw::redux<hw::Reduction::max>(largest, hw::kFullWarp, site);
  }
  HT_DEVICE static hw::SharedAddress at(const Sm90GemvXDestination& to, uint32_t octet) {
    constexpr uint32_t kOctets = XLayout::kSpanBytes / 16;
    if (to.rows == 1) return to.x + octet * 16;
    return to.x + ((octet / kOctets * to.rows + to.row) * kOctets + octet % kOctets) * 16;
  }
  HT_DEVICE void store(const Sm90GemvXDestination& to, uint32_t octet, const hw::Words4& words,
                       hw::Site site) const {
    uint32_t x[4] = {words[0], words[1], words[2], words[3]}, rest[4] = {};
    if constexpr (kScaledX || kTwoParts) {
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        const float low = scaled_by(std::bit_cast<float>(x[i] << 16), shift_);
        const float high = scaled_by(std::bit_cast<float>(x[i] & 0xffff0000u), shift_);
        if constexpr (kScaledX) {
          x[i] = hw::cvt_bf16x2(low, high);
        } else {
          const bool low_first = !(std::abs(low) < 0x1p-17f);
          const bool high_first = !(std::abs(high) < 0x1p-17f);
          x[i] = hw::cvt_f16x2(low_first ? low : 0, high_first ? high : 0);
          rest[i] = hw::cvt_f16x2(low_first ? 0 : low * 0x1p33f, high_first ? 0 : high * 0x1p33f);
        }
      }
    }
    if constexpr (kTwoParts) {
      hw::store_shared(at(to, octet) + XLayout::second_part(to.k),
                       hw::Words4{{rest[0], rest[1], rest[2], rest[3]}}, site);
    }
    Policy::arrange(x);
    hw::store_shared(at(to, octet), hw::Words4{{x[0], x[1], x[2], x[3]}}, site);
  }

  const hw::Words4* x_;
  uint32_t octets_;
  Sm90GemvThreads threads_;
  int32_t shift_ = 0;
  hw::Words4 kept_[kKept] = {};
};

}  // namespace halftone::gemm
