// S to P in attention on sm_80 and later: scales, softcap, mask tensor, online softmax and the
// rounding of P, for the 16 rows of a warp in mma.sync accumulator layout.
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

// A mask value as what is added to scores, in base-2 exponents; -inf masks. Finite values stay
// finite: some write the lowest FP32 for -inf, and a row of them alone is the mean of all its
// values.
HT_DEVICE float mask_term(Format format, uint32_t value) {
  if (format == Format::u8) return value != 0 ? 0 : -kInfinity;
  const auto half = static_cast<uint16_t>(value);
  const float x = format == Format::f32   ? std::bit_cast<float>(value)
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
  const float most = magnitude > 10 ? 10 : magnitude;  // 1 in FP32 from there on
  const float power = hw::ex2_approx(hw::mul(most, 2 * kLog2e));
  const float large = hw::fma(-2, hw::rcp_approx(hw::add(power, 1)), 1);
  return magnitude < 0.625f ? small : x < 0 ? -large : large;
}

// x >= 0 to the nearest number of a format with `kMantissa` bits and least exponent `kLeast`:
// adding and subtracting 1.5 x 2^23 of its last places rounds it.
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

// Maximum and sum over the four lanes that share a row.
HT_DEVICE float quad_max(float x, hw::Site site = hw::Site::current()) {
  x = hw::max(x, hw::shuffle_xor(x, 1, 4, hw::kFullWarp, site));
  return hw::max(x, hw::shuffle_xor(x, 2, 4, hw::kFullWarp, site));
}
HT_DEVICE float quad_sum(float x, hw::Site site = hw::Site::current()) {
  x = hw::add(x, hw::shuffle_xor(x, 1, 4, hw::kFullWarp, site));
  return hw::add(x, hw::shuffle_xor(x, 2, 4, hw::kFullWarp, site));
}

// The key of element i of a thread's kKeys / 4 scores of a row.
HT_HOST_DEVICE uint32_t key_of(uint32_t i, uint32_t lane) {
  return i / 2 * 8 + lane % 4 * 2 + i % 2;
}

// What is needed of a row only where a mask or softcap applies: kept in shared memory.
template <uint32_t kRows>
struct RowInfo {
  static constexpr uint32_t kBytes = kRows * 20;
  hw::SharedAddress base;

  HT_DEVICE void set(uint32_t row, const KeyInterval& visible, const uint8_t* mask, float factor,
                     hw::Site site = hw::Site::current()) const {
    hw::store_shared(base + row * 8, visible, site);
    hw::store_shared(base + (kRows * 8 + row * 8), reinterpret_cast<uint64_t>(mask), site);
    hw::store_shared(base + (kRows * 16 + row * 4), factor, site);
  }
  HT_DEVICE KeyInterval visible(uint32_t row, hw::Site site = hw::Site::current()) const {
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

// State of the online softmax of a row, held by four lanes. Its scores are s[i / 2][2 half + i %
// 2].
struct Row {
  float reference = -kInfinity;  // P is 2^(score - reference), scores in base-2 exponents
  float row_max = -kInfinity;    // row_max so far
  float sum = 0;                 // of this thread's unrounded P
  float level_max = -kInfinity;  // of the keys that share the second-level scale of P in NVFP4
};

template <uint32_t kKeys>
struct Scores {
  static constexpr uint32_t kCount = kKeys / 4;  // of a thread's scores of a row

  HT_DEVICE static float& at(float (&s)[kKeys / 8][4], uint32_t half, uint32_t i) {
    return s[i / 2][2 * half + i % 2];
  }

  // Per-row scales, softcap and mask tensor: scores are base-2 exponents afterwards.
  template <uint32_t kRows>
  HT_DEVICE static void apply_score_mod(float (&s)[kKeys / 8][4], uint32_t half,
                                        const RowInfo<kRows>& rows, uint32_t row, int32_t first,
                                        bool per_key, hw::SharedAddress key_scales, float softcap,
                                        const Mask& mask, hw::Site site = hw::Site::current()) {
    const float factor = rows.factor(row, site);
    HT_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) at(s, half, i) = hw::mul(at(s, half, i), factor);
    if (per_key) scale_keys<false>(s, half, key_scales, site);
    if (softcap > 0) {
      const float inverse = 1 / softcap;
      HT_UNROLL
      for (uint32_t i = 0; i < kCount; ++i) {
        at(s, half, i) = hw::mul(tanh(hw::mul(at(s, half, i), inverse)), softcap);
      }
    }
    if (mask.data != nullptr) {
      add_mask(s, half, rows.visible(row, site), rows.mask(row, site), first, mask, site);
    }
  }
  // Multiplies by a scale a key. P = 0 may be a masked key's, whose scale need not be finite.
  template <bool kIsP>
  HT_DEVICE static void scale_keys(float (&s)[kKeys / 8][4], uint32_t half,
                                   hw::SharedAddress scales, hw::Site site) {
    HT_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) {
      const uint32_t column = key_of(i, hw::lane_index());
      const float scale = hw::load_shared<float>(scales + column * 4, site);
      float& x = at(s, half, i);
      x = kIsP && x == 0 ? x : hw::mul(x, scale);
    }
  }
  HT_DEVICE static void add_mask(float (&s)[kKeys / 8][4], uint32_t half,
                                 const KeyInterval& visible, const uint8_t* row, int32_t first,
                                 const Mask& mask, hw::Site site) {
    uint32_t values[kCount];
    const auto load = [&]<class T>(T) {
      HT_UNROLL
      for (uint32_t i = 0; i < kCount; ++i) {
        const int32_t key = first + static_cast<int32_t>(key_of(i, hw::lane_index()));
        values[i] = 0;
        if (key < visible.first || key >= visible.end) continue;
        values[i] = hw::load_global(reinterpret_cast<const T*>(row + key * mask.key_bytes), site);
      }
    };
    const uint32_t bits = element_bits(mask.format);
    if (bits == 8) load(uint8_t{});
    if (bits == 16) load(uint16_t{});
    if (bits == 32) load(uint32_t{});
    HT_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) {
      const float term = mask_term(mask.format, values[i]);
      at(s, half, i) = term == -kInfinity ? term : hw::add(at(s, half, i), term);
    }
  }
  HT_DEVICE static void apply_mask(float (&s)[kKeys / 8][4], uint32_t half,
                                   const KeyInterval& visible, int32_t first) {
    HT_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) {
      const int32_t key = first + static_cast<int32_t>(key_of(i, hw::lane_index()));
      if (key < visible.first || key >= visible.end) at(s, half, i) = -kInfinity;
    }
  }
  // The row's maximum times `factor`.
  HT_DEVICE static float max_score(float (&s)[kKeys / 8][4], uint32_t half, float factor,
                                   hw::Site site = hw::Site::current()) {
    float row_max = at(s, half, 0);
    HT_UNROLL
    for (uint32_t i = 1; i < kCount; ++i) row_max = hw::max(row_max, at(s, half, i));
    return hw::mul(quad_max(row_max, site), factor);
  }
  // Scores become P, 0 where masked. Returns the correction factor of O: exactly 1 where row_max
  // stays.
  HT_DEVICE static float softmax_step(float (&s)[kKeys / 8][4], uint32_t half, Row& row,
                                      float factor, bool nvfp4,
                                      hw::Site site = hw::Site::current()) {
    const float tile_max = nvfp4 ? row.level_max : max_score(s, half, factor, site);
    row.row_max = hw::max(row.row_max, tile_max);
    // P in NVFP4 is relative to the maximum of its own second-level tile, above or below that of
    // the tiles before. Far below, where rescaling would overflow O, the tile counts as masked:
    // less than 2^-60.
    constexpr float kFar = 60;
    const bool negligible = nvfp4 && tile_max < hw::add(row.row_max, -kFar);
    const float previous = row.reference;
    if (!negligible) row.reference = nvfp4 ? tile_max : row.row_max;
    // A row with all keys masked so far is relative to 0: its P are 2^-inf = 0.
    const float current = row.reference == -kInfinity ? 0 : row.reference;
    const float rescale = hw::ex2_approx_ftz(hw::add(previous, -current));
    const float offset = negligible ? kInfinity : current;
    float tile_sum = 0;
    HT_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) {
      float& x = at(s, half, i);
      x = hw::ex2_approx_ftz(hw::fma(x, factor, -offset));
      tile_sum = hw::add(tile_sum, x);
    }
    row.sum = hw::fma(row.sum, rescale, tile_sum);
    return rescale;
  }
  // Rounds P as the mode says; kE4m3PScale and kNvfp4PScale are divided out of O.
  HT_DEVICE static void round_p(float (&s)[kKeys / 8][4], uint32_t half, AttentionRounding rounding,
                                bool per_key, hw::SharedAddress value_scales,
                                hw::Site site = hw::Site::current()) {
    if (rounding == AttentionRounding::nvfp4) {
      HT_UNROLL
      for (uint32_t i = 0; i < kCount; i += 4) {  // four lanes hold the 16 keys of a block
        float block_max = at(s, half, i);
        HT_UNROLL
        for (uint32_t j = 1; j < 4; ++j) block_max = hw::max(block_max, at(s, half, i + j));
        const float scale = round_e4m3(hw::mul(quad_max(block_max, site), 448));
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
    if (per_key) scale_keys<true>(s, half, value_scales, site);
  }
};

}  // namespace halftone::attention_sm80
