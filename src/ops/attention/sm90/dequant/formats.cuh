// Codes of quantised formats to bf16, exactly, and the scales that are not in the numbers.
//
// Block scales are in the expanded numbers, and so are scales of rows of K and V that are powers of
// two; scales of tensors and of rows of Q multiply S, other ones of rows of K its columns; those of
// rows of V multiply P before it is rounded.
#pragma once
#include "hw/bits.h"
#include "hw/pair.h"
#include "ops/attention/sm80/operand.cuh"
#include "ops/attention/sm90/softmax.cuh"

namespace halftone::attention_sm90 {

using attention_sm80::Operand;
using attention_sm80::Scales;

// What a kernel over quantised operands is told of them.
struct Codes {
  Operand q, k, v;
  bool fp8_weights;  // P is rounded to E4M3
};

// Whether codes of 8 bits times a scale are numbers of bf16, no products of which are out of range:
// the scale is a power of two of no great size.
HT_DEVICE bool in_the_numbers(float scale) {
  const auto bits = std::bit_cast<uint32_t>(scale);
  const uint32_t exponent = bits >> 23;  // the sign above
  return (bits & 0x7fffff) == 0 && exponent >= 127 - 60 && exponent <= 127 + 60;
}

// Codes of E4M3 and a factor that is 1 or a power of two.
HT_DEVICE hw::Words4 expand_fp8(const uint32_t (&codes)[2], float factor) {
  hw::Words4 eight;
  HT_UNROLL
  for (uint32_t i = 0; i < 4; ++i) {
    const auto two = static_cast<uint16_t>(codes[i / 2] >> 16 * (i % 2));
    const uint32_t halves = hw::cvt_f16x2_fp8x2<hw::Type::e4m3>(two);
    const float low = hw::cvt_f32_f16(static_cast<uint16_t>(halves & 0xffff));
    const float high = hw::cvt_f32_f16(static_cast<uint16_t>(halves >> 16));
    eight.at[i] = hw::cvt_bf16x2(hw::mul(low, factor), hw::mul(high, factor));
  }
  return eight;
}

// Codes of E2M1: the magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6 by two tables of the bytes of bf16.
HT_DEVICE hw::Words4 expand_fp4(uint32_t codes, float factor) {
  const uint32_t factors = hw::cvt_bf16x2(factor, factor);
  hw::Words4 eight;
  HT_UNROLL
  for (uint32_t i = 0; i < 2; ++i) {  // of 4 codes
    const uint32_t four = codes >> 16 * i & 0xffff, select = four & 0x7777;
    const uint32_t high = hw::prmt(0x3f3f3f00, 0x40404040, select);
    const uint32_t low = hw::prmt(0xc0800000, 0xc0804000, select);
    HT_UNROLL
    for (uint32_t j = 0; j < 2; ++j) {
      const uint32_t two = four >> 8 * j;
      const uint32_t signs = (two << 12 & 0x8000) | (two << 24 & 0x80000000);
      const uint32_t pair = hw::prmt(low, high, j == 0 ? 0x5140 : 0x7362);
      eight.at[2 * i + j] = hw::mul_pair<hw::Type::bf16x2>(pair | signs, factors);
    }
  }
  return eight;
}

HT_DEVICE hw::Words4 expand_int8(const uint32_t (&codes)[2], float factor) {
  hw::Words4 eight;
  const auto number = [&](uint32_t i) {
    return hw::mul(static_cast<float>(static_cast<int8_t>(codes[i / 4] >> 8 * (i % 4))), factor);
  };
  HT_UNROLL
  for (uint32_t i = 0; i < 4; ++i) {
    eight.at[i] = hw::cvt_bf16x2(number(2 * i), number(2 * i + 1));
  }
  return eight;
}

// Eight codes, of 4 bits in the first word, and the code of their block's scale or, of formats
// without, a power of two.
HT_DEVICE hw::Words4 expand_eight(Format format, const uint32_t (&codes)[2], uint32_t scale,
                                  float factor) {
  switch (format) {
    case Format::nvfp4:
      return expand_fp4(codes[0], pipe::decode_code(Format::fp8_e4m3, scale));
    case Format::mxfp4:
      return expand_fp4(codes[0], decode_ue8m0(static_cast<uint8_t>(scale)));
    case Format::int8:
      return expand_int8(codes, factor);
    case Format::mxfp8:
      return expand_fp8(codes, decode_ue8m0(static_cast<uint8_t>(scale)));
    default:
      return expand_fp8(codes, factor);
  }
}

// P in E4M3, as it is kept by the pairs of a thread's accumulators.
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

// What scores and results are to be multiplied by, of a thread's two rows of a tile of `Work`.
struct Factors {
  float row[2], value;

  // `fold`: S is not used but times the softmax's scale, so a row's own may join that.
  template <class Work, class RowSoftmax>
  HT_DEVICE Factors(const Codes& codes, const Work& work, int32_t first, RowSoftmax& softmax,
                    bool fold) {
    const auto of_head = [&](const Operand& x) {
      if (x.scaling != Scales::row || has_rows(x)) return 1.0f;
      const attention_sm80::Place at{work.sequence, 0};
      return hw::load_global(reinterpret_cast<const float*>(
          attention_sm80::scales_of(x, at, work.head / work.p.group)));
    };
    const float all =
        hw::mul(attention_sm80::factor_of(codes.q, work.sequence),
                hw::mul(attention_sm80::factor_of(codes.k, work.sequence), of_head(codes.k)));
    value = hw::mul(attention_sm80::factor_of(codes.v, work.sequence), of_head(codes.v));
    HT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      row[half] = all;
      attention_sm80::Place at;
      uint32_t head;
      const bool exists =
          work.find_query(first + 8 * static_cast<int32_t>(half), at.outer, at.row, head);
      if (codes.q.scaling == Scales::row && exists) {
        const uint8_t* scale = attention_sm80::scales_of(codes.q, at, head);
        row[half] = hw::mul(all, hw::load_global(reinterpret_cast<const float*>(scale)));
      }
      // A score of -inf stays one only with a scale that is positive and no rounding makes 0.
      const float joined = hw::mul(softmax.scale[half], row[half]);
      if (fold && joined > 0x1p-100f && joined < 0x1p100f) {
        softmax.scale[half] = joined, row[half] = 1;
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
  // Where the scale of a row is: `first` is the first of the sequence's, or of its tensor.
  HT_DEVICE static const float* scale_at(const Operand& x, const uint8_t* first, uint32_t row) {
    return reinterpret_cast<const float*>(first +
                                          int64_t{row >> x.scale_shift} * x.scale_row_bytes);
  }
};

// The same, and the scales of keys in shared memory.
template <class Layout>
struct RowScales : Factors {
  hw::SharedAddress base;
  bool keys, values, fp8_weights;

  template <class Work>
  HT_DEVICE RowScales(const Codes& codes, const Work& work, hw::SharedAddress memory, int32_t first,
                      Softmax& softmax, bool fold)
      : Factors(codes, work, first, softmax, fold),
        base(memory + Layout::kScales),
        keys(has_rows(codes.k)),
        values(has_rows(codes.v)),
        fp8_weights(codes.fp8_weights) {
    if (fp8_weights) softmax.lift = 8;  // the largest P is 256
  }

  template <uint32_t kCount>
  HT_DEVICE void scores(float (&s)[kCount], uint32_t slot, hw::Site site) const {
    scale_rows(s);
    const hw::SharedAddress own = base + slot * Layout::kScaleBytes;
    if (keys && !all_ones(own, 0, site)) scale_columns(s, own, site);
  }
  template <uint32_t kCount>
  HT_DEVICE void weights(float (&s)[kCount], uint32_t slot, hw::Site site) const {
    if (fp8_weights) round_to_fp8(s);
    const hw::SharedAddress own = base + slot * Layout::kScaleBytes;
    if (values && !all_ones(own, 1, site)) scale_columns(s, own + Layout::kScalesOfV, site);
  }
  // Whether those of a tile's K, or V, need not be looked at, where their loader says so.
  HT_DEVICE static bool all_ones(hw::SharedAddress of_tile, uint32_t of_values, hw::Site site) {
    if constexpr (!Layout::kTellsOnes) return false;
    return hw::load_shared<uint32_t>(of_tile + (Layout::kOnes + of_values * 4), site) != 0;
  }
  template <uint32_t kCount>
  HT_DEVICE void results(float (&o)[kCount]) const {
    HT_UNROLL
    for (float& each : o) each = hw::mul(each, value);
  }
};

}  // namespace halftone::attention_sm90
