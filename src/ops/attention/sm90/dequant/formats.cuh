// Exact conversion of quantised values (E4M3, E2M1, INT8) to BF16, and the scales that are not
// multiplied into them, for attention on sm_90a.
//
// Block scales are multiplied into the dequantised values, and so are per-row scales of K and V
// that are powers of two. Per-tensor scales and per-row scales of Q multiply S, other per-row
// scales of K its columns; per-row scales of V multiply P before it is rounded.
#pragma once
#include "hw/bits.h"
#include "hw/pair.h"
#include "ops/attention/sm80/operand.cuh"
#include "ops/attention/sm90/softmax.cuh"

namespace halftone::attention_sm90 {

using attention_sm80::Operand;
using attention_sm80::Scales;

// Quantised operands as kernel parameters.
struct QuantisedOperands {
  Operand q, k, v;
  bool fp8_p;  // P is rounded to E4M3
};

// Whether 8-bit values times a scale are exact in BF16 and MMAs of them stay in range: the scale is
// a power of two of moderate size.
HT_DEVICE bool foldable(float scale) {
  const auto bits = std::bit_cast<uint32_t>(scale);
  const uint32_t exponent = bits >> 23;  // the sign above
  return (bits & 0x7fffff) == 0 && exponent >= 127 - 60 && exponent <= 127 + 60;
}

// E4M3 values times 1 or a power of two.
HT_DEVICE hw::Words4 dequantise_fp8(const uint32_t (&packed)[2], float factor) {
  hw::Words4 chunk;
  HT_UNROLL
  for (uint32_t i = 0; i < 4; ++i) {
    const auto two = static_cast<uint16_t>(packed[i / 2] >> 16 * (i % 2));
    const uint32_t halves = hw::cvt_f16x2_fp8x2<hw::Type::e4m3>(two);
    const float low = hw::cvt_f32_f16(static_cast<uint16_t>(halves & 0xffff));
    const float high = hw::cvt_f32_f16(static_cast<uint16_t>(halves >> 16));
    chunk.at[i] = hw::cvt_bf16x2(hw::mul(low, factor), hw::mul(high, factor));
  }
  return chunk;
}

// E2M1 values: the magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6 by prmt on two tables of the bytes of
// BF16.
HT_DEVICE hw::Words4 dequantise_fp4(uint32_t packed, float factor) {
  const uint32_t bf16_factors = hw::cvt_bf16x2(factor, factor);
  hw::Words4 chunk;
  HT_UNROLL
  for (uint32_t i = 0; i < 2; ++i) {  // of 4 values
    const uint32_t four = packed >> 16 * i & 0xffff, select = four & 0x7777;
    const uint32_t high = hw::prmt(0x3f3f3f00, 0x40404040, select);
    const uint32_t low = hw::prmt(0xc0800000, 0xc0804000, select);
    HT_UNROLL
    for (uint32_t j = 0; j < 2; ++j) {
      const uint32_t two = four >> 8 * j;
      const uint32_t signs = (two << 12 & 0x8000) | (two << 24 & 0x80000000);
      const uint32_t pair = hw::prmt(low, high, j == 0 ? 0x5140 : 0x7362);
      chunk.at[2 * i + j] = hw::mul_pair<hw::Type::bf16x2>(pair | signs, bf16_factors);
    }
  }
  return chunk;
}

HT_DEVICE hw::Words4 dequantise_int8(const uint32_t (&packed)[2], float factor) {
  hw::Words4 chunk;
  const auto number = [&](uint32_t i) {
    return hw::mul(static_cast<float>(static_cast<int8_t>(packed[i / 4] >> 8 * (i % 4))), factor);
  };
  HT_UNROLL
  for (uint32_t i = 0; i < 4; ++i) {
    chunk.at[i] = hw::cvt_bf16x2(number(2 * i), number(2 * i + 1));
  }
  return chunk;
}

// Dequantises eight values, 4-bit ones in the first word, by their block's encoded scale or, of
// formats without, a power of two.
HT_DEVICE hw::Words4 dequantise_chunk(Format format, const uint32_t (&packed)[2], uint32_t scale,
                                      float factor) {
  switch (format) {
    case Format::nvfp4:
      return dequantise_fp4(packed[0], pipe::decode_code(Format::fp8_e4m3, scale));
    case Format::mxfp4:
      return dequantise_fp4(packed[0], decode_ue8m0(static_cast<uint8_t>(scale)));
    case Format::int8:
      return dequantise_int8(packed, factor);
    case Format::mxfp8:
      return dequantise_fp8(packed, decode_ue8m0(static_cast<uint8_t>(scale)));
    default:
      return dequantise_fp8(packed, factor);
  }
}

// Rounds P to E4M3 and back, by the pairs of a thread's accumulators.
template <uint32_t kCount>
HT_DEVICE void round_to_fp8(float (&s)[kCount]) {
  HT_UNROLL
  for (uint32_t i = 0; i < kCount; i += 2) {
    const uint32_t halves =
        hw::cvt_f16x2_fp8x2<hw::Type::e4m3>(hw::cvt_fp8x2<hw::Type::e4m3>(s[i], s[i + 1]));
    s[i] = hw::cvt_f32_f16(static_cast<uint16_t>(halves & 0xffff));
    s[i + 1] = hw::cvt_f32_f16(static_cast<uint16_t>(halves >> 16));
  }
}

// Scales of S and O for a thread's two rows of a Q tile.
struct OperandScales {
  float row[2], value;

  // `fold`: S is only used times the softmax scale, so a row's own scale may join that.
  template <class Work, class RowSoftmax>
  HT_DEVICE OperandScales(const QuantisedOperands& quantised, const Work& work, int32_t first,
                          RowSoftmax& softmax, bool fold) {
    const auto of_head = [&](const Operand& x) {
      if (x.scaling != Scales::row || has_rows(x)) return 1.0f;
      const attention_sm80::RowIndex at{work.sequence, 0};
      return hw::load_global(reinterpret_cast<const float*>(
          attention_sm80::scales_of(x, at, work.head / work.p.group)));
    };
    const float all = hw::mul(
        attention_sm80::factor_of(quantised.q, work.sequence),
        hw::mul(attention_sm80::factor_of(quantised.k, work.sequence), of_head(quantised.k)));
    value = hw::mul(attention_sm80::factor_of(quantised.v, work.sequence), of_head(quantised.v));
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      row[half] = all;
      attention_sm80::RowIndex at;
      uint32_t head;
      const bool exists =
          work.find_query(first + 8 * static_cast<int32_t>(half), at.outer, at.row, head);
      if (quantised.q.scaling == Scales::row && exists) {
        const uint8_t* scale = attention_sm80::scales_of(quantised.q, at, head);
        row[half] = hw::mul(all, hw::load_global(reinterpret_cast<const float*>(scale)));
      }
      // A score of -inf stays -inf only with a scale that is positive and does not underflow to 0.
      const float folded = hw::mul(softmax.scale[half], row[half]);
      if (fold && folded > 0x1p-100f && folded < 0x1p100f) {
        softmax.scale[half] = folded, row[half] = 1;
      }
    }
  }
  template <uint32_t kCount>
  HT_DEVICE void scale_rows(float (&s)[kCount]) const {
    if (row[0] == 1 && row[1] == 1) return;
    HT_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) s[i] = hw::mul(s[i], row[i / 2 % 2]);
  }
  // Whether keys have scales of their own; else one is for all of a head.
  HT_DEVICE static bool has_rows(const Operand& x) {
    return x.scaling == Scales::row && x.scale_row_bytes != 0;
  }
  // Where the scale of a row is; `first` is that of row 0.
  HT_DEVICE static const float* scale_at(const Operand& x, const uint8_t* first, uint32_t row) {
    return reinterpret_cast<const float*>(first +
                                          int64_t{row >> x.scale_shift} * x.scale_row_bytes);
  }
};

// The same with per-key scales in shared memory.
template <class Layout>
struct PerKeyScales : OperandScales {
  hw::SharedAddress base;
  bool keys, values, fp8_p;

  template <class Work>
  HT_DEVICE PerKeyScales(const QuantisedOperands& quantised, const Work& work,
                         hw::SharedAddress memory, int32_t first, Softmax& softmax, bool fold)
      : OperandScales(quantised, work, first, softmax, fold),
        base(memory + Layout::kScales),
        keys(has_rows(quantised.k)),
        values(has_rows(quantised.v)),
        fp8_p(quantised.fp8_p) {
    if (fp8_p) softmax.max_offset = 8;  // the largest P is 256
  }

  template <uint32_t kCount>
  HT_DEVICE void scale_scores(float (&s)[kCount], uint32_t slot, hw::Site site) const {
    scale_rows(s);
    const hw::SharedAddress own = base + slot * Layout::kScaleBytes;
    if (keys && !all_ones(own, 0, site)) scale_columns(s, own, site);
  }
  template <uint32_t kCount>
  HT_DEVICE void scale_p(float (&s)[kCount], uint32_t slot, hw::Site site) const {
    if (fp8_p) round_to_fp8(s);
    const hw::SharedAddress own = base + slot * Layout::kScaleBytes;
    if (values && !all_ones(own, 1, site)) scale_columns(s, own + Layout::kScalesOfV, site);
  }
  // Whether the scales of a tile's K, or V, are all 1, where the producer flags it.
  HT_DEVICE static bool all_ones(hw::SharedAddress of_tile, uint32_t of_values, hw::Site site) {
    if constexpr (!Layout::kFlagsOnes) return false;
    return hw::load_shared<uint32_t>(of_tile + (Layout::kOnes + of_values * 4), site) != 0;
  }
  template <uint32_t kCount>
  HT_DEVICE void scale_output(float (&o)[kCount]) const {
    HT_UNROLL
    for (float& each : o) each = hw::mul(each, value);
  }
};

}  // namespace halftone::attention_sm90
