// From scores to P in attention for all GPUs: scales, softcap, mask tensor, softmax and the
// rounding of P, for the 16 rows of a warp as the accumulators of mma.sync hold them.
#pragma once
#include "hw/mufu.h"
#include "hw/warp.h"
#include "ops/attention/cpu/kernel.h"
#include "ops/attention/key_range.h"
#include "ops/attention/sm80/operand.cuh"

namespace halftone::attention_sm80 {

inline constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;
inline constexpr float kInfinity = __builtin_huge_valf();

struct Mask {
  const uint8_t* data;                                      // or null
  int64_t batch_bytes, head_bytes, query_bytes, key_bytes;  // 0: the same for all
  Format format;
};

// Codes of a mask's elements as what is added to scores, in units of log2; -inf hides. Finite
// numbers stay finite: some write the lowest f32 for -inf, and a row of them alone is the mean of
// all its values.
HT_DEVICE float mask_term(Format format, uint32_t code) {
  if (format == Format::u8) return code != 0 ? 0 : -kInfinity;
  const auto half = static_cast<uint16_t>(code);
  const float x = format == Format::f32   ? std::bit_cast<float>(code)
                  : format == Format::f16 ? hw::cvt_f32_f16(half)
                                          : hw::cvt_f32_bf16(half);
  return x == -kInfinity ? x : hw::mul(x < -2.3e38f ? -2.3e38f : x, kLog2e);
}

// tanh within 4 ulp: an odd polynomial below 0.625, 1 - 2 / (exp(2 |x|) + 1) above. NaN stays NaN.
HT_DEVICE float tanh(float x) {
  const float magnitude = x < 0 ? -x : x, square = hw::mul(x, x);
  float p = -5.528639071e-03f;
  p = hw::fma(p, square, 2.048332244e-02f);
  p = hw::fma(p, square, -5.369297042e-02f);
  p = hw::fma(p, square, 1.333089918e-01f);
  p = hw::fma(p, square, -3.333326280e-01f);
  const float small = hw::fma(hw::mul(p, square), x, x);
  const float most = magnitude > 10 ? 10 : magnitude;  // 1 in f32 from there on
  const float power = hw::ex2_approx(hw::mul(most, 2 * kLog2e));
  const float large = hw::fma(-2, hw::rcp_approx(hw::add(power, 1)), 1);
  return magnitude < 0.625f ? small : x < 0 ? -large : large;
}

// x >= 0 to the nearest number of a format with `kMantissa` bits and
// least exponent `kLeast`: adding and subtracting 1.5 x 2^23 of its last places rounds it.
template <int kMantissa, int kLeast>
HT_DEVICE float round_narrow(float x) {
  constexpr uint32_t kFloor = uint32_t{127 + kLeast} << 23;
  uint32_t exponent = std::bit_cast<uint32_t>(x) & 0x7f800000;
  if (exponent < kFloor) exponent = kFloor;
  const float magic =
      std::bit_cast<float>((exponent + (uint32_t{23 - kMantissa} << 23)) | 0x400000);
  return hw::add(hw::add(x, magic), -magic);
}
HT_DEVICE float round_e4m3(float x) { return round_narrow<3, -6>(x); }
HT_DEVICE float round_e2m1(float x) { return round_narrow<1, 0>(x > 6 ? 6 : x); }

// The largest, or the sum, of the four lanes that share a row.
HT_DEVICE float quad_max(float x, hw::Site site = hw::Site::current()) {
  x = hw::max(x, hw::shuffle_xor(x, 1, 4, hw::kFullWarp, site));
  return hw::max(x, hw::shuffle_xor(x, 2, 4, hw::kFullWarp, site));
}
HT_DEVICE float quad_sum(float x, hw::Site site = hw::Site::current()) {
  x = hw::add(x, hw::shuffle_xor(x, 1, 4, hw::kFullWarp, site));
  return hw::add(x, hw::shuffle_xor(x, 2, 4, hw::kFullWarp, site));
}

// A score that a row gets from each of the keys of a tile: element i of a thread's kKeys / 4.
HT_HOST_DEVICE uint32_t key_of(uint32_t i, uint32_t lane) {
  return i / 2 * 8 + lane % 4 * 2 + i % 2;
}

// What a row is, in shared memory: it is asked for only where a mask or a rule applies.
template <uint32_t kRows>
struct RowFacts {
  static constexpr uint32_t kBytes = kRows * 20;
  hw::SharedAddress base;

  HT_DEVICE void set(uint32_t row, const KeyInterval& seen, const uint8_t* mask, float factor,
                     hw::Site site = hw::Site::current()) const {
    hw::store_shared(base + row * 8, seen, site);
    hw::store_shared(base + (kRows * 8 + row * 8), reinterpret_cast<uint64_t>(mask), site);
    hw::store_shared(base + (kRows * 16 + row * 4), factor, site);
  }
  HT_DEVICE KeyInterval seen(uint32_t row, hw::Site site = hw::Site::current()) const {
    return hw::load_shared<KeyInterval>(base + row * 8, site);
  }
  // Of key 0.
  HT_DEVICE const uint8_t* mask(uint32_t row, hw::Site site) const {
    return reinterpret_cast<const uint8_t*>(
        hw::load_shared<uint64_t>(base + (kRows * 8 + row * 8), site));
  }
  // Of its scores: the softmax scale and that of Q.
  HT_DEVICE float factor(uint32_t row, hw::Site site) const {
    return hw::load_shared<float>(base + (kRows * 16 + row * 4), site);
  }
};

// One row as four lanes hold it. Its scores are s[i / 2][2 half + i % 2].
struct Row {
  float shift = -kInfinity;     // P is 2^(score - shift), scores in units of log2
  float top = -kInfinity;       // the largest score so far
  float sum = 0;                // of this thread's P that are not rounded
  float tile_top = -kInfinity;  // of the tile of P in NVFP4
};

template <uint32_t kKeys>
struct Scores {
  static constexpr uint32_t kCount = kKeys / 4;  // of a thread's scores of a row

  HT_DEVICE static float& at(float (&s)[kKeys / 8][4], uint32_t half, uint32_t i) {
    return s[i / 2][2 * half + i % 2];
  }

  // Scales of rows, softcap and mask: the scores are in units of log2 afterwards.
  template <uint32_t kRows>
  HT_DEVICE static void apply_rules(float (&s)[kKeys / 8][4], uint32_t half,
                                    const RowFacts<kRows>& rows, uint32_t row, int32_t first,
                                    bool scaled, hw::SharedAddress key_scales, float softcap,
                                    const Mask& mask, hw::Site site = hw::Site::current()) {
    const float factor = rows.factor(row, site);
    HT_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) at(s, half, i) = hw::mul(at(s, half, i), factor);
    if (scaled) multiply<false>(s, half, key_scales, site);
    if (softcap > 0) {
      const float inverse = 1 / softcap;
      HT_UNROLL
      for (uint32_t i = 0; i < kCount; ++i) {
        at(s, half, i) = hw::mul(tanh(hw::mul(at(s, half, i), inverse)), softcap);
      }
    }
    if (mask.data != nullptr) {
      add_mask(s, half, rows.seen(row, site), rows.mask(row, site), first, mask, site);
    }
  }
  // By a scale a key. A weight of 0 may be that of a hidden key, whose scale need not be finite.
  template <bool kWeights>
  HT_DEVICE static void multiply(float (&s)[kKeys / 8][4], uint32_t half, hw::SharedAddress scales,
                                 hw::Site site) {
    HT_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) {
      const uint32_t column = key_of(i, hw::lane_index());
      const float scale = hw::load_shared<float>(scales + column * 4, site);
      float& x = at(s, half, i);
      x = kWeights && x == 0 ? x : hw::mul(x, scale);
    }
  }
  HT_DEVICE static void add_mask(float (&s)[kKeys / 8][4], uint32_t half, const KeyInterval& seen,
                                 const uint8_t* row, int32_t first, const Mask& mask,
                                 hw::Site site) {
    uint32_t codes[kCount];
    const auto load = [&]<class T>(T) {
      HT_UNROLL
      for (uint32_t i = 0; i < kCount; ++i) {
        const int32_t key = first + static_cast<int32_t>(key_of(i, hw::lane_index()));
        codes[i] = 0;
        if (key < seen.first || key >= seen.end) continue;
        codes[i] = hw::load_global(reinterpret_cast<const T*>(row + key * mask.key_bytes), site);
      }
    };
    const uint32_t bits = element_bits(mask.format);
    if (bits == 8) load(uint8_t{});
    if (bits == 16) load(uint16_t{});
    if (bits == 32) load(uint32_t{});
    HT_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) {
      const float term = mask_term(mask.format, codes[i]);
      at(s, half, i) = term == -kInfinity ? term : hw::add(at(s, half, i), term);
    }
  }
  HT_DEVICE static void hide(float (&s)[kKeys / 8][4], uint32_t half, const KeyInterval& seen,
                             int32_t first) {
    HT_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) {
      const int32_t key = first + static_cast<int32_t>(key_of(i, hw::lane_index()));
      if (key < seen.first || key >= seen.end) at(s, half, i) = -kInfinity;
    }
  }
  // Times `factor`.
  HT_DEVICE static float largest(float (&s)[kKeys / 8][4], uint32_t half, float factor,
                                 hw::Site site = hw::Site::current()) {
    float top = at(s, half, 0);
    HT_UNROLL
    for (uint32_t i = 1; i < kCount; ++i) top = hw::max(top, at(s, half, i));
    return hw::mul(quad_max(top, site), factor);
  }
  // Scores become P, 0 where a key is hidden. Returns what O is to be multiplied by: exactly 1
  // where the largest score stays.
  HT_DEVICE static float weigh(float (&s)[kKeys / 8][4], uint32_t half, Row& row, float factor,
                               bool nvfp4, hw::Site site = hw::Site::current()) {
    const float tile = nvfp4 ? row.tile_top : largest(s, half, factor, site);
    row.top = hw::max(row.top, tile);
    // P in NVFP4 is relative to the largest of its own tile, above or below that of the tiles
    // before. Far below, where O would grow beyond f32, the tile weighs nothing: less than 2^-60.
    constexpr float kFar = 60;
    const bool nothing = nvfp4 && tile < hw::add(row.top, -kFar);
    const float before = row.shift;
    if (!nothing) row.shift = nvfp4 ? tile : row.top;
    // A row that has seen no key yet is relative to 0: its P are 2^-inf = 0.
    const float now = row.shift == -kInfinity ? 0 : row.shift;
    const float rescale = hw::ex2_approx_ftz(hw::add(before, -now));
    const float against = nothing ? kInfinity : now;
    float part = 0;
    HT_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) {
      float& x = at(s, half, i);
      x = hw::ex2_approx_ftz(hw::fma(x, factor, -against));
      part = hw::add(part, x);
    }
    row.sum = hw::fma(row.sum, rescale, part);
    return rescale;
  }
  // P as the mode's second product takes it; the factors are in kE4m3PScale and kNvfp4PScale.
  HT_DEVICE static void round(float (&s)[kKeys / 8][4], uint32_t half, AttentionRounding rounding,
                              bool scaled, hw::SharedAddress value_scales,
                              hw::Site site = hw::Site::current()) {
    if (rounding == AttentionRounding::nvfp4) {
      HT_UNROLL
      for (uint32_t i = 0; i < kCount; i += 4) {  // four lanes hold the 16 keys of a block
        float top = at(s, half, i);
        HT_UNROLL
        for (uint32_t j = 1; j < 4; ++j) top = hw::max(top, at(s, half, i + j));
        const float scale = round_e4m3(hw::mul(quad_max(top, site), 448));
        const float inverse = scale == 0 ? 0 : kNvfp4PScale / scale;
        HT_UNROLL
        for (uint32_t j = 0; j < 4; ++j) {
          float& x = at(s, half, i + j);
          x = hw::mul(round_e2m1(hw::mul(x, inverse)), scale);
        }
      }
      return;
    }
    if (rounding == AttentionRounding::e4m3) {
      HT_UNROLL
      for (uint32_t i = 0; i < kCount; ++i) {
        at(s, half, i) = round_e4m3(hw::mul(at(s, half, i), kE4m3PScale));
      }
    }
    if (rounding == AttentionRounding::f16) {
      HT_UNROLL
      for (uint32_t i = 0; i < kCount; ++i) {
        at(s, half, i) = hw::cvt_f32_f16(hw::cvt_f16(at(s, half, i)));
      }
    }
    if (scaled) multiply<true>(s, half, value_scales, site);
  }
};

}  // namespace halftone::attention_sm80
