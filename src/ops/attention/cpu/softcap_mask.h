// Softcap and mask tensor on the CPU, between Q K^T and softmax. Separate from softmax, so that
// calls without them pay nothing.
#pragma once
#include "ops/attention/cpu/softmax.h"

namespace halftone::HALFTONE_LEVEL {

// tanh(x) within 4 ulp; NaN stays NaN. Odd polynomial below 0.625 (relative error 2^-26 before
// rounding), 1 - 2 / (exp(2 |x|) + 1) above.
HALFTONE_INLINE f32v tanh(f32v x) {
  const f32v magnitude = abs(x), square = x * x;
  f32v p = broadcast(-5.528639071e-03f);
  p = fma(p, square, broadcast(2.048332244e-02f));
  p = fma(p, square, broadcast(-5.369297042e-02f));
  p = fma(p, square, broadcast(1.333089918e-01f));
  p = fma(p, square, broadcast(-3.333326280e-01f));
  const f32v small = fma(p * square, x, x);
  const u32v sign = bits_as<u32v>(x) & 0x80000000u;
  const f32v clamped_magnitude =
      min(broadcast(10.0f), magnitude);  // 1 in FP32 from there on; NaN passes
  const f32v large = 1.0f - 2.0f / (exp(clamped_magnitude + clamped_magnitude) + 1.0f);
  return select(magnitude < 0.625f, small, bits_as<f32v>(bits_as<u32v>(large) | sign));
}

// A row of the mask tensor.
class MaskRow {
 public:
  // `row` is the element of key 0.
  HALFTONE_INLINE MaskRow(const uint8_t* row, Format format, int64_t key_bytes)
      : row_(row), format_(format), key_bytes_(key_bytes) {}

  // What is added to the scores of keys [key, key + kLanes), in base-2 exponents; -inf masks. Keys
  // outside [low, high) are not read and give -inf.
  HALFTONE_INLINE f32v load_values(int64_t key, int64_t low, int64_t high) const {
    if (key >= low && key + kLanes <= high) {
      if (format_ == Format::u8 && key_bytes_ == 1) {
        return mask_value(bits_as<i32v>(widen_u8(load_raw<u8v>(row_ + key))) != 0);
      }
      if (format_ == Format::f32 && key_bytes_ == 4) return to_base2(load<Format::f32>(row_, key));
      if (format_ == Format::f16 && key_bytes_ == 2) return to_base2(load<Format::f16>(row_, key));
      if (format_ == Format::bf16 && key_bytes_ == 2) {
        return to_base2(load<Format::bf16>(row_, key));
      }
    }
    return load_each(key, low, high);
  }

 private:
  static HALFTONE_INLINE f32v mask_value(i32v visible) {
    return select(visible, f32v{}, broadcast(kMinusInfinity));
  }
  // Finite values stay finite: some callers write the lowest FP32 for -inf, and a row of them alone
  // is the mean of all its values, as in FP64.
  static HALFTONE_INLINE f32v to_base2(f32v x) {
    const f32v clamped = max(broadcast(-2.3e38f), x) * 1.44269504f;
    return select(x == kMinusInfinity, x, clamped);
  }
  static __attribute__((noinline)) f32v load_far(const uint8_t* row, Format format,
                                                 int64_t key_bytes, int64_t key, int64_t low,
                                                 int64_t high) {
    alignas(64) uint8_t bytes[4 * kLanes] = {};
    const int64_t size = format == Format::f32 ? 4 : format == Format::u8 ? 1 : 2;
    i32v inside = {};
    for (int64_t i = 0; i < kLanes; ++i) {
      if (key + i < low || key + i >= high) continue;
      inside[i] = -1;
      __builtin_memcpy(bytes + i * size, row + (key + i) * key_bytes, static_cast<size_t>(size));
    }
    f32v values;
    switch (format) {
      case Format::f32:
        values = to_base2(load<Format::f32>(bytes, 0));
        break;
      case Format::f16:
        values = to_base2(load<Format::f16>(bytes, 0));
        break;
      case Format::bf16:
        values = to_base2(load<Format::bf16>(bytes, 0));
        break;
      default:
        values = mask_value(bits_as<i32v>(widen_u8(load_raw<u8v>(bytes))) != 0);
    }
    return select(inside, values, broadcast(kMinusInfinity));
  }
  HALFTONE_INLINE f32v load_each(int64_t key, int64_t low, int64_t high) const {
    return load_far(row_, format_, key_bytes_, key, low, high);
  }
  const uint8_t* row_;
  Format format_;
  int64_t key_bytes_;
};

HALFTONE_INLINE MaskRow mask_row(const AttentionTile& t, int64_t query, int64_t head) {
  return {t.mask + query * t.mask_query_bytes + head * t.mask_head_bytes, t.mask_format,
          t.mask_key_bytes};
}

// Whether the mask leaves any of the keys [begin, end) visible, of which [low, high) exist for the
// row.
static inline bool any_visible(const MaskRow& mask, int64_t begin, int64_t end, int64_t low,
                               int64_t high) {
  i32v any = {};
  for (int64_t i = begin; i < end; i += kLanes) {
    any |= mask.load_values(i, low, high) != kMinusInfinity;
  }
  int32_t lanes[kLanes], sum = 0;
  store_raw(lanes, any);
  for (int i = 0; i < kLanes; ++i) sum |= lanes[i];
  return sum != 0;
}

// s: dot products of keys base + [begin, end) become scores in base-2 exponents. [low, high): the
// keys visible to the row before the mask tensor, not relative to `base`.
static inline void apply_score_mod(const AttentionTile& t, const MaskRow* mask, float* s,
                                   int64_t base, int64_t begin, int64_t end, int64_t low,
                                   int64_t high, float row_scale, const float* key_scales) {
  const f32v cap = broadcast(t.softcap);
  for (int64_t i = begin; i < end; i += kLanes) {
    f32v x = load_raw<f32v>(s + i) * row_scale;
    if (key_scales != nullptr) x *= load_raw<f32v>(key_scales + i);
    if (t.softcap > 0) x = tanh(x / cap) * cap;
    if (mask != nullptr) {
      const f32v values = mask->load_values(base + i, low, high);
      x = select(values == kMinusInfinity, values, x + values);  // a masked NaN stays masked
    }
    store_raw(s + i, x);
  }
}

}  // namespace halftone::HALFTONE_LEVEL
