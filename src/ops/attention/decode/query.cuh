// Q of decode attention as A operands of mma.sync, with its elements permuted to the order in which
// lanes load the elements of a key.
#pragma once
#include "ops/attention/decode/operands_16bit.cuh"
#include "ops/attention/decode/params.cuh"

namespace halftone::attention_decode {

// `kPieceWords` of a key a lane at a time, four lanes side by side.
template <Format kFormat, uint32_t kDim, uint32_t kWarps, uint32_t kPieceWords>
struct Query {
  using Policy = CacheFormat<kFormat>;
  static constexpr bool kHalf = Policy::kType == hw::Type::f16;
  static constexpr bool kRounded = kFormat != Format::f16;  // to bf16, as the modes say
  static constexpr uint32_t kSteps = kDim / 16, kCount = kDim / 32;
  static constexpr uint32_t kWordValues = 32 / Policy::kBits, kWordPairs = kWordValues / 2;
  static constexpr uint32_t kStagedBytes = kRows * (kDim + kDim / 4 + 1) * 4;

  // Q in FP32, padded so that the lanes of an operand, 8, 16 or 32 columns apart, hit all banks.
  HT_DEVICE static hw::SharedAddress staged(hw::SharedAddress base, uint32_t row, uint32_t column) {
    return base + ((row * (kDim + kDim / 4 + 1) + column + column / 32 * 8) * 4);
  }
  // Stages Q in FP32, a warp a row, and the factor of its scores: where MMAs are FP16, Q is scaled
  // by a power of two.
  HT_DEVICE static void stage(const Params& p, const Work& work, hw::SharedAddress base,
                              hw::SharedAddress score_factors) {
    HT_UNROLL
    for (uint32_t row = hw::warp_index(); row < kRows; row += kWarps) {
      stage_row(p, work, base, score_factors, row);
    }
  }
  HT_DEVICE static void stage_row(const Params& p, const Work& work, hw::SharedAddress base,
                                  hw::SharedAddress score_factors, uint32_t row) {
    const uint32_t lane = hw::lane_index();
    float x[kCount] = {}, max_abs = 0, factor = work.score_factor;
    if (row < work.rows) {
      const uint32_t head = work.head(p, row);
      const attention_sm80::RowIndex at{p.cu_queries != nullptr ? 0 : int64_t{work.batch},
                                        work.query_begin};
      load_row(p.q, data_of(p.q, at, head), scales_of(p.q, at, head), x);
      if (p.q.scaling == Scales::row) {
        factor = hw::mul(factor,
                         hw::load_global(reinterpret_cast<const float*>(scales_of(p.q, at, head))));
      }
    }
    if constexpr (Policy::kSplitQ) {
      HT_UNROLL
      for (uint32_t i = 0; i < kCount; ++i) max_abs = hw::max(max_abs, x[i] < 0 ? -x[i] : x[i]);
      HT_UNROLL
      for (uint32_t i = 1; i < 32; i *= 2) max_abs = hw::max(max_abs, hw::shuffle_xor(max_abs, i));
      // The largest becomes 2^12 to 2^13; a row of zeros, and what is not finite, stays.
      const uint32_t exponent = std::bit_cast<uint32_t>(max_abs) >> 23;
      if (exponent > 14 && exponent < 255) {
        const float up = std::bit_cast<float>((127 + 12 + 127 - exponent) << 23);
        HT_UNROLL
        for (uint32_t i = 0; i < kCount; ++i) x[i] = hw::mul(x[i], up);
        factor = hw::mul(factor, std::bit_cast<float>((exponent - 12) << 23));
      }
    }
    HT_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) {
      hw::store_shared(staged(base, row, 32 * i + lane), x[i]);
    }
    if (lane == 0) {
      hw::store_shared(score_factors + row * 4, hw::mul(factor, Policy::kFactor));
    }
  }
  // Elements lane, lane + 32, ... of a row, rounded as the mode says.
  HT_DEVICE static void load_row(const Operand& q, const uint8_t* row, const uint8_t* scales,
                                 float (&x)[kCount]) {
    const uint32_t lane = hw::lane_index();
    const Format format = q.format;
    if (attention_sm80::element_bits(format) == 16) {
      HT_UNROLL
      for (uint32_t i = 0; i < kCount; ++i) {
        const auto value = hw::load_global(reinterpret_cast<const uint16_t*>(row) + 32 * i + lane);
        x[i] = format == Format::f16 ? hw::cvt_f32_f16(value) : hw::cvt_f32_bf16(value);
      }
    } else if (format == Format::f32) {
      HT_UNROLL
      for (uint32_t i = 0; i < kCount; ++i) {
        x[i] = hw::load_global(reinterpret_cast<const float*>(row) + 32 * i + lane);
      }
    } else {
      const bool nibbles = attention_sm80::element_bits(format) == 4;
      HT_UNROLL
      for (uint32_t i = 0; i < kCount; ++i) {
        const uint32_t column = 32 * i + lane;
        const uint32_t value = hw::load_global(row + (nibbles ? column / 2 : column));
        x[i] = pipe::decode_code(format, nibbles ? value >> column % 2 * 4 & 15 : value);
        if (q.scaling != Scales::block) continue;
        const bool nvfp4 = format == Format::nvfp4;
        const uint32_t scale = hw::load_global(scales + column / (nvfp4 ? 16 : 32));
        x[i] = hw::mul(x[i], nvfp4 ? pipe::decode_code(Format::fp8_e4m3, scale)
                                   : decode_ue8m0(static_cast<uint8_t>(scale)));
      }
    }
    if constexpr (kRounded) {
      HT_UNROLL
      for (uint32_t i = 0; i < kCount; ++i) x[i] = hw::cvt_f32_bf16(hw::cvt_bf16(x[i]));
    }
  }
  // The column of element `half` of pair `pair` of a lane of four.
  HT_DEVICE static uint32_t key_column(uint32_t part, uint32_t pair, uint32_t half) {
    const uint32_t word = pair / kWordPairs, piece = word / kPieceWords;
    const uint32_t pieces = (piece * 4 + part) * (kPieceWords * kWordValues);
    return pieces + word % kPieceWords * kWordValues + Policy::key_element(pair % kWordPairs, half);
  }
  // From FP32 to A operands: rows 0 to 7 the value in FP16 or BF16, rows 8 to 15 the remainder that
  // FP16 cut off, times 2^24 (split Q).
  HT_DEVICE static void build(hw::SharedAddress base, hw::SharedAddress to) {
    const uint32_t lane = hw::lane_index(), row = lane / 4;
    for (uint32_t i = hw::warp_index(); i < kSteps; i += kWarps) {
      hw::Words4 a{};
      HT_UNROLL
      for (uint32_t j = 0; j < 2; ++j) {
        float x[2];
        HT_UNROLL
        for (uint32_t half = 0; half < 2; ++half) {
          const uint32_t column = key_column(lane % 4, 2 * i + j, half);
          x[half] = hw::load_shared<float>(staged(base, row, column));
        }
        a.at[2 * j] = kHalf ? hw::cvt_f16x2(x[0], x[1]) : hw::cvt_bf16x2(x[0], x[1]);
        if constexpr (Policy::kSplitQ) {
          const float low = hw::cvt_f32_f16(static_cast<uint16_t>(a.at[2 * j]));
          const float high = hw::cvt_f32_f16(static_cast<uint16_t>(a.at[2 * j] >> 16));
          a.at[2 * j + 1] = hw::cvt_f16x2(hw::mul(hw::add(x[0], -low), 0x1p24f),
                                          hw::mul(hw::add(x[1], -high), 0x1p24f));
        }
      }
      hw::store_shared(to + (i * 32 + lane) * 16, a);
    }
  }
};

}  // namespace halftone::attention_decode
