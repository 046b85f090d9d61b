// Rotary embedding in a kernel: the angles of a token and the rotation of pairs, with the additions
// and products of the CPU kernel and so to the same bits.
#pragma once
#include <bit>

#include "hw/barrier.h"
#include "hw/memory.h"
#include "hw/target.h"

namespace halftone::pipe {

// Cosine and sine of an angle |a| < 2^32, as simd/ computes them: within 2 ulp.
HT_DEVICE void sine_cosine(double a, float& cosine, float& sine) {
  // n = round(a 2/pi) by adding 1.5 * 2^52, which leaves n in the low bits.
  constexpr double kShift = 6755399441055744.0;
  const double shifted = a * 0.63661977236758134308 + kShift, n = shifted - kShift;
  // pi/2 in parts, two of them of 22 bits: their products with n < 2^31 are exact without FMA.
  double r = a - n * 0x1.921fbp+0;
  r = r - n * 0x1.5110bp-22;
  r = r - n * 0x1.18469898cc517p-44;
  const auto x = static_cast<float>(r);
  const auto quadrant = static_cast<uint32_t>(std::bit_cast<uint64_t>(shifted) & 3);
  // On |x| <= pi/4: polynomials with relative error below 2^-25 (sine) and 2^-26 (cosine).
  const float z = x * x;
  float s = (z * -1.9515295891e-4f + 8.3321608736e-3f) * z - 1.6666654611e-1f;
  s = s * z * x + x;
  float c = (z * 2.443315711809948e-5f - 1.388731625493765e-3f) * z + 4.166664568298827e-2f;
  c = c * z * z - z * 0.5f + 1.0f;
  const bool odd = (quadrant & 1) != 0;
  sine = std::bit_cast<float>(std::bit_cast<uint32_t>(odd ? c : s) ^ (quadrant & 2) << 30);
  cosine = std::bit_cast<float>(std::bit_cast<uint32_t>(odd ? s : c) ^ ((quadrant + 1) & 2) << 30);
}

// The angles of up to 512 pairs of a token, in shared memory; a block computes them once for all
// heads. Pair 8 u + k of unit u is at k * units + u: the threads of a warp, which have units side
// by side, read neighbours.
class RotationTable {
 public:
  static constexpr uint32_t kPairs = 512;
  static constexpr uint32_t kSharedBytes = kPairs * 2 * sizeof(float);

  HT_DEVICE RotationTable(hw::SharedAddress base, uint32_t pairs)
      : cosines_(base), sines_(base + kPairs * 4), pairs_(pairs), units_((pairs + 7) / 8) {}
  HT_DEVICE uint32_t units() const { return units_; }

  // What `thread` begins with, which needs no position yet.
  HT_DEVICE double first_frequency(const double* frequencies, uint32_t thread) const {
    const uint32_t pair = pair_of(thread);
    return thread < units_ * 8 && pair < pairs_ ? hw::load_global(frequencies + pair) : 0;
  }
  // By `threads` threads; a barrier follows.
  HT_DEVICE void fill(const double* frequencies, int64_t position, float magnitude, uint32_t thread,
                      uint32_t threads) const {
    fill(frequencies, first_frequency(frequencies, thread), position, magnitude, thread, threads);
  }
  HT_DEVICE void fill(const double* frequencies, double first, int64_t position, float magnitude,
                      uint32_t thread, uint32_t threads) const {
    for (uint32_t slot = thread; slot < units_ * 8; slot += threads) {
      const uint32_t pair = pair_of(slot);
      float cosine = 1, sine = 0;
      if (pair < pairs_) {
        const double frequency = slot == thread ? first : hw::load_global(frequencies + pair);
        sine_cosine(static_cast<double>(position) * frequency, cosine, sine);
        if (magnitude != 1) cosine = cosine * magnitude, sine = sine * magnitude;
      }
      hw::store_shared(cosines_ + slot * 4, cosine);
      hw::store_shared(sines_ + slot * 4, sine);
    }
  }
  // Of the pairs from `first` on, all of one unit.
  template <uint32_t kCount>
  HT_DEVICE void load(uint32_t first, float (&c)[kCount], float (&s)[kCount]) const {
    HT_UNROLL
    for (uint32_t k = 0; k < kCount; ++k) {
      const uint32_t slot = (first % 8 + k) * units_ + first / 8;
      c[k] = hw::load_shared<float>(cosines_ + slot * 4);
      s[k] = hw::load_shared<float>(sines_ + slot * 4);
    }
  }

 private:
  HT_DEVICE uint32_t pair_of(uint32_t slot) const { return slot % units_ * 8 + slot / units_; }
  hw::SharedAddress cosines_, sines_;
  uint32_t pairs_, units_;
};

// Pairs (a[k], b[k]).
template <uint32_t kCount>
HT_DEVICE void rotate_halves(float (&a)[kCount], float (&b)[kCount], const float (&c)[kCount],
                             const float (&s)[kCount]) {
  HT_UNROLL
  for (uint32_t k = 0; k < kCount; ++k) {
    const float turned = a[k] * c[k] - b[k] * s[k];
    b[k] = b[k] * c[k] + a[k] * s[k];
    a[k] = turned;
  }
}

}  // namespace halftone::pipe
