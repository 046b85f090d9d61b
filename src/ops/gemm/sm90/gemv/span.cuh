// A span of the sm_90a GEMVs: 128 bytes of 16 rows of W by some rows of x, in mma.sync.m16n8k16.
//
// The MMA has eight columns where one row of x needs one. They keep apart what has scales of its
// own: a column has x for the elements of one scale group and zeros for all others, so that a
// sequence of MMAs over all groups leaves the sum of each group in its own column, and a scale
// costs one FMA for 16 or 32 elements instead of a multiplication for every pair. A lane has the
// rows r and r + 8 for r = lane / 4, a quarter of a span of each, two consecutive chunks of 16
// bytes; the results of the groups that it has read are its own too (docs/findings/gpu-gemv.md).
// Weights are dequantised once for all rows of x.
#pragma once
#include "hw/convert/convert_fp8_upper.h"
#include "hw/mma/mma.h"
#include "ops/gemm/sm90/gemv/activations.cuh"

namespace halftone::gemm {

// The scales of a lane's elements in a span: for each of its two rows one for 32 elements, or a
// word of four for 16 each.
template <GpuCode kCode, ScaleMode kScales>
struct Sm90LaneScales {
  static constexpr uint32_t kBits = CodePolicy<kCode>::kBits, kDepth = 1024 / kBits;
  static constexpr bool kPairs = kScales == ScaleMode::e4m3_block;
  static constexpr uint32_t kEach = kBits == 4 && !kPairs ? 2 : 1;
  using Raw = std::conditional_t<
      kScales == ScaleMode::ue8m0, uint8_t,
      std::conditional_t<kScales == ScaleMode::f16_group_sums, uint16_t, uint32_t>>;
  static constexpr uint32_t kBytes = sizeof(Raw);  // of `pairs` the lane's four
  const uint8_t* row[2] = {};
  uint32_t next[2][kEach] = {};

  // The offset in a span of the elements of the lane's i-th scale.
  HT_DEVICE static uint32_t element(uint32_t i) {
    return hw::lane_index() % 4 * (kDepth / 4) + i * 32;
  }

  // Locates the scales of outputs `first` of one source and `second` of the other, of n each;
  // 2^log2_rows rows of the tensor share a scale. scale_address(), which handles every layout and
  // block, takes five times the instructions, once a tile, which is a span or two.
  HT_DEVICE void locate(const GpuGemm& p, uint32_t log2_rows, uint32_t n, const GpuSource& source,
                        const GpuSource& other, uint32_t first, uint32_t second) {
    row[0] = address(p.weight, log2_rows, source, first < n ? first : n - 1);
    row[1] = address(p.weight, log2_rows, other, second < n ? second : n - 1);
  }
  HT_DEVICE static const uint8_t* address(const GpuLayout& l, uint32_t log2_rows,
                                          const GpuSource& source, uint32_t output) {
    const uint32_t of_tensor =
        static_cast<uint32_t>(source.first_row) + output * static_cast<uint32_t>(l.row_step);
    return source.scales + uint64_t{of_tensor >> log2_rows} * static_cast<uint32_t>(l.scale_row);
  }
  // Loads the scales of a span, a stage ahead. Where the row ends within the span (kEnds) the rest
  // gets the last scale: it is multiplied by zeros.
  template <bool kEnds = false>
  HT_DEVICE void prefetch(const GpuGemm& p, uint32_t log2_group, uint32_t span,
                          hw::Site site = hw::Site::current()) {
    const auto step = static_cast<uint32_t>(p.weight.scale_step);
    HT_UNROLL
    for (uint32_t i = 0; i < kEach; ++i) {
      uint32_t from = span * kDepth + element(i);
      if constexpr (kEnds) {
        const uint32_t last = p.k - (kPairs ? 64 : 1);
        from = from < last ? from : last;
      }
      const uint32_t at = (from >> (kPairs ? 4 : log2_group)) * step;
      HT_UNROLL
      for (uint32_t r = 0; r < 2; ++r) next[r][i] = load(row[r] + at, site);
    }
  }
  HT_DEVICE static uint32_t load(const uint8_t* at, hw::Site site) {
    return hw::load_global(reinterpret_cast<const Raw*>(at), site);
  }
  HT_DEVICE float scale(Format format, uint32_t r, uint32_t i) const {
    const uint32_t raw = next[r][i];
    // 2^(code - 127). 0 is subnormal, 255 NaN: both set the upper mantissa bit.
    if constexpr (kScales == ScaleMode::ue8m0) {
      return std::bit_cast<float>(raw << 23 | (raw - 1 < 254 ? 0 : 0x400000));
    }
    if constexpr (kScales == ScaleMode::f16_group_sums) {
      return format == Format::f16 ? hw::cvt_f32_f16(static_cast<uint16_t>(raw))
                                   : std::bit_cast<float>(raw << 16);
    }
    return std::bit_cast<float>(raw);
  }
};

// The swizzled offset of byte `at` in lines of `line` bytes, 16 to 128 (tile/swizzle.h, with a line
// width known only at run time).
HT_DEVICE uint32_t swizzled_in_lines(uint32_t at, uint32_t line) {
  return at ^ (at / 128 & (line / 16 - 1)) * 16;
}

// Where a lane finds the scales of its warp's span in a stage.
template <class Stages, class Scales>
class Sm90GemvSmemScales {
 public:
  HT_DEVICE Sm90GemvSmemScales(const Sm90GemvParams& p, uint32_t warp) {
    const uint32_t line = Stages::kWarps * p.scale_span;  // 16 to 128 bytes
    const uint32_t row = p.scale_rows > 1 ? hw::lane_index() / 4 : 0;
    HT_UNROLL
    for (uint32_t i = 0; i < Scales::kEach; ++i) {
      const uint32_t scale =
          Scales::kPairs ? hw::lane_index() % 4 : Scales::element(i) >> p.log2_group;
      const uint32_t at = row * line + warp * p.scale_span + scale * Scales::kBytes;
      at_[i] = 2 * Stages::kHalf + swizzled_in_lines(at, line);
    }
  }
  HT_DEVICE void read(hw::SharedAddress stage, Scales& scales,
                      hw::Site site = hw::Site::current()) const {
    HT_UNROLL
    for (uint32_t r = 0; r < 2; ++r) {
      HT_UNROLL
      for (uint32_t i = 0; i < Scales::kEach; ++i) {
        scales.next[r][i] =
            hw::load_shared<typename Scales::Raw>(stage + (at_[i] + r * Stages::kScaleHalf), site);
      }
    }
  }

 private:
  uint32_t at_[Scales::kEach];
};

// Where a lane reads x: the elements of its column, or zeros.
template <GpuCode kCode>
struct Sm90GemvColumns {
  static constexpr uint32_t kBits = CodePolicy<kCode>::kBits;
  using XLayout = Sm90GemvXLayout<kCode>;
  hw::SharedAddress
      at[2];         // for the first 16 of 32 values of 4 bits, and for the others; else equal
  uint32_t step[2];  // bytes to the next span

  // `k` elements of all rows.
  HT_DEVICE Sm90GemvColumns(hw::SharedAddress x, hw::SharedAddress zeros, uint32_t k) {
    const uint32_t column = hw::lane_index() / 4, quad = hw::lane_index() % 4;
    const hw::SharedAddress own = x + quad * (XLayout::kSpanBytes / 4);
    HT_UNROLL
    for (uint32_t i = 0; i < 2; ++i) {
      bool mine = true;
      hw::SharedAddress from = own;
      if constexpr (kBits == 4) {
        mine = column == 2 * quad + i;
        at[i] = mine ? own : zeros + 32;
      } else if constexpr (kBits == 8) {
        mine = column / 2 == quad;
        if (column % 2 != 0) from = own + XLayout::second_part(k);
        at[i] = mine ? from : zeros + (32 + column / 2 % 2 * 64);
      } else {
        at[i] = XLayout::kTwoParts && column % 2 != 0 ? own + XLayout::second_part(k) : own;
      }
      step[i] = mine ? XLayout::kSpanBytes : 0;
    }
  }
};

template <GpuCode kCode, ScaleMode kScales>
struct Sm90GemvSpan {
  using Policy = CodePolicy<kCode>;
  using XLayout = Sm90GemvXLayout<kCode>;
  using Scales = Sm90LaneScales<kCode, kScales>;
  using Columns = Sm90GemvColumns<kCode>;
  static constexpr uint32_t kBits = Policy::kBits, kSpan = 128;
  static constexpr hw::Type kType =
      XLayout::kTwoParts || kCode == GpuCode::f16 ? hw::Type::f16 : hw::Type::bf16;

  // Dequantises eight packed values to four operand pairs.
  HT_DEVICE static void dequantise(const uint32_t (&packed)[kBits / 4], uint32_t (&pairs)[4]) {
    if constexpr (kBits == 16) {
      HT_UNROLL
      for (uint32_t w = 0; w < 4; ++w) pairs[w] = packed[w];
    } else if constexpr (kCode == GpuCode::e4m3 || kCode == GpuCode::e5m2) {
      constexpr hw::Type kFp8 = kCode == GpuCode::e4m3 ? hw::Type::e4m3 : hw::Type::e5m2;
      HT_UNROLL
      for (uint32_t w = 0; w < 2; ++w) {
        pairs[2 * w] = hw::cvt_f16x2_fp8x2<kFp8>(static_cast<uint16_t>(packed[w]));
        pairs[2 * w + 1] = hw::cvt_f16x2_fp8x2_upper<kFp8>(packed[w]);
      }
    } else if constexpr (kCode == GpuCode::int8) {
      HT_UNROLL
      for (uint32_t w = 0; w < 2; ++w) {
        // 1024 + 128 + the value, less 1024 + 128.
        const uint32_t positive = packed[w] ^ 0x80808080u;
        pairs[2 * w] =
            hw::add_pair<hw::Type::f16x2>(hw::prmt(positive, 0x64646464, 0x4140), 0xe480e480);
        pairs[2 * w + 1] =
            hw::add_pair<hw::Type::f16x2>(hw::prmt(positive, 0x64646464, 0x4342), 0xe480e480);
      }
    } else if constexpr (kCode == GpuCode::e2m1) {
      Policy::places(packed, pairs);
    } else {
      uint32_t four[1][4];
      Policy::expand(packed, Policy::kUnscaled, four);
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) pairs[i] = four[0][i];
    }
  }

  // The span of 16 rows of W at `offset` of a stage, the second eight rows `half` bytes further, by
  // kX rows of x from `span` on: adds to the accumulators of the lane's two rows.
  template <uint32_t kX>
  HT_DEVICE static void mma(hw::SharedAddress stage, uint32_t offset, uint32_t half,
                            const Columns& columns, uint32_t span, const Scales& scales,
                            Format scale_format, float (&sums)[kX][2],
                            hw::Site site = hw::Site::current()) {
    const uint32_t row = hw::lane_index() / 4, quad = hw::lane_index() % 4;
    const uint32_t place = offset + row * kSpan + ((2 * quad) ^ row) * 16;
    const hw::SharedAddress x[2] = {columns.at[0] + span * kX * columns.step[0],
                                    columns.at[1] + span * kX * columns.step[1]};
    float part[kX][4] = {};
    HT_UNROLL
    for (uint32_t chunk = 0; chunk < 2; ++chunk) {
      hw::Words4 words[2];
      HT_UNROLL
      for (uint32_t r = 0; r < 2; ++r) {
        words[r] = hw::load_shared<hw::Words4>(stage + ((place ^ chunk * 16) + r * half), site);
      }
      HT_UNROLL
      for (uint32_t o = 0; o < 16 / kBits; ++o) {  // octets
        uint32_t pairs[2][4];
        HT_UNROLL
        for (uint32_t r = 0; r < 2; ++r) {
          uint32_t packed[kBits / 4];
          HT_UNROLL
          for (uint32_t w = 0; w < kBits / 4; ++w) packed[w] = words[r][o * (kBits / 4) + w];
          dequantise(packed, pairs[r]);
        }
        HT_UNROLL
        for (uint32_t m = 0; m < kX; ++m) {
          const auto b = hw::load_shared<hw::Words4>(
              x[o / 2] + (m * XLayout::kSpanBytes + (chunk * (16 / kBits) + o) * 16), site);
          HT_UNROLL
          for (uint32_t i = 0; i < 4; i += 2) {
            hw::mma_m16n8k16<kType>(part[m],
                                    {pairs[0][i], pairs[1][i], pairs[0][i + 1], pairs[1][i + 1]},
                                    {b[i], b[i + 1]}, part[m], site);
          }
        }
      }
      if constexpr (kBits == 4) promote_chunk(chunk, scales, scale_format, part, sums);
    }
    if constexpr (kBits > 4) {
      HT_UNROLL
      for (uint32_t m = 0; m < kX; ++m) {
        HT_UNROLL
        for (uint32_t r = 0; r < 2; ++r) {
          float sum = part[m][2 * r];
          if constexpr (XLayout::kTwoParts) sum = hw::fma(part[m][2 * r + 1], 0x1p-33f, sum);
          float& all = sums[m][r];
          all = kScales == ScaleMode::none ? all + sum
                                           : hw::fma(sum, scales.scale(scale_format, r, 0), all);
        }
      }
    }
  }

 private:
  // Promotes sums of 16 elements each in two columns, with a scale each or one for both.
  template <uint32_t kX>
  HT_DEVICE static void promote_chunk(uint32_t chunk, const Scales& scales, Format scale_format,
                                      float (&part)[kX][4], float (&sums)[kX][2]) {
    HT_UNROLL
    for (uint32_t r = 0; r < 2; ++r) {
      float scale[2];
      if constexpr (Scales::kPairs) {
        const uint32_t four = scales.next[r][0];
        const uint32_t halves =
            chunk == 0 ? hw::cvt_f16x2_fp8x2<hw::Type::e4m3>(static_cast<uint16_t>(four))
                       : hw::cvt_f16x2_fp8x2_upper<hw::Type::e4m3>(four);
        scale[0] = hw::cvt_f32_f16(static_cast<uint16_t>(halves));
        scale[1] = hw::cvt_f32_f16(static_cast<uint16_t>(halves >> 16));
      } else {
        scale[0] = scales.scale(scale_format, r, chunk);
      }
      HT_UNROLL
      for (uint32_t m = 0; m < kX; ++m) {
        float& all = sums[m][r];
        if constexpr (Scales::kPairs) {
          all = hw::fma(part[m][2 * r], scale[0], all);
          all = hw::fma(part[m][2 * r + 1], scale[1], all);
        } else {
          all = hw::fma(part[m][2 * r] + part[m][2 * r + 1], scale[0], all);
        }
        part[m][2 * r] = part[m][2 * r + 1] = 0;
      }
    }
  }
};

}  // namespace halftone::gemm
