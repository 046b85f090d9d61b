// Dequantisation of rows whose eights share a scale: codes times their scales, exactly, rounded
// once. A thread has the codes and the scales of four eights under way before it expands them.
#pragma once
#include "formats/gpu_encode.cuh"
#include "hw/thread.h"
#include "pipe/access.h"
#include "pipe/codes.h"
#include "pipe/divisor.h"

namespace halftone {

// The scale of a code: f32, f16, bf16, E4M3 or a power of two.
HT_DEVICE float scale_of_code(Format f, uint32_t code) {
  switch (f) {
    case Format::f32:
      return std::bit_cast<float>(code);
    case Format::f16:
      return hw::cvt_f32_f16(static_cast<uint16_t>(code));
    case Format::bf16:
      return hw::cvt_f32_bf16(static_cast<uint16_t>(code));
    case Format::ue8m0:
      return decode_ue8m0(static_cast<uint8_t>(code));
    default:
      return pipe::decode_code(Format::fp8_e4m3, code);
  }
}

struct ExpandParams {
  DequantizeArgs args;
  uint32_t count;               // eights in all
  bool dense;                   // codes without gaps
  bool even;                    // scales follow each other as groups do, and so do zero points
  pipe::Divisor eights;         // of a row
  pipe::Divisor group_eights;   // of a group
  pipe::Divisor rows, high;     // of a matrix, of a block
  uint32_t row_eights, groups;  // of a row
};

// kConvert: FP8 by the conversion instruction of sm_89 and later.
template <pipe::Access kAccess, bool kConvert>
struct ExpandGpu {
  using Params = ExpandParams;
  static constexpr uint32_t kThreads = 256, kMinBlocks = 4;
  static constexpr uint32_t kEights = 4;  // of a thread

  // Where an eight's scale and zero point lie, in elements; of tiled layouts in bytes.
  struct Place {
    int64_t scale, zero;
  };
  HT_DEVICE static Place place_of(const Params& p, uint32_t n) {
    const DequantizeArgs& args = p.args;
    if (p.even) {  // groups of rows, one after the other
      const int64_t group = p.group_eights.divide(n);
      return {group, group};
    }
    const uint32_t row = p.eights.divide(n), rows = static_cast<uint32_t>(args.rows);
    const uint32_t matrix = args.matrices == 1 ? 0 : p.rows.divide(row), r = row - matrix * rows;
    const uint32_t g = p.group_eights.divide(n - row * p.row_eights);
    if (args.layout != ScaleLayout::linear) {
      return {matrix * args.scale_matrix + scale_offset(args.layout, args.rows, p.groups, r, g), 0};
    }
    const uint32_t band = p.high.divide(r);
    // Within a matrix strides have 32 bits: there are fewer scales than eights.
    const auto within = [&](int64_t row_stride, int64_t column_stride) {
      return uint64_t{band} * static_cast<uint32_t>(row_stride) +
             uint64_t{g} * static_cast<uint32_t>(column_stride);
    };
    return {
        matrix * args.scale_matrix +
            static_cast<int64_t>(within(args.scale_row, args.scale_column)),
        matrix * args.zero_matrix + static_cast<int64_t>(within(args.zero_row, args.zero_column))};
  }

  // A scale as stored.
  HT_DEVICE static uint32_t load_scale_code(const DequantizeArgs& args, int64_t i) {
    if (args.scales == nullptr) return 0;
    switch (args.scale_format) {
      case Format::f32:
        return hw::load_global(reinterpret_cast<const uint32_t*>(args.scales) + i);
      case Format::f16:
      case Format::bf16:
        return hw::load_global(reinterpret_cast<const uint16_t*>(args.scales) + i);
      default:
        return hw::load_global(reinterpret_cast<const uint8_t*>(args.scales) + i);
    }
  }

  // Eight numbers before their scale.
  template <Format kFormat>
  HT_DEVICE static void decode(const hw::Vector<uint32_t, 2>& codes, float zero, float (&x)[8]) {
    // 2^23 plus a small integer ends in its bits.
    const auto integer = [](uint32_t n) { return std::bit_cast<float>(n | 0x4b000000); };
    const auto byte = [&](uint32_t i) { return codes[i / 4] >> 8 * (i % 4) & 0xff; };
    if constexpr (kFormat == Format::nvfp4 || kFormat == Format::mxfp4) {
      // Two nibbles, 16 bits apart, as f16 that are 2^-14 of their values.
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t w = codes[0] >> 4 * i;
        const uint32_t pair = (w << 12 & 0x80008000u) | (w << 9 & 0x0e000e00u);
        pipe::widen_pair(Format::f16, pair, x[i], x[i + 4]);
        x[i] *= 0x1p14f, x[i + 4] *= 0x1p14f;
      }
    } else if constexpr (kConvert && (kFormat == Format::fp8_e4m3)) {
      HT_UNROLL
      for (uint32_t i = 0; i < 8; i += 2) {
        const auto pair = static_cast<uint16_t>(codes[i / 4] >> 8 * (i % 4));
        pipe::widen_pair(Format::f16, hw::cvt_f16x2_fp8x2<hw::Type::e4m3>(pair), x[i], x[i + 1]);
      }
    } else {
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) {
        if constexpr (kFormat == Format::int8) {
          x[i] = integer(byte(i) ^ 0x80) - (0x1p23f + 128);
        } else if constexpr (kFormat == Format::int4) {
          x[i] = integer(codes[0] >> 4 * i & 15) - (0x1p23f + zero);
        } else {
          x[i] = pipe::decode_code(kFormat, byte(i));
        }
      }
    }
  }

  // a b as f32 for a second rounding to 16 bits: towards zero, and odd where that was not exact, so
  // that the two round as one.
  template <bool kExact>
  HT_DEVICE static float product(float a, float b) {
    if constexpr (kAccess == pipe::Access::f32 || kExact) return a * b;
    const float p = hw::mul<hw::Rounding::rz>(a, b);
    const bool rounded = fabsf(hw::fma(a, b, -p)) > 0;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(p) | (rounded ? 1u : 0u));
  }

  HT_DEVICE static void run(const Params& p) {
    const DequantizeArgs& args = p.args;
    const bool nibbles = pipe::has_nibbles(args.format);
    const uint32_t first = hw::block_index().x * kThreads * kEights + hw::thread_index().x;
    hw::Vector<uint32_t, 2> codes[kEights];
    uint32_t scale_codes[kEights], zeros[kEights];
    HT_UNROLL
    for (uint32_t i = 0; i < kEights; ++i) {
      const uint32_t n = first + i * kThreads;
      codes[i] = {};
      if (n >= p.count) continue;
      const uint32_t row = p.dense ? 0 : p.eights.divide(n), eight = n - row * p.row_eights;
      const char* at = args.codes[row] + int64_t{eight} * (nibbles ? 4 : 8);
      if (nibbles) {
        codes[i][0] = hw::load_global(reinterpret_cast<const uint32_t*>(at));
      } else {
        codes[i] = hw::load_global(reinterpret_cast<const hw::Vector<uint32_t, 2>*>(at));
      }
    }
    HT_UNROLL
    for (uint32_t i = 0; i < kEights; ++i) {
      const uint32_t n = first + i * kThreads;
      scale_codes[i] = 0, zeros[i] = 8;
      if (n >= p.count) continue;
      const Place at = place_of(p, n);
      scale_codes[i] = load_scale_code(args, at.scale);
      if (args.zeros != nullptr) zeros[i] = hw::load_global(args.zeros + at.zero);
    }
    const float factor = args.tensor_scale != nullptr ? hw::load_global(args.tensor_scale) : 1;
    const Format scale_format = args.scales == nullptr ? Format::f32 : args.scale_format;
    for_kind_of(args.format, scale_format, false, [&](auto kind) {
      HT_UNROLL
      for (uint32_t i = 0; i < kEights; ++i) {
        const uint32_t n = first + i * kThreads;
        if (n >= p.count) continue;
        expand<decltype(kind)>(p, n, codes[i], scale_codes[i], static_cast<float>(zeros[i]),
                               factor);
      }
    });
  }

  template <class Kind>
  HT_DEVICE static void expand(const Params& p, uint32_t n, const hw::Vector<uint32_t, 2>& codes,
                               uint32_t scale_code, float zero, float factor) {
    const DequantizeArgs& args = p.args;
    float x[8];
    Format scale_format = args.scale_format;
    if constexpr (Kind::kFixed) {
      scale_format = Kind::kScale;
      decode<Kind::kElement>(codes, zero, x);
    } else {
      for_elements_of(args.format, [&](auto format) { decode<format.value>(codes, zero, x); });
    }
    float scale = 1;
    if constexpr (Kind::kFixed && kConvert && Kind::kScale == Format::fp8_e4m3) {
      const auto pair = hw::cvt_f16x2_fp8x2<hw::Type::e4m3>(static_cast<uint16_t>(scale_code));
      scale = hw::cvt_f32_f16(static_cast<uint16_t>(pair & 0xffff));
    } else if (args.scales != nullptr) {
      scale = scale_of_code(scale_format, scale_code);
    }
    if (args.tensor_scale != nullptr) {
      // The element times its scale has few bits and is exact.
      HT_UNROLL
      for (uint32_t k = 0; k < 8; ++k) x[k] = product<false>(x[k] * scale, factor);
    } else if (args.scales == nullptr || scale_format != Format::f32) {
      // So it is here: elements have up to 8 bits, and these scales up to 11.
      HT_UNROLL
      for (uint32_t k = 0; k < 8; ++k) x[k] = product<true>(x[k], scale);
    } else {
      HT_UNROLL
      for (uint32_t k = 0; k < 8; ++k) x[k] = product<false>(x[k], scale);
    }
    pipe::Eight<kAccess> result;
    result.narrow(args.out_format, x);
    constexpr uint32_t kBytes = kAccess == pipe::Access::f32 ? 4 : 2;
    result.store(args.out_format, args.out + int64_t{n} * 8 * kBytes, {0, 4}, 8);
  }
};

}  // namespace halftone
